//! Purging all caches, and the thread that goes through their stores behind purges.

use std::io;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Edge;
use super::snapshot::{Snapshot, Stored};
use crate::admin::{Order, Refusal};
use crate::cache::purge;
use crate::http::key::KeyRules;
use crate::http::purge::{Answer, Purged};
use crate::store::Swept;

/// Places gone through in one step, over all of a store's locks.
const STEP: usize = 4096;
/// After each step, so that it takes a small share of a processor.
const PAUSE: Duration = Duration::from_millis(1);
/// Between two looks at fetches that have not come to a head yet.
const WAIT: Duration = Duration::from_millis(100);

impl Edge {
    /// Purges from one cache, or from all.
    pub(super) fn purge(&self, order: &Order) -> Result<Answer, Refusal> {
        loop {
            let snapshot = self.snapshots.borrow().clone();
            let answer = snapshot.purge(order, self.clock.unix_ms())?;
            // A reload in between may have brought a store that has something already.
            if Arc::ptr_eq(&snapshot, &*self.snapshots.borrow()) {
                return Ok(answer);
            }
        }
    }
}

impl Snapshot {
    /// Stores that a reload put out of use serve for as long as there are workers busy with them:
    /// they are purged, too.
    fn purge(&self, order: &Order, now_ms: u64) -> Result<Answer, Refusal> {
        let meant = |name: &str| order.cache.as_deref().is_none_or(|only| only == name);
        let stores = || self.stores.iter().filter(|(name, _)| meant(name));
        if stores().next().is_none() {
            return Err(no_cache(self, order));
        }
        // What is wrong with one is found before anything is purged.
        for what in &order.what {
            purge::rules(what, &[KeyRules::default()]).map_err(refused)?;
        }
        let mut purged = Vec::new();
        for what in &order.what {
            for (name, stored) in stores() {
                let keys = stored.ways.all();
                let sequence = purge::purge(&stored.store, what, &keys, order.soft, now_ms);
                purged.push(Purged {
                    cache: Some(name.clone()),
                    sequence: sequence.map_err(refused)?.sequence,
                    rule: purge::canonical(what),
                    soft: order.soft,
                });
            }
            for (_, store, ways) in self.retired().filter(|(name, ..)| meant(name)) {
                purge::purge(&store, what, &ways.all(), order.soft, now_ms).map_err(refused)?;
            }
        }
        Ok(Answer { purged })
    }
}

fn refused(refusal: purge::Refusal) -> Refusal {
    Refusal {
        status: refusal.status(),
        why: refusal.to_string(),
    }
}

fn no_cache(snapshot: &Snapshot, order: &Order) -> Refusal {
    let names: Vec<&str> = snapshot.stores.keys().map(String::as_str).collect();
    let why = match &order.cache {
        None => "this edge has no cache".to_owned(),
        Some(name) => format!("there is no cache {name:?}, only: {}", names.join(", ")),
    };
    Refusal { status: 404, why }
}

impl Snapshot {
    /// Purges of its stores wake this thread.
    pub(super) fn wake(&self, sweeper: &JoinHandle<()>) {
        for Stored { store, .. } in self.stores.values() {
            store.set_sweeper(sweeper.thread().clone());
        }
    }
}

/// Starts the thread that sweeps. It has nothing to do, and no timer, until a purge wakes it; it ends
/// with the edge, once it is woken.
pub(super) fn start_sweeper(edge: Weak<Edge>) -> io::Result<JoinHandle<()>> {
    let sweep = move || {
        loop {
            let edge = edge.upgrade().filter(|edge| !*edge.stopping.borrow());
            match edge.map(|edge| sweep(&edge)) {
                None => return,
                Some(Swept::Idle) => thread::park(),
                Some(Swept::More) => thread::park_timeout(PAUSE),
                Some(Swept::Waiting) => thread::park_timeout(WAIT),
            }
        }
    };
    thread::Builder::new()
        .name("sweeper".to_owned())
        .spawn(sweep)
}

/// One step in each store that is in use, by busy workers too.
fn sweep(edge: &Edge) -> Swept {
    let snapshot = edge.snapshots.borrow().clone();
    let mut all = Swept::Idle;
    let used = snapshot.stores.values().map(|stored| stored.store.clone());
    for store in used.chain(snapshot.retired().map(|(_, store, _)| store)) {
        match store.sweep(STEP) {
            Swept::Idle => {}
            Swept::Waiting if all == Swept::More => {}
            swept => all = swept,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::http::purge::Purge;
    use crate::store::{RULES_MAX, Rule};

    /// A snapshot whose cache has these keys, behind another.
    fn snapshot(cache: &str, before: Option<&Snapshot>) -> Snapshot {
        let text = format!(
            "[upstream.o]\nservers = [\"http://127.0.0.1:9\"]\n[cache.main]\n{cache}\n\
             [[site]]\n[[site.route]]\nproxy = \"o\"\ncache = \"main\"\n"
        );
        let plan = config::parse("test.toml", &text)
            .expect("a configuration")
            .plan;
        Snapshot::build(plan, 1, before).expect("a snapshot")
    }

    fn order(what: Purge) -> Order {
        Order {
            what: vec![what],
            soft: false,
            cache: None,
        }
    }

    #[test]
    fn stores_that_busy_workers_still_have_are_purged() {
        let first = snapshot("evict = \"lru\"", None);
        let busy = first.stores["main"].store.clone();
        let second = snapshot("", Some(&first));
        let third = snapshot("query_sort = true", Some(&second));
        assert!(!Arc::ptr_eq(&busy, &third.stores["main"].store));
        assert!(Arc::ptr_eq(
            &second.stores["main"].store,
            &third.stores["main"].store
        ));
        for what in [Purge::All(true), Purge::Url("http://a/".to_owned())] {
            let before = busy.purged_upto();
            assert!(third.purge(&order(what), 0).is_ok());
            assert!(busy.purged_upto() > before);
        }
        // What is full there is said, and done here.
        for n in 0..RULES_MAX as u64 {
            let _ = busy.purge(&Rule::Tag(n), false, 0);
        }
        let store = &third.stores["main"].store;
        let before = store.purged_upto();
        let refusal = third.purge(&order(Purge::Tag("t".to_owned())), 0);
        assert_eq!(refusal.map_err(|refusal| refusal.status), Err(429));
        assert!(store.purged_upto() > before);
        // It counts no more when nobody has it.
        drop((first, busy));
        assert_eq!(third.retired().count(), 0);
    }

    #[test]
    fn a_url_stands_for_all_keys_that_were_ever_made_of_it() {
        let first = snapshot("query_sort = true", None);
        let second = snapshot("key = \"{host}{path}{query}\"", Some(&first));
        let ways = second.stores["main"].ways.all();
        assert_eq!(ways.len(), 2);
        assert!(ways[0].sort && !ways[1].is_plain());
        // Another store has nothing of that.
        let third = snapshot("evict = \"lru\"", Some(&second));
        assert_eq!(third.stores["main"].ways.all(), [KeyRules::default()]);
    }

    #[test]
    fn what_is_purged_is_told_as_it_is_compared() {
        let purged = |what| {
            let answer = snapshot("", None).purge(&order(what), 0).expect("room");
            answer.purged[0].rule.clone()
        };
        let prefix = |text: &str| Purge::Prefix(text.to_owned());
        assert_eq!(purged(prefix("//A:80/x/../%62")), prefix("//a/b"));
        let url = |text: &str| Purge::Url(text.to_owned());
        assert_eq!(purged(url("http://A:80?b")), url("http://a/?b"));
    }
}
