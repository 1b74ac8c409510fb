//! Sends requests: heads, content and trailers, limited by flow control.

use crate::http2::hpack::Encoder;
use crate::http2::malformed::ContentCount;
use crate::http2::priority::Priority;
use crate::http2::server::streams::Stream;
use crate::http2::violation::ErrorCode;
use crate::http2::window::{ReceiveWindow, Window};
use crate::http2::write;

use super::{Awaited, Client, Progress};

/// Most content of a DATA frame that is sent, so that frames of other streams follow soon.
const CONTENT_MAX: u32 = 16 << 10;

/// Number of frames of any kind that each useful DATA frame, and each response, permits the server in addition.
const FRAMES_PER_DATA: u32 = 2;
const FRAMES_PER_RESPONSE: u32 = 8;

/// All requests share the connection.
const PRIORITY: Priority = Priority {
    urgency: 3,
    incremental: true,
};

impl Client {
    /// Begins a request, whose fields `encode` appends, if there is `room`. `ends`: it has no content. `head_only`: its
    /// method is HEAD. Returns the slot of its stream, until the response ends or fails.
    pub fn begin(
        &mut self,
        ends: bool,
        head_only: bool,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) -> Option<usize> {
        if self.room() == 0 {
            return None;
        }
        // The first stream is 1, since this side uses odd numbers.
        let id = (self.streams.last() + 1) | 1;
        let encoder = &mut self.encoder;
        write::headers(out, id, ends, self.peer.max_frame_size, |out| {
            encoder.begin(out);
            encode(encoder, out);
        });
        let announced = self.own.acknowledged().initial_window_size;
        let stream = Stream {
            id,
            receives: true,
            content: ContentCount::new(None),
            window: ReceiveWindow::new(announced, announced),
            held: 0,
            send_window: Window::new(self.peer.initial_window_size),
            priority: PRIORITY,
            place: self.scheduler.new_place(),
            has_content: false,
        };
        let progress = Progress {
            sends: !ends,
            awaited: Awaited::Head { head_only },
        };
        Some(self.open(stream, progress))
    }

    /// Notes whether a request has content that could be sent now.
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
    pub fn next(&self) -> Option<(usize, u32)> {
        let of_connection = self.send_window.available();
        if of_connection == 0 {
            return None;
        }
        let slot = self.scheduler.next()? as usize;
        let window = self.streams.get(slot)?.send_window.available();
        Some((slot, of_connection.min(window).min(CONTENT_MAX)))
    }

    /// Appends the header of a DATA frame, after which the caller sends `length` bytes of content: at most what `next` has
    /// returned, or none. `ends`: the request ends with them.
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
        self.frames.earn(FRAMES_PER_DATA);
        if let Some(place) = self.scheduler.sent(slot as u32) {
            stream.place = place;
        }
        if stream.send_window.available() == 0 {
            self.scheduler.remove(slot as u32);
        }
        if ends {
            self.end_request(slot);
        }
    }

    /// Appends the trailers of a request, whose fields `encode` appends.
    pub fn trailers(
        &mut self,
        slot: usize,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) {
        let Some(stream) = self.streams.get(slot) else {
            return;
        };
        let encoder = &mut self.encoder;
        write::headers(out, stream.id, true, self.peer.max_frame_size, |out| {
            encoder.begin(out);
            encode(encoder, out);
        });
        self.end_request(slot);
    }

    /// Notes that all of a request has been sent.
    fn end_request(&mut self, slot: usize) {
        self.set_content(slot, false);
        if let Some(progress) = self.progress.get_mut(slot) {
            progress.sends = false;
        }
    }

    /// Ends a stream whose response has been received completely. Its slot is free. A request that is not complete is
    /// abandoned.
    pub fn end(&mut self, slot: usize, out: &mut Vec<u8>) {
        if self.streams.get(slot).is_none() {
            return;
        }
        self.frames.earn(FRAMES_PER_RESPONSE);
        match self.progress[slot].sends {
            true => self.reset(slot, ErrorCode::CANCEL, out),
            false => self.remove(slot, out),
        }
    }
}
