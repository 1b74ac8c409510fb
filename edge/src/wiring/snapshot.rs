//! One configuration in force, with what outlives it.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::{Condvar, Mutex};

use crate::cache::{self, purge::Keys, purge::Ways};
use crate::config::Plan;
use crate::store::{self, Store, kept};
use crate::sys::Clock;
use crate::telemetry::{AccessLog, AccessOptions, AccessWriter, Counters};
use crate::upstream;

use super::volumes::{self, Open};

/// A plan in force. Whatever a new plan leaves as it was is carried over, so that a reload keeps
/// what is stored, the numbers of servers and the open log.
pub(super) struct Snapshot {
    pub(super) plan: Plan,
    pub(super) workers: usize,
    /// 1 from the start, one more for each reload.
    pub(super) generation: u64,
    pub(super) volumes: Open,
    /// Numbers of fetches and purges, in all stores: one may find on volumes what another has put there.
    sequence: Arc<AtomicU64>,
    pub(super) stores: BTreeMap<String, Stored>,
    /// Stores of earlier snapshots, which busy workers may still serve from.
    retired: Vec<Retired>,
    pub(super) accounts: BTreeMap<String, Arc<cache::Accounts>>,
    pub(super) upstreams: BTreeMap<String, Arc<upstream::Shared>>,
    pub(super) log: Option<Arc<Log>>,
    pub(super) taken_up: Arc<TakenUp>,
}

/// The store of a cache.
pub(super) struct Stored {
    pub(super) options: store::Options,
    pub(super) store: Arc<Store>,
    pub(super) volumes: Option<Arc<kept::Volumes>>,
    /// How its keys are and were made.
    pub(super) ways: Arc<Ways>,
}

/// A store out of use, but for workers that are busy.
#[derive(Clone)]
struct Retired {
    cache: String,
    store: Weak<Store>,
    ways: Arc<Ways>,
}

impl Snapshot {
    /// From a plan, and from what is in force before it.
    pub(super) fn build(
        plan: Plan,
        workers: usize,
        before: Option<&Snapshot>,
        clock: &Clock,
    ) -> anyhow::Result<Snapshot> {
        let log = log(plan.log.access.as_ref(), before)?;
        let volumes = volumes::open(&plan, before, clock)?;
        let sequence = before.map_or_else(
            || Arc::new(AtomicU64::new(1)),
            |before| before.sequence.clone(),
        );
        let stores: BTreeMap<String, Stored> = plan
            .caches
            .iter()
            .map(|(name, options)| {
                let kept = before.and_then(|before| {
                    let uses = &before.plan.caches.get(name)?.kept;
                    let same = uses == &options.kept && before.has(uses, &volumes);
                    Some((before.stores.get(name)?, same))
                });
                let its = || volumes::of_cache(name, &options.kept, &volumes);
                let stored = stored(store_options(options, workers), kept, its, &sequence);
                take_up_keys(&plan, name, &stored.ways);
                (name.clone(), stored)
            })
            .collect();
        let retired = before.map_or(Vec::new(), |before| before.retire(&stores));
        let upstreams = plan.upstreams.iter().map(|(name, options)| {
            let shared = before
                .filter(|before| before.plan.upstreams.get(name) == Some(options))
                .and_then(|before| before.upstreams.get(name).cloned())
                .unwrap_or_else(|| upstream::Shared::new(name.clone(), options));
            (name.clone(), shared)
        });
        let accounts = plan.caches.keys().map(|name| {
            let kept = before.and_then(|before| before.accounts.get(name).cloned());
            (name.clone(), kept.unwrap_or_default())
        });
        Ok(Snapshot {
            volumes,
            sequence,
            stores,
            retired,
            accounts: accounts.collect(),
            upstreams: upstreams.collect(),
            log,
            generation: before.map_or(1, |before| before.generation + 1),
            taken_up: Arc::default(),
            workers,
            plan,
        })
    }
}

impl Snapshot {
    /// Stores that are out of use, but for workers that are busy: of which cache, and how their keys
    /// were made.
    pub(super) fn retired(&self) -> impl Iterator<Item = (&str, Arc<Store>, &Ways)> {
        self.retired.iter().filter_map(|retired| {
            let store = retired.store.upgrade()?;
            Some((&*retired.cache, store, &*retired.ways))
        })
    }

    /// Whether these are the volumes that a cache uses.
    fn has(&self, uses: &kept::Options, volumes: &Open) -> bool {
        uses.volumes.iter().all(|name| {
            let (old, new) = (self.volumes.get(name), volumes.get(name));
            old.zip(new).is_some_and(|(old, new)| Arc::ptr_eq(old, new))
        })
    }

    /// What is out of use where these stores are in use.
    fn retire(&self, stores: &BTreeMap<String, Stored>) -> Vec<Retired> {
        let mut retired = self.retired.clone();
        retired.retain(|retired| retired.store.strong_count() > 0);
        for (name, old) in &self.stores {
            let new = stores.get(name);
            if new.is_none_or(|new| !Arc::ptr_eq(&new.store, &old.store)) {
                retired.push(Retired {
                    cache: name.clone(),
                    store: Arc::downgrade(&old.store),
                    ways: old.ways.clone(),
                });
            }
        }
        retired
    }

