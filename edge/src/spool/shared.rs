//! The limits and numbers of all buffers, which all workers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::options::Options;
use super::quota::{Charge, Quota};
use crate::http::ClientId;
use crate::reason::Reason;
use crate::sys::limits;
use crate::telemetry::BufferNumbers;

/// Most temporary files. Fewer are allowed if few file descriptors are available.
pub(super) const FILES_MAX: u64 = 4096;
/// Share of the file descriptors that temporary files may take, as its reciprocal.
const DESCRIPTORS_PER_FILE: u64 = 4;

/// The limits and numbers of all buffers, shared by all workers.
pub struct Buffers {
    pub(super) memory: Arc<Quota>,
    pub(super) disk: Arc<Quota>,
    pub(super) files: Arc<Quota>,
    pub(super) counts: Counts,
}

/// Counts since the start of the process.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) spilled: AtomicU64,
    pub(super) written: AtomicU64,
    full: AtomicU64,
    errors: AtomicU64,
    timeouts: AtomicU64,
}

impl Buffers {
    /// Creates the limits with these options.
    pub fn new(options: &Options) -> Arc<Buffers> {
        let descriptors = limits::descriptors() as u64;
        let buffers = Buffers {
            memory: Quota::new(0),
            disk: Quota::new(0),
            files: Quota::new((descriptors / DESCRIPTORS_PER_FILE).min(FILES_MAX)),
            counts: Counts::default(),
        };
        buffers.set_options(options);
        Arc::new(buffers)
    }

    /// Applies other options to further bytes of all bodies.
    pub fn set_options(&self, options: &Options) {
        self.memory.set_limit(options.memory);
        let disk = options.disk.as_ref();
        self.disk.set_limit(disk.map_or(0, |disk| disk.bytes));
    }

    /// Returns the numbers for the status.
    pub fn numbers(&self) -> BufferNumbers {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        BufferNumbers {
            bytes: self.memory.used(),
            limit: self.memory.limit(),
            disk_bytes: self.disk.used(),
            disk_limit: self.disk.limit(),
            files: self.files.used(),
            spilled: count(&self.counts.spilled),
            disk_written_bytes: count(&self.counts.written),
            disk_full: count(&self.counts.full),
            disk_errors: count(&self.counts.errors),
            disk_timeouts: count(&self.counts.timeouts),
        }
    }

    /// Returns a charge of no memory for this client.
    pub(super) fn memory_of(&self, client: ClientId) -> Charge {
        Charge::new(&self.memory, client)
    }
}

impl Counts {
    /// Counts a failure of the disk.
    pub(super) fn failure(&self, reason: Reason) {
        let count = match reason {
            Reason::BufferDiskFull => &self.full,
            Reason::BufferDiskTimeout => &self.timeouts,
            _ => &self.errors,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}
