//! What a volume counts, whoever does it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that only grow.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes written, tables and rewritten records included.
    pub written: Count,
    /// Bytes of records written again at reclaiming.
    pub rewritten: Count,
    /// Records not written, as the queue was full.
    pub shed: Count,
    /// Their bytes.
    pub shed_bytes: Count,
    /// Records that were found damaged when they were to be written again.
    pub damaged: Count,
    /// Failures of the device.
    pub errors: Count,
    /// Microseconds spent in writes.
    pub write_us: Count,
}

/// One of them.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// So much more.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// How much it is.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
