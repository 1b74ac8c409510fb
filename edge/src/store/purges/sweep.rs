//! The sweep through the store after purges. The sweep checks objects that are not looked up, a few per lock, and drops rules that are not
//! needed any more.

use std::sync::atomic::Ordering;

use super::rules::Round;
use crate::store::object_store::Store;

/// Number of objects checked while a lock is held.
const AT_ONCE: usize = 64;

/// The result of one step of the sweep: which work is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swept {
    /// Nothing is left: no rule is in force, and there are no volumes.
    Idle,
    /// The sweep is in progress.
    More,
    /// The sweep waits for fetches that began before a purge and have no head yet.
    Waiting,
    /// All objects in memory were checked; records on volumes still need the rules, so the sweep checks them from time to time.
    Later,
}

impl Store {
    /// Continues the sweep over `places` ids of the eviction policy. Removes objects that purges cover, and marks those stale that soft
    /// purges cover. At the end, drops the rules that were in force when the sweep began. No shard is locked for more than a few objects.
    pub fn sweep(&self, places: usize) -> Swept {
        let purges = &self.purges;
        let mut round = purges.round.lock();
        let now = match &mut *round {
            Some(now) => now,
            None if purges.index.read().len() == 0 => return self.swept(),
            // All objects in memory were checked; the remaining rules are needed for records on volumes.
            None if purges.swept.load(Ordering::Relaxed) >= self.purged_upto() => {
                self.drop_rules();
                return self.swept();
            }
            none => {
                let (upto, era) = purges.births.turn(&purges.latest);
                none.insert(Round {
                    sure: era.is_over(),
                    upto,
                    era,
                    shard: 0,
                    id: 0,
                })
            }
        };
        for _ in 0..places.div_ceil(AT_ONCE) {
            if now.shard == self.shards.len() {
                break;
            }
            match self.sweep_some(now.shard, now.id) {
                true => now.id += AT_ONCE,
                false => (now.shard, now.id) = (now.shard + 1, 0),
            }
        }
        if now.shard < self.shards.len() {
            return Swept::More;
        }
        if now.sure {
            purges.swept.store(now.upto, Ordering::Relaxed);
            self.drop_rules();
            *round = None;
            return Swept::More;
        }
        if !now.era.is_over() {
            return Swept::Waiting;
        }
        // Fetches from before the sweep have opened objects during this walk, so another walk checks them.
        (now.sure, now.shard, now.id) = (true, 0, 0);
        Swept::More
    }

    /// Returns the result of a sweep that has checked all objects in memory.
    fn swept(&self) -> Swept {
        match self.volumes() {
            None => Swept::Idle,
            Some(_) => Swept::Later,
        }
    }

    /// Drops the rules that nothing in memory or on volumes needs.
    fn drop_rules(&self) {
        let swept = self.purges.swept.load(Ordering::Relaxed);
        let upto = swept.min(self.oldest_on_disk().saturating_sub(1));
        let dropped = self.purges.index.write().forget(upto);
        drop(dropped);
        self.drop_logged(upto);
    }

    /// Checks the objects with some policy ids of a shard. Returns whether there are further ids.
    fn sweep_some(&self, shard: usize, from: usize) -> bool {
        let mut shard = self.shards[shard].lock();
        let open = |object: &_| !self.purges.is_settled(object);
        let Some(unsettled) = shard.those(from..from + AT_ONCE, open) else {
            return false;
        };
        let mut removed = Vec::new();
        for (table_key, object) in unsettled {
            if self.purges.judge(table_key.primary, &object) {
                removed.push((shard.remove(table_key), object));
                shard.prune(table_key.primary);
            }
        }
        drop(shard);
        drop(removed); // frees pages, so it runs after unlocking
        true
    }
}
