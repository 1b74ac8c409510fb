//! The rest of a request whose response is complete.
//!
//! RST_STREAM with NO_ERROR tells the client to stop sending (RFC 9113 8.1). Some clients then lose a response that they
//! have not processed yet, so the request is received and discarded for a while before that.

use std::collections::VecDeque;

use crate::http2::violation::ErrorCode;

use super::Server;

/// Streams whose response is complete and whose request is not.
#[derive(Default)]
pub(super) struct Lingering {
    /// The streams in the order of their ends, since all of them wait equally long.
    streams: VecDeque<LingeringStream>,
}

#[derive(Clone, Copy)]
struct LingeringStream {
    slot: usize,
    /// Bytes that are still discarded.
    left: u32,
    until_ms: u64,
}

impl Lingering {
    /// Returns the number of streams.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether a stream is one of these.
    #[inline]
    pub(super) fn has(&self, slot: usize) -> bool {
        self.streams.iter().any(|stream| stream.slot == slot)
    }

    /// Removes a stream. Returns whether it was one of these.
    #[inline]
    pub(super) fn remove(&mut self, slot: usize) -> bool {
        let at = self.streams.iter().position(|stream| stream.slot == slot);
        at.is_some_and(|at| self.streams.remove(at).is_some())
    }

    /// Counts discarded bytes. Returns whether the stream has discarded enough.
    fn is_spent(&mut self, slot: usize, bytes: u32) -> bool {
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.slot == slot) else {
            return false;
        };
        stream.left = stream.left.saturating_sub(bytes);
        stream.left == 0
    }

    /// Returns the heap memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.streams.capacity() * size_of::<LingeringStream>()
    }

    /// Frees memory if there is no stream.
    pub(super) fn shrink(&mut self) {
        if self.streams.is_empty() {
            self.streams = VecDeque::new();
        }
    }
}

impl Server {
    /// Begins to discard the rest of a request. The caller hears no more of the stream, whose slot stays in use.
    pub(super) fn linger(&mut self, slot: usize, out: &mut Vec<u8>) {
        self.endpoint.set_content(slot, false);
        self.lingering.streams.push_back(LingeringStream {
            slot,
            left: self.linger_bytes,
            until_ms: self.endpoint.now_ms + self.linger_ms,
        });
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
        while let Some(stream) = self.lingering.streams.front().copied()
            && stream.until_ms <= self.endpoint.now_ms
        {
            self.lingering.streams.pop_front();
            self.endpoint.reset(stream.slot, ErrorCode::NO_ERROR, out);
        }
    }

    /// Returns the time at which `end_lingering` has to be called next.
    pub fn lingers_until_ms(&self) -> Option<u64> {
        self.lingering.streams.front().map(|stream| stream.until_ms)
    }
}
