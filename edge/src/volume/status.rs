//! The status of a volume.

use std::sync::atomic::{AtomicU64, Ordering};

use super::mounted::{LOADED, Mounted};
use super::supervisor::Inner;

/// The state of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum State {
    /// In service; this many thousandths of the index have been loaded.
    Loading(u32),
    /// In service.
    #[default]
    Up,
    /// Out of service, with the reason.
    Out(String),
}

/// State and counters for the status page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// State.
    pub state: State,
    /// Size on the device in bytes.
    pub size: u64,
    /// Number of segments.
    pub segments: u64,
    /// Size of each segment in bytes.
    pub segment_bytes: u64,
    /// Number of records in the index.
    pub records: u64,
    /// Bytes that the records use on the device.
    pub live_bytes: u64,
    /// Bytes of memory that the index uses.
    pub index_bytes: u64,
    /// Bytes queued for writing.
    pub queue_bytes: u64,
    /// Bytes written, including tables and rewritten records.
    pub written_bytes: u64,
    /// Bytes of records written again by reclaiming.
    pub rewritten_bytes: u64,
    /// Number of reads served from the page cache alone.
    pub reads_at_hand: u64,
    /// Number of reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Number of records not written because the queue was full.
    pub shed: u64,
    /// Bytes of these records.
    pub shed_bytes: u64,
    /// Number of damaged records.
    pub damaged: u64,
    /// Number of failures of the device.
    pub errors: u64,
    /// Number of times that the whole volume was written.
    pub laps: u64,
    /// Microseconds spent in writes.
    pub write_us: u64,
    /// Microseconds spent in reads.
    pub read_us: u64,
}

/// The status of a volume.
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
