//! Purging all caches, and the thread that goes through their stores behind purges.

use std::io;
use std::sync::Weak;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Edge, Snapshot};
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
    /// Purges from one cache, or from all. Stores that a reload put out of use serve for as long as
    /// there are workers busy with them: they are purged, too.
    pub(super) fn purge(&self, order: &Order) -> Result<Answer, Refusal> {
        let snapshot = self.snapshots.borrow().clone();
        let meant = |name: &str| order.cache.as_deref().is_none_or(|only| only == name);
        let caches: Vec<_> = snapshot
            .stores
            .iter()
            .filter(|(name, _)| meant(name))
            .collect();
        if caches.is_empty() {
            return Err(no_cache(&snapshot, order));
        }
        let refused = |refusal: purge::Refusal| Refusal {
            status: refusal.status(),
            why: refusal.to_string(),
        };
        // What is wrong with one is found before anything is purged.
        for what in &order.what {
            purge::rules(what, &[KeyRules::default()]).map_err(refused)?;
        }
        let now_ms = self.clock.unix_ms();
        let mut purged = Vec::new();
        for what in &order.what {
            for (name, (_, store)) in &caches {
                let keys = keys(&snapshot, name);
                for old in snapshot.retired(name) {
                    // It is not swept: if it is full, then of workers that will never be done.
                    let _ = purge::purge(&old, what, &keys, order.soft, now_ms);
                }
                let sequence =
                    purge::purge(store, what, &keys, order.soft, now_ms).map_err(refused)?;
                purged.push(Purged {
                    cache: Some((*name).clone()),
                    sequence,
                    rule: what.clone(),
                    soft: order.soft,
                });
            }
        }
        Ok(Answer { purged })
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

/// How keys are made in the routes that use a cache.
fn keys(snapshot: &Snapshot, cache: &str) -> Vec<KeyRules> {
    let routes = snapshot.plan.sites.iter().flat_map(|site| &site.routes);
    let mut keys = vec![];
    for route in routes.filter(|route| route.cache.as_deref() == Some(cache)) {
        if !keys.contains(&route.rules.key) {
            keys.push(route.rules.key.clone());
        }
    }
    keys
}

impl Snapshot {
    /// Purges of its stores wake this thread.
    pub(super) fn wake(&self, sweeper: &JoinHandle<()>) {
        for (_, store) in self.stores.values() {
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

/// One step in each store that is in use.
fn sweep(edge: &Edge) -> Swept {
    let snapshot = edge.snapshots.borrow().clone();
    let mut all = Swept::Idle;
    for (_, store) in snapshot.stores.values() {
        match store.sweep(STEP) {
            Swept::Idle => {}
            Swept::Waiting if all == Swept::More => {}
            swept => all = swept,
        }
    }
    all
}
