//! Sends messages: header blocks and content, limited by flow control.

use crate::http2::frame::HEADER_LENGTH;
use crate::http2::hpack::Encoder;
use crate::http2::write;

use super::Endpoint;
use super::streams::Stream;

/// Most content of a DATA frame that is sent, so that frames of other streams follow soon. With its header, the frame
/// fits into one record of TLS (RFC 8446 5.1), so a client need not wait for a second one.
const CONTENT_MAX: u32 = (16 << 10) - HEADER_LENGTH as u32;

/// Content of a DATA frame below which the frame is not worth the WINDOW_UPDATE that follows it.
const USEFUL_MIN: u32 = 256;

/// Number of frames that a DATA frame costs a peer whose window has made it tiny.
const FRAMES_PER_TINY_DATA: u32 = 4;

/// Number of frames of any kind that each useful DATA frame, and each response, permits the peer in addition.
const FRAMES_PER_DATA: u32 = 2;
const FRAMES_PER_RESPONSE: u32 = 8;

impl Endpoint {
    /// Appends a header block on a stream, whose fields `encode` appends.
    pub(in crate::http2) fn headers(
        &mut self,
        id: u32,
        ends: bool,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) {
        let encoder = &mut self.encoder;
        write::headers(out, id, ends, self.peer.max_frame_size, |out| {
            encoder.begin(out);
            encode(encoder, out);
        });
    }

    /// Notes whether a stream has content that could be sent now.
    #[inline]
    pub(in crate::http2) fn set_content(&mut self, slot: usize, has_content: bool) {
        let Some(stream) = self.streams.get_mut(slot) else {
            return;
        };
        let could_send = stream.can_send();
        stream.has_content = has_content;
        self.scheduler.update(slot, stream, could_send);
    }

    /// Returns the stream that sends next, and the most bytes of content that it may send.
    #[inline]
    pub(in crate::http2) fn next(&self) -> Option<(usize, u32)> {
        let of_connection = self.send_window.available();
        if of_connection == 0 {
            return None;
        }
        let slot = self.scheduler.next()? as usize;
        let window = self.streams.get(slot)?.send_window.available();
        let most = match of_connection.min(window) {
            // Two halves, because the few bytes that a full frame leaves would need another one.
            open if open > CONTENT_MAX && open < CONTENT_MAX + USEFUL_MIN => open / 2,
            open => open.min(CONTENT_MAX),
        };
        Some((slot, most))
    }

    /// Whether the peer has opened or closed windows since the last call.
    pub(in crate::http2) fn take_windows_changed(&mut self) -> bool {
        std::mem::take(&mut self.windows_changed)
    }

    /// Whether a stream has content and waits for the peer to open a window.
    pub(in crate::http2) fn awaits_window(&self, slot: usize) -> bool {
        let stream = self.streams.get(slot);
        stream.is_some_and(|stream| stream.has_content && self.window_of(stream) == 0)
    }

    /// Returns the number of streams that have content and no useful window for it.
    pub(in crate::http2) fn stalled_streams(&self) -> usize {
        let is_stalled =
            |stream: &&Stream| stream.has_content && self.window_of(stream) < USEFUL_MIN;
        self.streams.iter().filter(is_stalled).count()
    }

    /// Returns the number of bytes that both windows of a stream permit.
    fn window_of(&self, stream: &Stream) -> u32 {
        let of_stream = stream.send_window.available();
        of_stream.min(self.send_window.available())
    }

    /// Appends the header of a DATA frame, after which the caller sends `length` bytes of content: at most what `next` has
    /// returned, or none. Returns whether the frame is worth its effort: it is not if a window has made it tiny.
    #[inline]
    pub(in crate::http2) fn data(
        &mut self,
        slot: usize,
        length: u32,
        ends: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(slot) else {
            return false;
        };
        out.extend_from_slice(&write::data_header(stream.id, length, ends));
        let consumed = stream
            .send_window
            .consume(length)
            .and_then(|()| self.send_window.consume(length));
        debug_assert!(consumed.is_ok(), "more content than the windows permit");
        let is_blocked = stream.send_window.available() == 0;
        let is_useful = length >= USEFUL_MIN || !(is_blocked || self.send_window.available() == 0);
        // A window that ends with a few bytes costs less than the frames before it have earned.
        match is_useful {
            true => self.frames.earn(FRAMES_PER_DATA),
            false => self.frames.charge(FRAMES_PER_TINY_DATA),
        }
        if let Some(place) = self.scheduler.sent(slot as u32) {
            stream.place = place;
        }
        if is_blocked {
            self.scheduler.remove(slot as u32);
        }
        is_useful
    }

    /// Notes that a response is complete, which permits the peer further frames.
    pub(in crate::http2) fn earn_by_response(&mut self) {
        self.frames.earn(FRAMES_PER_RESPONSE);
    }
}
