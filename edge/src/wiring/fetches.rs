//! Fetches that the operator orders: the number of those in progress, and the workers that carry them out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::admin::{FetchOrder, Fetched, Fetching};

/// Most fetches at a time. Further ones are refused.
pub(super) const FETCHES_MAX: usize = 4;

/// The fetches of all workers.
pub(super) struct Fetches {
    free: Arc<Semaphore>,
    workers: Mutex<Vec<mpsc::Sender<Fetch>>>,
    /// Number of fetches that began, by which the next worker is chosen.
    begun: AtomicUsize,
}

/// A fetch on its way to a worker.
pub(super) struct Fetch {
    pub(super) order: FetchOrder,
    pub(super) report: oneshot::Sender<Fetched>,
    /// Held until the fetch has ended.
    pub(super) permit: OwnedSemaphorePermit,
}

impl Default for Fetches {
    fn default() -> Fetches {
        Fetches {
            free: Arc::new(Semaphore::new(FETCHES_MAX)),
            workers: Mutex::default(),
            begun: AtomicUsize::new(0),
        }
    }
}

impl Fetches {
    /// Adds a worker, which receives fetches.
    pub(super) fn worker(&self) -> mpsc::Receiver<Fetch> {
        let (sender, receiver) = mpsc::channel(FETCHES_MAX);
        self.workers.lock().push(sender);
        receiver
    }

    /// Hands a fetch to one of the workers. Returns `None` if the largest number of fetches is in progress, or if no
    /// worker takes the fetch.
    pub(super) fn begin(&self, order: FetchOrder) -> Option<Fetching> {
        let permit = self.free.clone().try_acquire_owned().ok()?;
        let (report, fetching) = oneshot::channel();
        let fetch = Fetch {
            order,
            report,
            permit,
        };
        let workers = self.workers.lock();
        let next = self.begun.fetch_add(1, Ordering::Relaxed);
        let worker = workers.get(next % workers.len().max(1))?;
        worker.try_send(fetch).ok()?;
        Some(fetching)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::Question;

    #[test]
    fn fetches_are_spread_over_workers_and_bounded() {
        let fetches = Fetches::default();
        let order = || FetchOrder {
            question: Question::of("http://a/", ""),
            refresh: false,
        };
        assert!(fetches.begin(order()).is_none(), "there is no worker");
        let mut workers = [fetches.worker(), fetches.worker()];
        for _ in 0..FETCHES_MAX {
            assert!(fetches.begin(order()).is_some());
        }
        assert!(fetches.begin(order()).is_none());
        let fetch = workers[0].try_recv().expect("one of two");
        assert!(workers[1].try_recv().is_ok());
        drop(fetch);
        assert!(fetches.begin(order()).is_some());
    }
}
