//! Sends responses: heads, content and trailers, limited by flow control.

use crate::http2::hpack::Encoder;
use crate::http2::violation::ErrorCode;
use crate::http2::write;

use super::Server;

/// Most content of a DATA frame that is sent, so that frames of other streams follow soon.
const CONTENT_MAX: u32 = 16 << 10;

/// Content of a DATA frame below which the frame is not worth the WINDOW_UPDATE that follows it.
const USEFUL_MIN: u32 = 256;

/// Number of frames of any kind that each useful DATA frame, and each response, permits the client in addition.
const FRAMES_PER_DATA: u32 = 2;
const FRAMES_PER_RESPONSE: u32 = 8;

impl Server {
    /// Appends a head, whose fields `encode` appends: of a 1xx response, or of the final response. `ends`: there is no
    /// content, so the stream ends and its slot is free.
    pub fn head(
        &mut self,
        slot: usize,
        ends: bool,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) {
        let Some(stream) = self.streams.get(slot) else {
            return;
        };
        let encoder = &mut self.encoder;
        write::headers(out, stream.id, ends, self.peer.max_frame_size, |out| {
            encoder.begin(out);
            encode(encoder, out);
        });
        if ends {
            self.end(slot, out);
        }
    }

    /// Appends trailers, whose fields `encode` appends. The stream ends and its slot is free.
    pub fn trailers(
        &mut self,
        slot: usize,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) {
        self.head(slot, true, out, encode);
    }

    /// Notes whether a stream has content that could be sent now.
    #[inline]
    pub fn set_content(&mut self, slot: usize, has_content: bool) {
        let Some(stream) = self.streams.get_mut(slot) else {
            return;
        };
        let could_send = stream.can_send();
        stream.has_content = has_content;
        match (could_send, stream.can_send()) {
            (true, false) => self.scheduler.remove(slot as u32),
            (false, true) => self
                .scheduler
                .add(slot as u32, stream.priority, stream.place),
            _ => {}
        }
    }

    /// Returns the stream that sends next, and the most bytes of content that it may send.
    #[inline]
    pub fn next(&self) -> Option<(usize, u32)> {
        let of_connection = self.send_window.available();
        if of_connection == 0 {
            return None;
        }
        let slot = self.scheduler.next()? as usize;
        let window = self.streams.get(slot)?.send_window.available();
        Some((slot, of_connection.min(window).min(CONTENT_MAX)))
    }

    /// Whether a stream has content and waits for the client to open a window.
    pub fn awaits_window(&self, slot: usize) -> bool {
        let stream = self.streams.get(slot).filter(|stream| stream.has_content);
        stream.is_some_and(|stream| {
            stream.send_window.available() == 0 || self.send_window.available() == 0
        })
    }

    /// Appends the header of a DATA frame, after which the caller sends `length` bytes of content: at most what `next` has
    /// returned, or none. `ends`: the response ends with them, so the caller has to call `end` after the content.
    #[inline]
    pub fn data(&mut self, slot: usize, length: u32, ends: bool, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(slot) else {
            return;
        };
        out.extend_from_slice(&write::data_header(stream.id, length, ends));
        let consumed = stream
            .send_window
            .consume(length)
            .and_then(|()| self.send_window.consume(length));
        debug_assert!(consumed.is_ok(), "more content than the windows permit");
        let is_blocked = stream.send_window.available() == 0;
        // A client that opens its windows by a few bytes at a time earns nothing.
        if length >= USEFUL_MIN || !(is_blocked || self.send_window.available() == 0) {
            self.frames.earn(FRAMES_PER_DATA);
        }
        if let Some(place) = self.scheduler.sent(slot as u32) {
            stream.place = place;
        }
        if is_blocked {
            self.scheduler.remove(slot as u32);
        }
    }

    /// Ends a stream whose response has been sent completely. Its slot is free.
    pub fn end(&mut self, slot: usize, out: &mut Vec<u8>) {
        if let Some(stream) = self.streams.get(slot)
            && stream.receives
        {
            // The rest of the request is not needed (RFC 9113 8.1).
            write::reset(out, stream.id, ErrorCode::NO_ERROR);
            self.streams.abandon(stream.id);
        }
        self.frames.earn(FRAMES_PER_RESPONSE);
        self.resets.earn(1);
        self.remove(slot, out);
    }

    /// Resets a stream whose response cannot be completed. Its slot is free.
    pub fn reset(&mut self, slot: usize, code: ErrorCode, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get(slot) else {
            return;
        };
        let id = stream.id;
        write::reset(out, id, code);
        self.streams.abandon(id);
        self.remove(slot, out);
    }
}
