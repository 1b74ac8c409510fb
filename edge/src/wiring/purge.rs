//! Purges of all caches and their volumes, and the background thread that removes purged objects.

use std::io;
use std::sync::Weak;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::edge::Edge;
use super::purge_logs::ToLog;
use super::snapshot::{Snapshot, Stored};
use crate::admin::{Order, Purging, Refusal};
use crate::cache::purge;
use crate::http::key::KeyRules;
use crate::http::purge::{Answer, Purged};
use crate::store::Swept;

/// Slots of the table that one step visits, summed over all shards of a store.
const STEP: usize = 4096;
/// Pause after each step, so that the thread uses only a small share of a processor.
const PAUSE: Duration = Duration::from_millis(1);
/// Time between two checks for fetches whose response head has not arrived.
const WAIT: Duration = Duration::from_millis(100);

/// Time between two checks whether volumes still contain data older than some purge.
const LATER: Duration = Duration::from_secs(10);

/// Most ids of eviction policies that are examined to count what a purge matches, so that counting
/// takes a few milliseconds at most.
const EXAMINED_MAX: usize = 1 << 16;

impl Edge {
    /// Purges one cache or all caches.
    pub(super) fn purge(&self, order: &Order) -> Result<Purging, Refusal> {
        let snapshot = self.snapshots.borrow().clone();
        let (answer, to_log) = snapshot.purge(order, self.clock.unix_ms())?;
        let logged = (!to_log.is_empty()).then(|| self.loggers.log(to_log));
        Ok(Purging { answer, logged })
    }
}

impl Snapshot {
    /// Applies a purge to all stores of the caches. Stores that a reload has replaced are included,
    /// because workers may still use them, and so are stores of a snapshot that a reload is
    /// building.
    fn purge(&self, order: &Order, now_ms: u64) -> Result<(Answer, Vec<ToLog>), Refusal> {
        let meant = |name: &str| order.cache.as_deref().is_none_or(|only| only == name);
        let stores = || self.stores.iter().filter(|(name, _)| meant(name));
        if stores().next().is_none() {
            return Err(no_cache(self, order));
        }
        // All rules are checked first, so that an invalid rule purges nothing.
        for what in &order.what {
            purge::rules(what, &[KeyRules::default()]).map_err(refused)?;
        }
        let (mut purged, mut to_log) = (Vec::new(), Vec::new());
        let examined = EXAMINED_MAX / (order.what.len() * stores().count()).max(1);
        for what in &self.with_rewritten(&order.what) {
            for (name, stored) in stores() {
                let matched = purge::matched(&stored.store, &stored.key_rules, what, examined);
                let enforced = purge::purge(&stored.stores, what, order.soft, now_ms);
                let enforced = enforced.map_err(refused)?;
                purged.push(Purged {
                    cache: Some(name.clone()),
                    sequence: enforced.sequence,
                    rule: purge::canonical(what),
                    soft: order.soft,
                    matched: matched.ok(),
                });
                if !enforced.durable.is_empty() {
                    to_log.push((name.clone(), enforced));
                }
            }
            for (_, stores) in self.left_out().filter(|(name, _)| meant(name)) {
                purge::purge(stores, what, order.soft, now_ms).map_err(refused)?;
            }
        }
        Ok((Answer { purged }, to_log))
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
        None => "this server has no cache".to_owned(),
        Some(name) => format!("there is no cache {name:?}, only: {}", names.join(", ")),
    };
    Refusal { status: 404, why }
}

impl Snapshot {
    /// Gives the sweeper thread to the stores, whose purges wake it, and wakes it now. Must be
    /// called when a new snapshot is in use, because the new snapshot may have volumes.
    pub(super) fn wake(&self, sweeper: &JoinHandle<()>) {
        for Stored { store, .. } in self.stores.values() {
            store.set_sweeper(sweeper.thread().clone());
        }
        sweeper.thread().unpark();
    }

