//! How much work a connection may do before the worker's other connections get their turn.

use std::future::Future;
use std::pin::pin;
use std::task::Context;

/// Requests and bytes that one turn may serve.
const REQUESTS_MAX: u32 = 32;
const BYTES_MAX: usize = 1 << 20;

/// The work left in a connection's turn.
pub struct Turn {
    requests: u32,
    bytes: usize,
    /// Bytes written since `take_written`.
    written: usize,
}

impl Turn {
    /// A new turn.
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

    /// Returns the bytes written since the last call.
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

/// Has the connection polled again after the runtime has polled the others and looked for new events. Waking it
/// directly would give it dozens of turns before that.
pub fn yield_turn(cx: &mut Context<'_>) {
    let turn = pin!(tokio::task::yield_now());
    // Its first poll is pending, and leaves the waker with the runtime.
    let _ = turn.poll(cx);
}
