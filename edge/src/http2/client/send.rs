//! Sends requests: heads, content and trailers, limited by flow control.

use crate::http2::endpoint::NewStream;
use crate::http2::hpack::Encoder;
use crate::http2::malformed::ContentCount;
use crate::http2::priority::Priority;
use crate::http2::violation::ErrorCode;

use super::{Awaited, Client, Progress};

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
        let id = (self.endpoint.streams.last() + 1) | 1;
        self.endpoint.headers(id, ends, out, encode);
        let stream = NewStream {
            id,
            receives: true,
            content: ContentCount::new(None),
            priority: PRIORITY,
        };
        let progress = Progress {
            sends: !ends,
            awaited: Awaited::Head { head_only },
        };
        Some(self.open(stream, progress))
    }

    /// Notes whether a request has content that could be sent now.
    pub fn set_content(&mut self, slot: usize, has_content: bool) {
        self.endpoint.set_content(slot, has_content);
    }

    /// Returns the stream that sends next, and the most bytes of content that it may send.
    pub fn next(&self) -> Option<(usize, u32)> {
        self.endpoint.next()
    }

    /// Whether a stream has content and waits for the server to open a window.
    pub fn awaits_window(&self, slot: usize) -> bool {
        self.endpoint.awaits_window(slot)
    }

    /// Appends the header of a DATA frame, after which the caller sends `length` bytes of content: at most what `next` has
    /// returned, or none. `ends`: the request ends with them.
    pub fn data(&mut self, slot: usize, length: u32, ends: bool, out: &mut Vec<u8>) {
        self.endpoint.data(slot, length, ends, out);
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
        let Some(stream) = self.endpoint.streams.get(slot) else {
            return;
        };
        let id = stream.id;
        self.endpoint.headers(id, true, out, encode);
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
        if self.endpoint.streams.get(slot).is_none() {
            return;
        }
        self.endpoint.earn_by_response();
        match self.progress[slot].sends {
            true => {
                self.resets.charge(1);
                self.endpoint.reset(slot, ErrorCode::CANCEL, out);
            }
            false => {
                self.resets.earn(1);
                self.endpoint.remove(slot, out);
            }
        }
    }
}
