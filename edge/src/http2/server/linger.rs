//! The rest of a request whose response is complete.
//!
//! RST_STREAM with NO_ERROR tells the client to stop sending (RFC 9113 8.1). Some clients then lose a response that they
//! have not processed yet, so the request is received and discarded for a while before that.

use crate::http2::violation::ErrorCode;

use super::Server;

impl Server {
    /// Begins to discard the rest of a request. The caller hears no more of the stream, whose slot stays in use.
    pub(super) fn linger(&mut self, slot: usize, out: &mut Vec<u8>) {
        self.endpoint.set_content(slot, false);
        let until_ms = self.endpoint.now_ms.saturating_add(self.linger_ms);
        self.lingering.add(slot, self.linger_bytes, until_ms);
        // The content that was not read needs no memory any more.
        self.endpoint.release(slot, u32::MAX, out);
    }

    /// Handles content of a stream that lingers. `flow` is the number of bytes that count for flow control.
    pub(super) fn discard(&mut self, slot: usize, flow: u32, ends: bool, out: &mut Vec<u8>) {
        self.endpoint.release(slot, u32::MAX, out);
        if ends {
            self.lingering.remove(slot);
            self.endpoint.remove(slot, out);
        } else if self.lingering.is_spent(slot, flow) {
            self.lingering.remove(slot);
            self.endpoint.reset(slot, ErrorCode::NO_ERROR, out);
        }
    }

    /// Resets the streams that have lingered long enough.
    pub fn end_lingering(&mut self, out: &mut Vec<u8>) {
        while let Some(slot) = self.lingering.pop(self.endpoint.now_ms) {
            self.endpoint.reset(slot, ErrorCode::NO_ERROR, out);
        }
    }

    /// Returns the time at which `end_lingering` has to be called next.
    pub fn lingers_until_ms(&self) -> Option<u64> {
        self.lingering.until_ms()
    }
}
