//! Limits the work that a connection may do before the worker's other connections get their turn.

use std::future::Future;
use std::pin::pin;
use std::task::Context;

/// Most requests, and most bytes, that are processed in one turn.
const REQUESTS_MAX: u32 = 32;
const BYTES_MAX: usize = 1 << 20;
/// Number of requests as which work counts that brings nothing.
const VAIN: u32 = 4;

/// The work that a connection may still do in its current turn.
pub struct Turn {
    requests: u32,
    bytes: usize,
    /// Bytes written since the last call of `take_written`.
    written: usize,
}

impl Turn {
    /// Begins a turn.
    pub fn new() -> Turn {
        Turn {
            requests: REQUESTS_MAX,
            bytes: BYTES_MAX,
            written: 0,
        }
    }

    /// Counts a request.
    #[inline]
    pub fn request(&mut self) {
        self.requests = self.requests.saturating_sub(1);
    }

    /// Counts work that brings its client nothing. It counts as several requests, so that clients that cause much of it
    /// delay others less.
    #[inline]
    pub fn vain(&mut self) {
        self.requests = self.requests.saturating_sub(VAIN);
    }

    /// Counts bytes that were read and processed.
    #[inline]
    pub fn read(&mut self, n: usize) {
        self.bytes = self.bytes.saturating_sub(n);
    }

    /// Counts bytes that were written.
    #[inline]
    pub fn wrote(&mut self, n: usize) {
        self.bytes = self.bytes.saturating_sub(n);
        self.written += n;
    }

    /// Returns the number of bytes written since the last call.
    #[inline]
    pub fn take_written(&mut self) -> usize {
        std::mem::take(&mut self.written)
    }

    /// Whether the turn is over.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.requests == 0 || self.bytes == 0
    }
}

/// Schedules the connection's task to be polled after the runtime has polled other tasks and
/// checked for new events. Waking the task directly would let it run dozens of times before that.
pub fn yield_turn(cx: &mut Context<'_>) {
    let turn = pin!(tokio::task::yield_now());
    // The first poll of `yield_now` is pending and registers the waker with the runtime.
    let _ = turn.poll(cx);
}
