//! The status of a volume.

use std::sync::atomic::{AtomicU64, Ordering};

use super::mounted::{LOADED, Mounted};
use super::supervisor::Inner;

/// The state of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum State {
    /// In service while the index loads; the number is the part that has been loaded, in thousandths.
    Loading(u32),
    /// In service.
    #[default]
    Up,
    /// Out of service for this reason.
    Out(String),
}

/// The state and the counters of a volume for the status page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// State of the volume.
    pub state: State,
    /// Size on the device in bytes.
    pub size: u64,
    /// Number of segments.
    pub segments: u64,
    /// Size of each segment in bytes.
    pub segment_bytes: u64,
    /// Number of records in the index.
    pub records: u64,
    /// Number of bytes that all records take on the device.
    pub live_bytes: u64,
    /// Number of bytes of memory that the index uses.
    pub index_bytes: u64,
    /// Number of bytes queued for writing.
    pub queue_bytes: u64,
    /// Number of bytes written, including tables and copied records.
    pub written_bytes: u64,
    /// Number of bytes of records copied by reclaiming.
    pub rewritten_bytes: u64,
    /// Number of reads whose bytes were all in the page cache.
    pub reads_at_hand: u64,
    /// Number of reads from the volume.
    pub reads: u64,
    /// Number of bytes read.
    pub read_bytes: u64,
    /// Number of records not written because the queue was full.
    pub shed: u64,
    /// Number of bytes of the records in `shed`.
    pub shed_bytes: u64,
    /// Number of records found damaged.
    pub damaged: u64,
    /// Number of failures of the device.
    pub errors: u64,
    /// Number of times that the volume has been written from its first to its last segment.
    pub laps: u64,
    /// Time spent in writes, in microseconds.
    pub write_us: u64,
    /// Time spent in reads, in microseconds.
    pub read_us: u64,
}

/// Collects the status of a volume.
pub fn of(inner: &Inner) -> Status {
    let counters = &inner.context.counters;
    let tally = &inner.context.tally;
    let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let status = Status {
        written_bytes: counters.written.get(),
        rewritten_bytes: counters.rewritten.get(),
        shed: counters.shed.get(),
        shed_bytes: counters.shed_bytes.get(),
        errors: counters.errors.get(),
        write_us: counters.write_us.get(),
        damaged: counters.damaged.get() + read(&tally.damaged),
        reads: read(&tally.reads),
        reads_at_hand: read(&tally.reads_at_hand),
        read_bytes: read(&tally.read_bytes),
        read_us: read(&tally.read_us),
        ..Status::default()
    };
    match inner.mounted() {
        Some(mounted) => with_device(&mounted, status),
        None => Status {
            state: State::Out(inner.why_out()),
            ..status
        },
    }
}

fn with_device(mounted: &Mounted, status: Status) -> Status {
    let geometry = mounted.geometry;
    Status {
        state: match mounted.loaded() {
            LOADED => State::Up,
            thousandths => State::Loading(thousandths),
        },
        size: geometry.size(),
        segments: u64::from(geometry.segments),
        segment_bytes: geometry.segment,
        records: mounted.index.records(),
        live_bytes: mounted.index.live_bytes(),
        index_bytes: mounted.index.memory() as u64,
        queue_bytes: mounted.queue.bytes(),
        laps: status.written_bytes / (geometry.segment * u64::from(geometry.segments)),
        ..status
    }
}
