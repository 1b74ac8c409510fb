//! Sends responses: heads, content and trailers, limited by flow control.

use crate::http2::hpack::Encoder;
use crate::http2::violation::{ErrorCode, Violation};

use super::Server;

impl Server {
    /// Appends a head, whose fields `encode` appends: of a 1xx response, or of the final response. `ends`: there is no
    /// content, so the stream ends: see `end`.
    pub fn head(
        &mut self,
        slot: usize,
        ends: bool,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) {
        let Some(stream) = self.endpoint.streams.get(slot) else {
            return;
        };
        let id = stream.id;
        self.endpoint.headers(id, ends, out, encode);
        if ends {
            self.end(slot, out);
        }
    }

    /// Appends trailers, whose fields `encode` appends. The stream ends: see `end`.
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
        self.endpoint.set_content(slot, has_content);
    }

    /// Returns the stream that sends next, and the most bytes of content that it may send.
    #[inline]
    pub fn next(&self) -> Option<(usize, u32)> {
        self.endpoint.next()
    }

    /// Whether the client has opened or closed windows since the last call.
    pub fn take_windows_changed(&mut self) -> bool {
        self.endpoint.take_windows_changed()
    }

    /// Whether a stream has content and waits for the client to open a window.
    pub fn awaits_window(&self, slot: usize) -> bool {
        self.endpoint.awaits_window(slot)
    }

    /// Returns the number of streams that have content and no useful window for it.
    pub fn stalled_streams(&self) -> usize {
        self.endpoint.stalled_streams()
    }

    /// Appends the header of a DATA frame, after which the caller sends `length` bytes of content: at most what `next` has
    /// returned, or none. `ends`: the response ends with them, so the caller has to call `end` after the content. Returns
    /// whether the frame is worth its effort: it is not if a window has made it tiny.
    #[inline]
    pub fn data(&mut self, slot: usize, length: u32, ends: bool, out: &mut Vec<u8>) -> bool {
        self.endpoint.data(slot, length, ends, out)
    }

    /// Ends a stream whose response has been sent completely. The caller must not use its slot any more. If the request is
    /// incomplete, its rest is discarded.
    pub fn end(&mut self, slot: usize, out: &mut Vec<u8>) {
        let Some(stream) = self.endpoint.streams.get(slot) else {
            return;
        };
        let is_complete = !stream.receives;
        self.endpoint.earn_by_response();
        self.resets.earn(1);
        match is_complete {
            true => self.endpoint.remove(slot, out),
            false => self.linger(slot, out),
        }
    }

    /// Resets a stream whose request is not processed, and may be sent again (RFC 9113 8.7). Its slot is free.
    ///
    /// # Errors
    ///
    /// The client sends too many frames for what it receives, so the connection has to be closed.
    pub fn refuse_unprocessed(&mut self, slot: usize, out: &mut Vec<u8>) -> Result<(), Violation> {
        self.endpoint.count_frame()?;
        self.endpoint.reset(slot, ErrorCode::REFUSED_STREAM, out);
        Ok(())
    }

    /// Resets a stream whose response cannot be completed. Its slot is free.
    pub fn reset(&mut self, slot: usize, code: ErrorCode, out: &mut Vec<u8>) {
        self.endpoint.reset(slot, code, out);
    }
}
