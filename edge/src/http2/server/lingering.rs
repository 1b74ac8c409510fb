//! Streams that linger: see `linger`.

use std::collections::VecDeque;

/// Streams whose response is complete and whose request is not.
#[derive(Default)]
pub(super) struct Lingering {
    /// The streams in the order of their ends, since all of them wait equally long.
    streams: VecDeque<LingeringStream>,
}

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

    /// Adds a stream, which discards at most `left` bytes.
    pub(super) fn add(&mut self, slot: usize, left: u32, until_ms: u64) {
        self.streams.push_back(LingeringStream {
            slot,
            left,
            until_ms,
        });
    }

    /// Removes a stream whose time is over, if there is one.
    pub(super) fn pop(&mut self, now_ms: u64) -> Option<usize> {
        let is_late = self.streams.front()?.until_ms <= now_ms;
        let stream = is_late.then(|| self.streams.pop_front()).flatten();
        stream.map(|stream| stream.slot)
    }

    /// Returns the time at which the next stream has to be removed.
    pub(super) fn until_ms(&self) -> Option<u64> {
        self.streams.front().map(|stream| stream.until_ms)
    }

    /// Counts discarded bytes. Returns whether the stream has discarded enough.
    pub(super) fn is_spent(&mut self, slot: usize, bytes: u32) -> bool {
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
