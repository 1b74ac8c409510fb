//! The registry of all workers' counters.

use std::sync::Arc;

use parking_lot::Mutex;

use super::table::Counters;

/// The registry, which creates each worker's counters and returns all of them for reading.
#[derive(Clone, Default)]
pub struct Telemetry(Arc<Mutex<Vec<Arc<Counters>>>>);

impl Telemetry {
    /// Creates the counters of one more worker.
    pub fn worker(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        self.0.lock().push(counters.clone());
        counters
    }

    /// Returns each worker's counters, in the order of their creation.
    pub fn workers(&self) -> Vec<Arc<Counters>> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{Numbers, WorkerNumbers};

    #[test]
    fn workers_numbers_add_up() {
        let telemetry = Telemetry::default();
        let (a, b) = (telemetry.worker(), telemetry.worker());
        a.requests.add(2);
        b.requests.add(3);
        b.requests_now.add(1);
        b.requests_now.sub(1);
        let mut sum = WorkerNumbers::default();
        for worker in telemetry.workers() {
            sum.add(&worker.numbers());
        }
        assert_eq!((sum.requests, sum.requests_now), (5, 0));
    }
}
