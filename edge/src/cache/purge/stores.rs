//! The stores of one cache: the one in force, and those before it that busy workers still serve from.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::queue::PurgeQueue;
use super::ways::Ways;
use crate::store::Store;
use crate::store::disk_tier::DurablePurge;

/// All stores of one cache, each with how its keys are and were made. A reload may bring a new one on
/// the same volumes; what is purged from one of them is purged from all.
#[derive(Default)]
pub struct Stores {
    all: Mutex<Vec<(Weak<Store>, Arc<Ways>)>>,
    purge_queue: Arc<PurgeQueue>,
}

impl Stores {
    /// There is a new one. What is purged from now on is purged from it, too; after that it has to be
    /// told what was purged before.
    pub fn join(&self, store: &Arc<Store>, ways: &Arc<Ways>) {
        let mut all = self.all.lock();
        all.retain(|(store, _)| store.strong_count() > 0);
        all.insert(0, (Arc::downgrade(store), ways.clone()));
    }

    /// Those that are still used, the newest first.
    pub fn all(&self) -> Vec<(Arc<Store>, Arc<Ways>)> {
        used(&self.all.lock())
    }

    /// Has a rule logged for which nobody waits.
    pub(in crate::cache) fn log_in_background(&self, rule: DurablePurge) {
        self.purge_queue.log(rule);
    }

    /// Does something to each of them, the newest first. None joins meanwhile.
    pub(in crate::cache) fn each<T>(
        &self,
        work: impl FnMut(&(Arc<Store>, Arc<Ways>)) -> T,
    ) -> Vec<T> {
        let all = self.all.lock();
        let stores = used(&all);
        let results = stores.iter().map(work).collect();
        drop(all);
        // Only now: the last one to have a store frees all that is in it.
        drop(stores);
        results
    }
}

fn used(all: &[(Weak<Store>, Arc<Ways>)]) -> Vec<(Arc<Store>, Arc<Ways>)> {
    let used = all.iter();
    used.filter_map(|(store, ways)| Some((store.upgrade()?, ways.clone())))
        .collect()
}