    /// Makes the volumes of each cache record which of these volumes are unavailable. An
    /// unavailable volume misses purges, and these may be forgotten before it returns.
    pub(super) fn mark_absence(&self) {
        for Stored { store, .. } in self.stores.values() {
            store.mark_absence();
        }
    }
}

/// Starts the sweeper thread. Without volumes it has no timer and sleeps until a purge wakes it.
/// The thread ends when it is woken after the edge was dropped.
pub(super) fn start_sweeper(edge: Weak<Edge>) -> io::Result<JoinHandle<()>> {
    let sweep = move || {
        loop {
            let edge = edge.upgrade().filter(|edge| !*edge.stopping.borrow());
            match edge.map(|edge| sweep(&edge)) {
                None => return,
                Some(Swept::Idle) => thread::park(),
                Some(Swept::More) => thread::park_timeout(PAUSE),
                Some(Swept::Waiting) => thread::park_timeout(WAIT),
                Some(Swept::Later) => thread::park_timeout(LATER),
            }
        }
    };
    thread::Builder::new()
        .name("sweeper".to_owned())
        .spawn(sweep)
}

/// Removes purged objects for one step in each store in use, including replaced stores that busy
/// workers still use.
fn sweep(edge: &Edge) -> Swept {
    let snapshot = edge.snapshots.borrow().clone();
    snapshot.mark_absence();
    let mut all = Swept::Idle;
    let used = snapshot.stores.values().map(|stored| stored.store.clone());
    for store in used.chain(snapshot.retired()) {
        match store.sweep(STEP) {
            Swept::Idle => {}
            Swept::Waiting if all == Swept::More => {}
            Swept::Later if all != Swept::Idle => {}
            swept => all = swept,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config;
    use crate::http::purge::Purge;
    use crate::store::{RULES_MAX, Rule};
    use crate::sys::Clock;
    use crate::wiring::purge_logs::Loggers;

    /// Returns a snapshot whose cache has these settings, as if reloaded after `before`.
    fn snapshot(cache: &str, before: Option<&Snapshot>) -> Snapshot {
        let text = format!(
            "[upstream.o]\nservers = [\"http://127.0.0.1:9\"]\n[cache.main]\n{cache}\n\
             [[site]]\n[[site.route]]\nproxy = \"o\"\ncache = \"main\"\n"
        );
        let plan = config::parse("test.toml", &text)
            .expect("a configuration")
            .plan;
        Snapshot::build(plan, 1, before, &Clock::manual(0)).expect("a snapshot")
    }

    fn order(what: Purge) -> Order {
        Order {
            what: vec![what],
            soft: false,
            cache: None,
        }
    }

    #[test]
    fn stores_that_busy_workers_still_use_are_purged() {
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
        // A purge is refused if the table of rules of a replaced store is full, but it still takes
        // effect in the current store.
        for n in 0..RULES_MAX as u64 {
            let _ = busy.purge(&Rule::Tag(n), false, 0);
        }
        let store = &third.stores["main"].store;
        let before = store.purged_upto();
        let refused = third.purge(&order(Purge::Tag("t".to_owned())), 0);
        assert_eq!(refused.err().map(|refusal| refusal.status), Some(429));
        assert!(store.purged_upto() > before);
        // A replaced store is forgotten as soon as nothing uses it.
        drop((first, busy));
        assert_eq!(third.retired().count(), 0);
    }

    /// Returns a snapshot whose cache has a volume at this path and this eviction policy, as if
    /// reloaded after `before`.
    fn kept_by(path: &std::path::Path, evict: &str, before: Option<&Snapshot>) -> Snapshot {
        let text = format!(
            "[upstream.o]\nservers = [\"http://127.0.0.1:9\"]\n\
             [volume.disk]\npath = {path:?}\nsize = \"16MiB\"\n[cache.main]\nvolumes = [\"disk\"]\n\
             evict = {evict:?}\n[[site]]\n[[site.route]]\nproxy = \"o\"\ncache = \"main\"\n"
        );
        let plan = config::parse("test.toml", &text).expect("a plan").plan;
        Snapshot::build(plan, 1, before, &Clock::system()).expect("a snapshot")
    }

    fn kept(path: &std::path::Path) -> Snapshot {
        kept_by(path, "lru", None)
    }

    #[test]
    fn a_purge_reaches_the_store_that_a_reload_is_building() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("vol");
        let first = kept(&path);
        let purge = |tag: &str| {
            let all = first.purge(&order(Purge::Tag(tag.to_owned())), 0);
            all.expect("room").1
        };
        let log = |to_log: Vec<ToLog>| {
            assert!(to_log.iter().all(|(_, enforced)| enforced.log().is_ok()));
        };
        // The purge has not been written to the volume's log when the new store reads the log, so
        // the new store must learn of it from the old one.
        let to_log = purge("before");
        let second = kept_by(&path, "s3-fifo", Some(&first));
        let (old, new) = (&first.stores["main"].store, &second.stores["main"].store);
        assert!(!Arc::ptr_eq(old, new));
        assert_eq!((new.rules(), new.purged_upto()), (1, old.purged_upto()));
        log(to_log);
        // The new store must be purged, too, although no worker uses it yet.
        let upto = new.purged_upto();
        let to_log = purge("meanwhile");
        assert!(new.rules() == 2 && new.purged_upto() > upto);
        log(to_log);
        let upto = new.purged_upto();
        drop((first, second));
        let store = kept(&path).stores["main"].store.clone();
        assert_eq!((store.rules(), store.purged_upto()), (2, upto));
    }

    #[test]
    fn a_purge_is_logged_where_there_are_volumes() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = |snapshot: &Snapshot, what: Purge| {
            let (answer, to_log) = snapshot.purge(&order(what), 0).expect("room");
            assert_eq!(answer.purged.len(), 1);
            Loggers::default()
                .log(to_log)
                .blocking_recv()
                .expect("an answer")
        };
        let path = folder.path().join("vol");
        let first = kept(&path);
        assert_eq!(log(&first, Purge::Tag("t".to_owned())), Ok(()));
        let upto = first.stores["main"].store.purged_upto();
        drop(first);
        // A purge survives a restart, after which later purges get higher numbers.
        let second = kept(&path);
        let store = &second.stores["main"].store;
        assert!(store.purged_upto() == upto && store.moment() > upto);
        // If the disk is unavailable, the purge cannot be made durable, and the error says so.
        let out = kept(&folder.path().join("no/vol"));
        let why = log(&out, Purge::All(true)).expect_err("no volume");
        assert!(
            why.starts_with("cache main: ") && why.contains("disk is out"),
            "{why}"
        );
        let (_, to_log) = snapshot("", None)
            .purge(&order(Purge::All(true)), 0)
            .expect("room");
        assert!(to_log.is_empty());
    }

    #[test]
    fn a_url_covers_all_keys_ever_made_of_it() {
        let first = snapshot("query_sort = true", None);
        let second = snapshot("key = \"{host}{path}{query}\"", Some(&first));
        let key_rules = second.stores["main"].key_rules.all();
        assert_eq!(key_rules.len(), 2);
        assert!(key_rules[0].sort && !key_rules[1].is_plain());
        // A changed `evict` creates a new store, to which nothing was ever stored under the earlier
        // key rules.
        let third = snapshot("evict = \"lru\"", Some(&second));
        assert_eq!(third.stores["main"].key_rules.all(), [KeyRules::default()]);
    }

    #[test]
    fn the_response_contains_the_normalised_rule() {
        let purged = |what| {
            let (answer, _) = snapshot("", None).purge(&order(what), 0).expect("room");
            answer.purged[0].rule.clone()
        };
        let prefix = |text: &str| Purge::Prefix(text.to_owned());
        assert_eq!(purged(prefix("//A:80/x/../%62")), prefix("//a/b"));
        let url = |text: &str| Purge::Url(text.to_owned());
        assert_eq!(purged(url("http://A:80?b")), url("http://a/?b"));
    }
}
