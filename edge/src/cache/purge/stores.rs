//! The stores of one cache: the current one, and older ones that busy workers still serve from.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::key_rules::KeyRuleHistory;
use super::queue::PurgeQueue;
use crate::store::Store;
use crate::store::disk_tier::DurablePurge;

/// All stores of one cache, each with the ways in which its keys are and were made. A reload may
/// add a new store on the same volumes. Each purge applies to all of them.
#[derive(Default)]
pub struct Stores {
    all: Mutex<Vec<(Weak<Store>, Arc<KeyRuleHistory>)>>,
    purge_queue: Arc<PurgeQueue>,
}

impl Stores {
    /// Adds a new store. From now on each purge applies to it, too. The caller then gives it the
    /// earlier purges.
    pub fn join(&self, store: &Arc<Store>, key_rules: &Arc<KeyRuleHistory>) {
        let mut all = self.all.lock();
        all.retain(|(store, _)| store.strong_count() > 0);
        all.insert(0, (Arc::downgrade(store), key_rules.clone()));
    }

    /// The stores that are still used, the newest first.
    pub fn all(&self) -> Vec<(Arc<Store>, Arc<KeyRuleHistory>)> {
        used(&self.all.lock())
    }

    /// Logs a purge in the background.
    pub(in crate::cache) fn log_in_background(&self, rule: DurablePurge) {
        self.purge_queue.log(rule);
    }

    /// Calls `work` for each store, the newest first. No store is added meanwhile.
    pub(in crate::cache) fn each<T>(
        &self,
        work: impl FnMut(&(Arc<Store>, Arc<KeyRuleHistory>)) -> T,
    ) -> Vec<T> {
        let all = self.all.lock();
        let stores = used(&all);
        let results = stores.iter().map(work).collect();
        drop(all);
        // The last reference to a store frees its whole content, which takes long, so this happens
        // after the lock is released.
        drop(stores);
        results
    }
}

fn used(all: &[(Weak<Store>, Arc<KeyRuleHistory>)]) -> Vec<(Arc<Store>, Arc<KeyRuleHistory>)> {
    let used = all.iter();
    used.filter_map(|(store, key_rules)| Some((store.upgrade()?, key_rules.clone())))
        .collect()
}
