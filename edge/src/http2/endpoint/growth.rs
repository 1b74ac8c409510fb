//! Grows the windows of streams whose content is read quickly, out of a pool of the connection.
//!
//! A window that is small at first bounds the memory of peers that send without being read. Once a stream is read, its
//! window decides how fast it can be: one window per round trip. A stream gets at most half of what is left of the pool,
//! so that windows of later streams can grow, too.

use super::Endpoint;
use super::limits::Growth;
use super::streams::Stream;

/// Time in milliseconds within which a whole window has to be consumed before it grows. A window that limits its stream
/// is consumed once per round trip, and round trips are shorter. In other words: a window holds what its reader takes in
/// one second.
const CONSUMED_MS: u64 = 1000;

impl Endpoint {
    /// Notes that the reader of a message has taken bytes of its content, or waits for the first ones. Grows the window of
    /// the stream if that helps.
    pub(in crate::http2) fn consume(
        &mut self,
        slot: usize,
        bytes: u32,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) {
        if let Some(stream) = self.streams.get_mut(slot) {
            let growth = wanted(stream, bytes, now_ms, &self.limits.growth);
            if growth > 0 && growth <= self.pool / 2 {
                self.pool -= growth;
                stream.grown += growth;
                stream.window.grow(growth);
            }
        }
        self.release(slot, bytes, out);
    }

    /// Takes room out of the pool for content of a closed stream that is still buffered, except for the part that would fit
    /// into a window that has not grown. Returns the amount, for `forget`.
    pub(in crate::http2) fn keep(&mut self, bytes: u32) -> u32 {
        let grown = bytes.saturating_sub(self.limits.stream_window);
        let kept = grown.min(self.pool);
        self.pool -= kept;
        kept
    }

    /// Returns room to the pool that `keep` has taken.
    pub(in crate::http2) fn forget(&mut self, kept: u32) {
        self.pool += kept;
    }
}

/// Counts consumed bytes, and returns the amount by which the window should grow.
fn wanted(stream: &mut Stream, bytes: u32, now_ms: u64, growth: &Growth) -> u32 {
    let size = stream.window.size();
    stream.consumed = stream.consumed.saturating_add(bytes);
    let is_quick = stream.consumed >= size && now_ms.saturating_sub(stream.since_ms) <= CONSUMED_MS;
    if stream.consumed >= size {
        stream.consumed = 0;
        stream.since_ms = now_ms;
    }
    let expects_more = match stream.content.left() {
        Some(left) => left > u64::from(size),
        None => true,
    };
    if !stream.receives || !expects_more {
        return 0;
    }
    let target = match size < growth.read {
        true => growth.read,
        false if is_quick => size.saturating_mul(2),
        false => size,
    };
    target.min(growth.most).saturating_sub(size)
}
