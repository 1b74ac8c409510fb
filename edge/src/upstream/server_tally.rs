//! The totals of each server over all workers, which go on over reloads.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::telemetry::{Measures, Numbers, ServerCounters, ServerMeasures, ServerNumbers};

/// The counters of one address of a server. The states that reloads make of an upstream share them.
#[derive(Default)]
pub(super) struct ServerTally(Mutex<CountersOfWorkers>);

#[derive(Default)]
struct CountersOfWorkers {
    workers: Vec<Arc<ServerCounters>>,
    /// Totals of the workers that no longer use the server.
    past: ServerNumbers,
    past_measures: ServerMeasures,
}

/// The tallies of an upstream, by the address of the configured server and the address to which it leads. Only those that a
/// slot or a worker uses are kept.
#[derive(Default)]
pub(super) struct Tallies(Mutex<HashMap<[String; 2], Weak<ServerTally>>>);

impl ServerTally {
    /// Creates the counters of one more worker.
    pub(super) fn worker(&self) -> Arc<ServerCounters> {
        let counters = Arc::<ServerCounters>::default();
        self.0.lock().workers.push(counters.clone());
        counters
    }

    /// Ends the use of these counters by their worker. Their totals are kept.
    pub(super) fn end(&self, counters: &Arc<ServerCounters>) {
        let mut all = self.0.lock();
        all.workers.retain(|worker| !Arc::ptr_eq(worker, counters));
        all.past.add(&counters.numbers());
        all.past_measures.add(&counters.measures());
    }

    /// Returns the current numbers, summed over the workers.
    pub(super) fn numbers(&self) -> ServerNumbers {
        let all = self.0.lock();
        let mut sum = all.past;
        for worker in &all.workers {
            sum.add(&worker.numbers());
        }
        sum
    }

    /// Returns the durations and failures so far, summed over the workers.
    pub(super) fn measures(&self) -> ServerMeasures {
        let all = self.0.lock();
        let mut sum = all.past_measures.clone();
        for worker in &all.workers {
            sum.add(&worker.measures());
        }
        sum
    }
}

impl Tallies {
    /// Returns the tally of an address of the server that is configured as `server`.
    pub(super) fn of(&self, server: String, address: String) -> Arc<ServerTally> {
        let mut all = self.0.lock();
        let key = [server, address];
        if let Some(known) = all.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, tally| tally.strong_count() > 0);
        let tally = Arc::default();
        all.insert(key, Arc::downgrade(&tally));
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_lives_as_long_as_it_is_used() {
        let tallies = Tallies::default();
        let of = |address: &str| tallies.of("a.example:80".to_owned(), address.to_owned());
        let one = of("192.0.2.1:80");
        let counters = one.worker();
        counters.requests.add(3);
        one.end(&counters);
        one.worker().requests.add(4);
        assert_eq!(of("192.0.2.1:80").numbers().requests, 7);
        assert_eq!(of("192.0.2.2:80").numbers().requests, 0);
        drop(one);
        assert_eq!(of("192.0.2.1:80").numbers().requests, 0);
        assert!(tallies.0.lock().len() <= 2);
    }
}
