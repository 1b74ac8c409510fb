//! The counters of a volume, shared by its threads.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a volume. They only grow.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes written, including tables and rewritten records.
    pub written: Count,
    /// Bytes of new records written.
    pub records: Count,
    /// Bytes of records written again by reclaiming.
    pub rewritten: Count,
    /// Number of records not written because the queue was full.
    pub shed: Count,
    /// Number of bytes of the records in `shed`.
    pub shed_bytes: Count,
    /// Number of records found damaged by reclaiming.
    pub damaged: Count,
    /// Number of failures of the device.
    pub errors: Count,
    /// Microseconds spent in writes.
    pub write_us: Count,
}

/// A counter.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `more` to the counter.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the value of the counter.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
