//! Counts of all references to a cache, sampled or not, and the ratios that follow from them.

use crate::telemetry::Counter;

/// One worker's counts of the references to one cache, aligned so that no other worker writes to their cache lines.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Counts {
    pub(super) requests: Counter,
    /// Requests whose first unit was not a hit.
    pub(super) missed: Counter,
    /// Content of all referenced units, in bytes.
    pub(super) bytes: Counter,
    /// Content of the units that were fetched, in bytes.
    pub(super) missed_bytes: Counter,
    /// Sampled references that found the queue full.
    pub(super) dropped: Counter,
}

/// Sums of counts, or the difference of two sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) requests: u64,
    pub(super) missed: u64,
    pub(super) bytes: u64,
    pub(super) missed_bytes: u64,
    pub(super) dropped: u64,
}

impl Totals {
    /// Adds a worker's counts.
    pub(super) fn add(&mut self, counts: &Counts) {
        self.requests += counts.requests.get();
        self.missed += counts.missed.get();
        self.bytes += counts.bytes.get();
        self.missed_bytes += counts.missed_bytes.get();
        self.dropped += counts.dropped.get();
    }

    /// Returns the counts since `before`.
    pub(super) fn since(&self, before: &Totals) -> Totals {
        Totals {
            requests: self.requests.saturating_sub(before.requests),
            missed: self.missed.saturating_sub(before.missed),
            bytes: self.bytes.saturating_sub(before.bytes),
            missed_bytes: self.missed_bytes.saturating_sub(before.missed_bytes),
            dropped: self.dropped.saturating_sub(before.dropped),
        }
    }
}

/// Shares of hits, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    /// Share of the requests that were hits.
    pub requests: f64,
    /// Share of the referenced content that did not have to be fetched.
    pub bytes: f64,
}

impl Ratios {
    /// Returns the ratios of `all` references of which `missed` were no hits; `None` without references.
    pub(super) fn of(all: (f64, f64), missed: (f64, f64)) -> Option<Ratios> {
        let share = |all: f64, missed: f64| match all > 0.0 {
            true => (1.0 - missed / all).clamp(0.0, 1.0),
            false => 0.0,
        };
        (all.0 > 0.0).then(|| Ratios {
            requests: share(all.0, missed.0),
            bytes: share(all.1, missed.1),
        })
    }
}
