//! Takes readings of all members and records them.

use super::Collector;
use crate::telemetry::Numbers;
use crate::telemetry::history::{Scope, Tick, Values};

/// The number of members that have no history because memory for it is limited.
#[derive(Default)]
pub(super) struct Refused {
    now: usize,
    reported: usize,
}

impl Refused {
    /// Logs the number since the last report if it is another one.
    pub(super) fn report(&mut self) {
        let now = std::mem::take(&mut self.now);
        if now > self.reported {
            tracing::warn!(
                "{now} routes or servers have no history, because memory for it is limited"
            );
        }
        self.reported = now;
    }
}

impl Collector {
    pub(super) fn note_fine(&self, tick: &Tick, refused: &mut Refused) {
        let mut edge = crate::telemetry::WorkerNumbers::default();
        for (at, worker) in self.edge.telemetry.workers().iter().enumerate() {
            let numbers = worker.numbers();
            edge.add(&numbers);
            let durations = worker.request_duration.values();
            self.note(
                Scope::Worker,
                &at.to_string(),
                tick,
                (numbers.values(), [&durations]),
                refused,
            );
        }
        self.note(Scope::Edge, "", tick, (edge.values(), []), refused);
    }

    pub(super) fn note_coarse(&self, _tick: &Tick, _refused: &mut Refused) {}

    fn note<'a>(
        &self,
        scope: Scope,
        name: &str,
        tick: &Tick,
        (numbers, histograms): (
            impl Iterator<Item = u64>,
            impl IntoIterator<Item = &'a crate::telemetry::Histogram>,
        ),
        refused: &mut Refused,
    ) {
        let numbers: Vec<u64> = numbers.collect();
        let histograms: Vec<_> = histograms.into_iter().collect();
        let values = Values {
            numbers: &numbers,
            histograms: &histograms,
        };
        if !self.history.write().note(scope, name, tick, values) {
            refused.now += 1;
        }
    }
}
