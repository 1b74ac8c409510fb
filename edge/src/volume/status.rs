//! What a volume tells of itself.

use std::sync::atomic::{AtomicU64, Ordering};

use super::mounted::{LOADED, Mounted};
use super::supervisor::Inner;

/// How a volume is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum State {
    /// It serves, and has read so many thousandths of its index.
    Loading(u32),
    /// It serves.
    #[default]
    Up,
    /// It is not used, for this reason.
    Out(String),
}

/// Numbers for the status page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// How it is.
    pub state: State,
    /// Bytes it takes on the device.
    pub size: u64,
    /// How many segments it has.
    pub segments: u64,
    /// Bytes of each.
    pub segment_bytes: u64,
    /// Records in the index.
    pub records: u64,
    /// Bytes that they take on the device.
    pub live_bytes: u64,
    /// Bytes of memory that the index takes.
    pub index_bytes: u64,
    /// Bytes that wait to be written.
    pub queue_bytes: u64,
    /// Bytes written, tables and rewritten records included.
    pub written_bytes: u64,
    /// Bytes of records written again at reclaiming.
    pub rewritten_bytes: u64,
    /// Reads from the page cache alone, and all of them.
    pub reads_at_hand: u64,
    /// All reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Records not written, as the queue was full.
    pub shed: u64,
    /// Their bytes.
    pub shed_bytes: u64,
    /// Records that were damaged.
    pub damaged: u64,
    /// Failures of the device.
    pub errors: u64,
    /// How often the whole of it was written.
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
