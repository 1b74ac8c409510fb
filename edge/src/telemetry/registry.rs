//! The registry of all workers' counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::reading::{Reading, WorkerReading};
use super::table::Counters;
use crate::sys::usage::ThreadCpu;

/// The registry, which creates each worker's counters and returns all of them for reading.
#[derive(Clone, Default)]
pub struct Telemetry(Arc<Mutex<BTreeMap<usize, Registered>>>);

/// One worker.
#[derive(Clone)]
struct Registered {
    counters: Arc<Counters>,
    cpu: ThreadCpu,
}

impl Telemetry {
    /// Creates the counters of the worker with this index. Called on the worker's own thread.
    pub fn worker(&self, index: usize) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        let registered = Registered {
            counters: counters.clone(),
            cpu: ThreadCpu::of_this_thread(),
        };
        self.0.lock().insert(index, registered);
        counters
    }

    /// Reads each worker's numbers, CPU time and histograms, in the order of the workers' indexes.
    pub fn read(&self) -> Vec<WorkerReading> {
        let workers = self.0.lock().clone();
        let read = workers.values().map(|worker| {
            let mut numbers = worker.counters.numbers();
            numbers.cpu_ms = worker.cpu.read_ms().unwrap_or(0);
            Reading {
                numbers,
                measures: worker.counters.measures(),
            }
        });
        read.collect()
    }

    /// Returns each worker's counters, in the order of their indexes.
    #[cfg(test)]
    pub fn workers(&self) -> Vec<Arc<Counters>> {
        let workers = self.0.lock();
        workers.values().map(|one| one.counters.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{Numbers, WorkerNumbers};

    #[test]
    fn workers_numbers_add_up() {
        let telemetry = Telemetry::default();
        let (a, b) = (telemetry.worker(1), telemetry.worker(0));
        a.requests.add(2);
        b.requests.add(3);
        b.requests_now.add(1);
        b.requests_now.sub(1);
        let mut sum = WorkerNumbers::default();
        for worker in telemetry.workers() {
            sum.add(&worker.numbers());
        }
        assert_eq!((sum.requests, sum.requests_now), (5, 0));
        assert_eq!(telemetry.workers()[0].requests.get(), 3);
    }
}
