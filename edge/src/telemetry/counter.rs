//! A number that one worker writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one worker writes and any thread reads.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds. Only the owning worker may call this: a plain load and store, no locked instruction.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    /// Subtracts, for gauges; only the owning worker may call this.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_sub(n),
            Ordering::Relaxed,
        );
    }

    /// The value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
