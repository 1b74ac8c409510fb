//! The queue of purges caused by unsafe requests, which are logged in the background, one after
//! another.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::disk_tier::DurablePurge;

/// Largest number of purges in the queue.
const WAITING_MAX: usize = 1024;

/// Purges of one cache that wait to be logged.
#[derive(Default)]
pub(in crate::cache) struct PurgeQueue(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    rules: VecDeque<DurablePurge>,
    /// Whether a thread is working on the queue.
    is_at_work: bool,
    is_full: bool,
}

impl PurgeQueue {
    /// Queues a purge to be logged in the background.
    pub(in crate::cache) fn log(self: &Arc<Self>, rule: DurablePurge) {
        if self.add(rule) {
            let queue = self.clone();
            tokio::task::spawn_blocking(move || queue.work());
        }
    }

    /// Adds a purge. Returns whether the caller must start `work`. A queued purge with the same
    /// rule is replaced by the newer one.
    fn add(&self, rule: DurablePurge) -> bool {
        let mut waiting = self.0.lock();
        if let Some(old) = waiting.rules.iter_mut().find(|old| rule.repeats(old)) {
            *old = rule;
        } else if waiting.rules.len() < WAITING_MAX {
            waiting.rules.push_back(rule);
        } else if !std::mem::replace(&mut waiting.is_full, true) {
            tracing::warn!(
                "volumes are too slow to log all invalidations by unsafe requests: \
                 a restart may restore some invalidated responses"
            );
        }
        !std::mem::replace(&mut waiting.is_at_work, true)
    }

    /// Logs all queued purges. Blocks on disks.
    fn work(&self) {
        while let Some(rule) = self.next() {
            // The rule is in force even if logging fails.
            let _ = rule.log();
        }
    }

    fn next(&self) -> Option<DurablePurge> {
        let mut waiting = self.0.lock();
        let next = waiting.rules.pop_front();
        if next.is_none() {
            (waiting.is_at_work, waiting.is_full) = (false, false);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evict;
    use crate::store::disk_tier::{Options, Volumes};
    use crate::store::{self, Rule, Store};

    #[test]
    fn the_queue_is_bounded_and_holds_each_rule_once() {
        let store = Store::new(&store::Options {
            memory: 1 << 20,
            max_object_size: 1 << 20,
            evict: evict::Kind::default(),
            shards: 1,
            block: 1 << 20,
        });
        let none = Volumes::new(&Options::default(), Vec::new(), 7);
        store.set_volumes(Some(none)).expect("few purges");
        let rule = |name: usize, number| {
            let rule = Rule::Resource(name as u128);
            store.durable_purge(&rule, None, number).expect("volumes")
        };
        let queue = PurgeQueue::default();
        assert!(queue.add(rule(0, 1)));
        assert!(!queue.add(rule(0, 2)));
        assert_eq!(queue.0.lock().rules.len(), 1);
        for name in 1..WAITING_MAX + 5 {
            assert!(!queue.add(rule(name, 3)));
        }
        assert_eq!(queue.0.lock().rules.len(), WAITING_MAX);
        assert_eq!(queue.next().map(|first| first.number()), Some(2));
        queue.work();
        let waiting = queue.0.lock();
        assert!(waiting.rules.is_empty() && !waiting.is_at_work && !waiting.is_full);
        drop(waiting);
        assert!(
            queue.add(rule(0, 4)),
            "the caller must start the work again"
        );
    }
}