    /// It is in force: stores that were kept take up the sizes and volumes it says.
    pub(super) fn take_effect(&self, before: &Snapshot) {
        for (name, stored) in &self.stores {
            stored.store.resize(&stored.options);
            let old = before.stores.get(name);
            if old.is_some_and(|old| old.is_to_change_volumes(stored)) {
                volumes::give(&stored.store, stored.volumes.as_ref());
            }
        }
    }
}

impl Stored {
    /// Whether the same store has other volumes in `next`.
    fn is_to_change_volumes(&self, next: &Stored) -> bool {
        let pointer = |stored: &Stored| stored.volumes.as_ref().map(Arc::as_ptr);
        Arc::ptr_eq(&self.store, &next.store) && pointer(self) != pointer(next)
    }
}

/// A store with these options: the one that was there, unless they need another. `kept`: that one, and
/// whether its volumes are to stay, too; else `volumes` gives others.
fn stored(
    options: store::Options,
    kept: Option<(&Stored, bool)>,
    volumes: impl Fn() -> Option<Arc<kept::Volumes>>,
    sequence: &Arc<AtomicU64>,
) -> Stored {
    let same = |is: &store::Options| {
        (is.evict, is.shards, is.block) == (options.evict, options.shards, options.block)
    };
    let (store, volumes, ways) = match kept.filter(|(kept, _)| same(&kept.options)) {
        Some((kept, true)) => (kept.store.clone(), kept.volumes.clone(), kept.ways.clone()),
        Some((kept, false)) => (kept.store.clone(), volumes(), kept.ways.clone()),
        None => {
            let volumes = volumes();
            let store = Store::named(&options, &Keys, sequence.clone());
            if let Some((old, _)) = kept {
                store.succeed(&old.store);
            }
            volumes::give(&store, volumes.as_ref());
            (store, volumes, Arc::default())
        }
    };
    Stored {
        options,
        store,
        volumes,
        ways,
    }
}

/// Notes how the routes of a plan make the keys of a cache.
fn take_up_keys(plan: &Plan, cache: &str, ways: &Ways) {
    let routes = plan.sites.iter().flat_map(|site| &site.routes);
    let its = routes.filter(|route| route.cache.as_deref() == Some(cache));
    let forgotten = ways.take_up(its.map(|route| &route.rules.key));
    if forgotten > 0 {
        tracing::warn!(
            "cache {cache}: its keys were made in so many ways that {forgotten} of them are \
             forgotten: purges by URL no longer reach what was stored under these"
        );
    }
}

fn store_options(options: &cache::Options, workers: usize) -> store::Options {
    store::Options {
        memory: options.memory,
        object: match options.object {
            0 => options.memory / 4,
            bytes => bytes,
        },
        evict: options.evict,
        block: options.fill.block,
        // Enough that two workers seldom want the same one.
        shards: match workers {
            1 => 1,
            many => (4 * many).next_power_of_two().min(64),
        },
    }
}

fn log(
    options: Option<&AccessOptions>,
    before: Option<&Snapshot>,
) -> anyhow::Result<Option<Arc<Log>>> {
    let Some(options) = options else {
        return Ok(None);
    };
    if let Some(log) = before.and_then(|before| before.log.clone())
        && before.and_then(|before| before.plan.log.access.as_ref()) == Some(options)
    {
        return Ok(Some(log));
    }
    let writer = AccessWriter::start(options)
        .with_context(|| format!("can't write the access log to {}", options.target))?;
    Ok(Some(Arc::new(Log(Mutex::new(Some(writer))))))
}

/// The access log's writer, until it is finished.
pub(super) struct Log(Mutex<Option<AccessWriter>>);

impl Log {
    /// One more worker's end.
    pub(super) fn worker(&self, counters: Arc<Counters>) -> AccessLog {
        match &*self.0.lock() {
            Some(writer) => writer.worker(counters),
            None => AccessLog::off(),
        }
    }

    /// Opens the file by its name again.
    pub(super) fn reopen(&self) {
        if let Some(writer) = &*self.0.lock() {
            writer.reopen();
        }
    }

    /// Waits until all is written, once every worker's end is gone; says whether it was in time.
    pub(super) fn finish(&self, within: Duration) -> bool {
        let writer = self.0.lock().take();
        writer.is_none_or(|writer| writer.finish(within))
    }
}

/// Counts the workers that serve by a snapshot.
#[derive(Default)]
pub(super) struct TakenUp {
    workers: Mutex<usize>,
    changed: Condvar,
}

impl TakenUp {
    /// One more worker does.
    pub(super) fn note(&self) {
        *self.workers.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits until so many do; says whether they did in time.
    pub(super) fn wait(&self, workers: usize, within: Duration) -> bool {
        let mut count = self.workers.lock();
        !self
            .changed
            .wait_while_for(&mut count, |count| *count < workers, within)
            .timed_out()
    }
}
