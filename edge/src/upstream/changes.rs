//! The changes of an upstream's slots, which the pools of all workers follow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The changes of one upstream's slots that concern the choice of a server.
#[derive(Default)]
pub(super) struct Changes {
    version: AtomicU64,
    /// Notified after a change: one entry for each worker's pool.
    pools: Mutex<Vec<Weak<Notify>>>,
}

impl Changes {
    /// Returns the number of the last change, at least 1.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire) + 1
    }

    /// Has `pool` notified after each change.
    pub(super) fn notify(&self, pool: &Arc<Notify>) {
        let mut pools = self.pools.lock();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
    }

    /// Notes a change.
    pub(super) fn note(&self) {
        self.version.fetch_add(1, Ordering::Release);
        for pool in self.pools.lock().iter().filter_map(Weak::upgrade) {
            pool.notify_one();
        }
    }
}
