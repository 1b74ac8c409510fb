//! The status of a volume.

use std::sync::atomic::{AtomicU64, Ordering};

use super::mounted::{LOADED, Mounted};
use super::supervisor::Inner;
use crate::telemetry::VolumeNumbers;

/// The state of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// In service while the index loads; the number is the part that has been loaded, in thousandths.
    Loading(u32),
    /// In service.
    Up,
    /// Out of service for this reason.
    Out(String),
}

/// The state and the counters of a volume for the status page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// State of the volume.
    pub state: State,
    /// Counters and sizes of the volume. Those of the device and the index are 0 while the volume is out of service.
    pub numbers: VolumeNumbers,
}

/// Collects the status of a volume.
pub fn of(inner: &Inner) -> Status {
    let counters = &inner.context.counters;
    let tally = &inner.context.tally;
    let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let numbers = VolumeNumbers {
        written_bytes: counters.written.get(),
        record_bytes: counters.records.get(),
        rewritten_bytes: counters.rewritten.get(),
        shed: counters.shed.get(),
        shed_bytes: counters.shed_bytes.get(),
        errors: counters.errors.get(),
        write_ms: counters.write_us.get() / 1000,
        damaged: counters.damaged.get() + read(&tally.damaged),
        reads: read(&tally.reads),
        reads_cached: read(&tally.reads_cached),
        read_bytes: read(&tally.read_bytes),
        read_ms: read(&tally.read_us) / 1000,
        ..VolumeNumbers::default()
    };
    match inner.mounted() {
        Some(mounted) => Status {
            state: match mounted.loaded() {
                LOADED => State::Up,
                thousandths => State::Loading(thousandths),
            },
            numbers: with_device(&mounted, numbers),
        },
        None => Status {
            state: State::Out(inner.why_out()),
            numbers,
        },
    }
}

fn with_device(mounted: &Mounted, numbers: VolumeNumbers) -> VolumeNumbers {
    let geometry = mounted.geometry;
    let segments = u64::from(geometry.segments);
    VolumeNumbers {
        size: geometry.size(),
        segments,
        segment_bytes: geometry.segment,
        records: mounted.index.records(),
        queue_bytes: mounted.queue.bytes(),
        laps: numbers.written_bytes / (geometry.segment * segments),
        ..numbers
    }
}
