//! Takes readings of all members and records them.

use std::sync::Arc;

use crate::telemetry::history::{Scope, SharedHistory, Tick, Values};
use crate::telemetry::{CacheReading, FineReading, Histogram, Measures, Numbers, Reasons};
use crate::wiring::edge::Edge;

/// Takes the readings.
pub(super) struct Recorder {
    edge: Arc<Edge>,
    history: Arc<SharedHistory>,
    refused: Refused,
}

/// The number of members that have no history because memory for it is limited.
#[derive(Default)]
struct Refused {
    fine: usize,
    coarse: usize,
    reported: usize,
}

impl Refused {
    /// Logs the number if it is higher than the last one.
    fn report(&mut self) {
        let now = self.fine + self.coarse;
        if now > self.reported {
            tracing::warn!(
                "{now} routes or other members have no history, because memory for it is limited; docs/monitoring.md says how \
                 much there is"
            );
        }
        self.reported = now;
    }
}

impl Recorder {
    /// Creates the recorder of an edge.
    pub(super) fn new(edge: Arc<Edge>, history: Arc<SharedHistory>) -> Recorder {
        Recorder {
            edge,
            history,
            refused: Refused::default(),
        }
    }

    /// Records readings of the workers, their sum and the reasons.
    pub(super) fn note_fine(&mut self, tick: &Tick) {
        let FineReading { workers, edge, .. } = self.edge.read_fine();
        let mut without = 0;
        let mut count = |noted: bool| without += usize::from(!noted);
        count(self.note(Scope::Edge, "", tick, &list(&edge.numbers), &edge.measures));
        let reasons = Reasons::names().zip(edge.measures.requests_by_reason.values());
        for (name, requests) in reasons {
            count(self.note_values(Scope::Reason, name, tick, &[*requests], &[]));
        }
        for (at, worker) in workers.iter().enumerate() {
            let (name, numbers) = (at.to_string(), list(&worker.numbers));
            count(self.note(Scope::Worker, &name, tick, &numbers, &worker.measures));
        }
        self.refused.fine = without;
    }

    /// Records readings of everything that the configuration names.
    pub(super) fn note_coarse(&mut self, tick: &Tick) {
        let all = self.edge.read_coarse();
        let mut without = 0;
        let mut count = |noted: bool| without += usize::from(!noted);
        for (name, site) in &all.sites {
            count(self.note(
                Scope::Site,
                name,
                tick,
                &list(&site.numbers),
                &site.measures,
            ));
        }
        for (name, CacheReading { numbers, traffic }) in &all.caches {
            let numbers = [list(&traffic.numbers), list(numbers)].concat();
            count(self.note(Scope::Cache, name, tick, &numbers, &traffic.measures));
        }
        for (name, volume) in &all.volumes {
            count(self.note_values(Scope::Volume, name, tick, &list(volume), &[]));
        }
        for (name, upstream) in &all.upstreams {
            let numbers = list(&upstream.numbers);
            count(self.note(Scope::Upstream, name, tick, &numbers, &upstream.measures));
        }
        for ([upstream, address], server) in &all.servers {
            let (name, numbers) = (format!("{upstream} {address}"), list(&server.numbers));
            count(self.note(Scope::Server, &name, tick, &numbers, &server.measures));
        }
        for (name, route) in &all.routes {
            count(self.note(
                Scope::Route,
                name,
                tick,
                &list(&route.numbers),
                &route.measures,
            ));
        }
        self.refused.coarse = without;
        self.refused.report();
    }

    /// Records a reading of one member. Returns whether the member has a history.
    fn note(
        &self,
        scope: Scope,
        name: &str,
        tick: &Tick,
        numbers: &[u64],
        measures: &impl Measures,
    ) -> bool {
        let histograms: Vec<&Histogram> = measures.histograms().map(|(_, one)| one).collect();
        self.note_values(scope, name, tick, numbers, &histograms)
    }

    /// Records a reading. The lock is only held for one member, so that nobody waits long for the history.
    fn note_values(
        &self,
        scope: Scope,
        name: &str,
        tick: &Tick,
        numbers: &[u64],
        histograms: &[&Histogram],
    ) -> bool {
        let values = Values {
            numbers,
            histograms,
        };
        self.history.write().note(scope, name, tick, values)
    }
}

fn list(numbers: &impl Numbers) -> Vec<u64> {
    numbers.values().collect()
}
