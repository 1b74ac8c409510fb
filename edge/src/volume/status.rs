//! What a volume tells of itself.

use std::sync::atomic::{AtomicU64, Ordering};

use super::keeper::Inner;
use super::mounted::{LOADED, Mounted};
use super::{State, Status};

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
