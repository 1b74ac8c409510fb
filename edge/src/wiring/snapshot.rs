//! A configuration in use, with the state that survives reloads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::cache::{self, Stores, purge::KeyRuleHistory, purge::Keys};
use crate::config::{Part, Plan, RouteHandler, RoutePlan, SitePlan, Unusable};
use crate::files;
use crate::gate;
use crate::route::{Router, Site};
use crate::spool::Folder;
use crate::store::{self, Store, disk_tier};
use crate::sys::Clock;
use crate::telemetry::{AccessLog, AccessOptions, AccessWriter, Counters, RouteKey};

use super::compression::Compression;
use super::encryption::Encryption;
use super::upstreams::{self, States};
use super::volumes::{self, Open};

/// A plan in use, with its state. A reload takes over the state of everything that the new plan
/// leaves unchanged: stored responses, the statistics of servers and the open log.
pub(super) struct Snapshot {
    pub(super) plan: Plan,
    pub(super) workers: usize,
    /// Number of the snapshot: 1 at the start, and one more after each reload.
    pub(super) generation: u64,
    pub(super) volumes: Open,
    /// Generates the sequence numbers of fetches and purges. All stores share it, because a store
    /// may read data from its volumes that another store has written.
    sequence: Arc<AtomicU64>,
    pub(super) stores: BTreeMap<String, Stored>,
    /// Stores of caches that a reload removed, by cache. Busy workers may still use them.
    left_out: BTreeMap<String, Arc<Stores>>,
    pub(super) accounts: BTreeMap<String, Arc<cache::ClientBudgets>>,
    pub(super) upstreams: States,
    /// The served folders: one entry for each folder and set of options.
    pub(super) files: Vec<Arc<files::Shared>>,
    pub(super) compression: Compression,
    /// The folder of the temporary files of buffered bodies.
    pub(super) buffer_folder: Option<Arc<Folder>>,
    /// The gates of the routes. Routes with the same options share one entry.
    pub(super) gates: Vec<Arc<gate::Shared>>,
    pub(super) log: Option<Arc<Log>>,
    pub(super) encryption: Encryption,
    /// Finds the index of a request's route, counted over all sites.
    pub(super) router: Arc<Router<usize>>,
    /// The names under which each route's counters live on, by the route's index.
    pub(super) route_keys: Arc<[RouteKey]>,
    pub(super) taken_up: Arc<WorkersInUse>,
}

/// A cache's current store, and earlier stores that a reload replaced.
pub(super) struct Stored {
    pub(super) options: store::Options,
    pub(super) store: Arc<Store>,
    pub(super) volumes: Option<Arc<disk_tier::Volumes>>,
    /// The rules by which routes make this store's keys, now and before earlier reloads.
    pub(super) key_rules: Arc<KeyRuleHistory>,
    /// The current store, and replaced ones that busy workers may still use.
    pub(super) stores: Arc<Stores>,
}

impl Snapshot {
    /// Whether a gate with unchanged options has different keys for signed URLs, because the
    /// content of its key files has changed.
    pub(super) fn has_other_keys(&self, before: &Snapshot) -> bool {
        self.gates.iter().any(|gate| {
            let mut old = before.gates.iter();
            let same = old.find(|old| old.options() == gate.options());
            same.is_some_and(|old| !gate.has_keys_of(old))
        })
    }

    /// Builds a snapshot of a plan, and takes over state from the snapshot `before`.
    pub(super) fn build(
        plan: Plan,
        workers: usize,
        before: Option<&Snapshot>,
        clock: &Clock,
    ) -> anyhow::Result<Snapshot> {
        let encryption = Encryption::open(&plan, before.map(|before| &before.encryption), clock)?;
        Snapshot::with_encryption(plan, workers, before, encryption, clock)
    }

    /// Builds a snapshot like `build`, with TLS that was opened before.
    pub(super) fn with_encryption(
        plan: Plan,
        workers: usize,
        before: Option<&Snapshot>,
        encryption: Encryption,
        clock: &Clock,
    ) -> anyhow::Result<Snapshot> {
        let log = log(plan.log.access.as_ref(), before)?;
        let files = folders(&plan, before, clock)?;
        let compression = Compression::build(&plan, before.map(|before| &before.compression))?;
        let gates = gates(&plan, before)?;
        let buffer_folder = buffer_folder(&plan, before)?;
        let volumes = volumes::open(
            &plan,
            before.map(|before| (&before.plan, &before.volumes)),
            clock,
        )?;
        let sequence = before.map_or_else(
            || Arc::new(AtomicU64::new(1)),
            |before| before.sequence.clone(),
        );
        let stores: BTreeMap<String, Stored> = plan
            .caches
            .iter()
            .map(|(name, options)| {
                let kept = before.and_then(|before| {
                    let uses = &before.plan.caches.get(name)?.disk_tier;
                    let same = uses == &options.disk_tier && before.has(uses, &volumes);
                    Some((before.stores.get(name)?, same))
                });
                let its = || volumes::of_cache(name, &options.disk_tier, &volumes);
                let stores = before.and_then(|before| before.stores_of(name));
                let options = store_options(options, workers);
                let stored = stored(options, kept, its, stores.unwrap_or_default(), &sequence);
                record_key_rules(&plan, name, &stored.key_rules);
                (name.clone(), stored)
            })
            .collect();
        let left_out = before.map_or_else(BTreeMap::new, |before| before.leave_out(&stores));
        let upstreams = upstreams::states(
            &plan,
            before.map(|before| (&before.plan, &before.upstreams)),
        )?;
        let accounts = plan.caches.keys().map(|name| {
            let kept = before.and_then(|before| before.accounts.get(name).cloned());
            (name.clone(), kept.unwrap_or_default())
        });
        Ok(Snapshot {
            volumes,
            sequence,
            stores,
            left_out,
            accounts: accounts.collect(),
            upstreams,
            files,
            compression,
            buffer_folder,
            gates,
            log,
            encryption,
            generation: before.map_or(1, |before| before.generation + 1),
            taken_up: Arc::default(),
            router: Arc::new(router(&plan)),
            route_keys: route_keys(&plan),
            workers,
            plan,
        })
    }
}

impl Snapshot {
    /// Returns replaced stores that busy workers still use.
    pub(super) fn retired(&self) -> impl Iterator<Item = Arc<Store>> {
        let all = self.stores.values().map(|stored| &stored.stores);
        let in_force = |store: &Arc<Store>| {
            let mut stores = self.stores.values();
            stores.any(|stored| Arc::ptr_eq(&stored.store, store))
        };
        all.chain(self.left_out.values())
            .flat_map(|stores| stores.all())
            .map(|(store, _)| store)
            .filter(move |store| !in_force(store))
    }

    /// Returns the stores of caches that the plan no longer contains, with the caches' names.
    pub(super) fn left_out(&self) -> impl Iterator<Item = (&String, &Arc<Stores>)> {
        self.left_out.iter()
    }

    /// Returns all stores of a current or removed cache.
    fn stores_of(&self, cache: &str) -> Option<Arc<Stores>> {
        let stored = self.stores.get(cache).map(|stored| &stored.stores);
        stored.or_else(|| self.left_out.get(cache)).cloned()
    }

    /// Whether the volumes that a cache uses are the same in this snapshot and in `volumes`.
    fn has(&self, uses: &disk_tier::Options, volumes: &Open) -> bool {
        uses.volumes.iter().all(|name| {
            let (old, new) = (self.volumes.get(name), volumes.get(name));
            old.zip(new).is_some_and(|(old, new)| Arc::ptr_eq(old, new))
        })
    }

    /// Returns the stores that are still in use of caches that are not in `stores`.
    fn leave_out(&self, stores: &BTreeMap<String, Stored>) -> BTreeMap<String, Arc<Stores>> {
        let were = self.stores.iter().map(|(name, old)| (name, &old.stores));
        were.chain(&self.left_out)
            .filter(|(name, its)| !stores.contains_key(*name) && !its.all().is_empty())
            .map(|(name, its)| (name.clone(), its.clone()))
            .collect()
    }

    /// Applies the sizes and volumes of this snapshot to the stores that it took over, and its options
    /// to the conditions of servers. Called when the snapshot comes into use.
    pub(super) fn take_effect(&self, before: &Snapshot) {
        for state in self.upstreams.values() {
            state.take_effect();
        }
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
    /// Whether `next` has the same store with different volumes.
    fn is_to_change_volumes(&self, next: &Stored) -> bool {
        let pointer = |stored: &Stored| stored.volumes.as_ref().map(Arc::as_ptr);
        Arc::ptr_eq(&self.store, &next.store) && pointer(self) != pointer(next)
    }
}

/// Returns a cache's store with these options: the store of `kept` if these options allow that,
/// else a new one. The flag in `kept` says whether its volumes are kept, too; if not, `volumes`
/// provides the volumes. `stores` lists all stores of this cache.
fn stored(
    options: store::Options,
    kept: Option<(&Stored, bool)>,
    volumes: impl Fn() -> Option<Arc<disk_tier::Volumes>>,
    stores: Arc<Stores>,
    sequence: &Arc<AtomicU64>,
) -> Stored {
    let same = |is: &store::Options| {
        (is.evict, is.shards, is.block) == (options.evict, options.shards, options.block)
    };
    let (store, volumes, key_rules) = match kept.filter(|(kept, _)| same(&kept.options)) {
        Some((kept, true)) => (
            kept.store.clone(),
            kept.volumes.clone(),
            kept.key_rules.clone(),
        ),
        Some((kept, false)) => (kept.store.clone(), volumes(), kept.key_rules.clone()),
        None => {
            let volumes = volumes();
            let store = Store::named(&options, &Keys, sequence.clone());
            let key_rules = Arc::default();
            // The store joins the list first, so that no purge can miss it: each purge is either
            // applied to the new store directly or taken over from the earlier stores.
            stores.join(&store, &key_rules);
            if let Some((old, _)) = kept {
                store.succeed(&old.store);
            }
            volumes::give(&store, volumes.as_ref());
            (store, volumes, key_rules)
        }
    };
    Stored {
        options,
        store,
        volumes,
        key_rules,
        stores,
    }
}

/// Returns the served folders. Unchanged folders are taken over with their cached entries.
fn folders(
    plan: &Plan,
    before: Option<&Snapshot>,
    clock: &Clock,
) -> anyhow::Result<Vec<Arc<files::Shared>>> {
    let mut folders: Vec<Arc<files::Shared>> = Vec::new();
    for route in plan.sites.iter().flat_map(|site| &site.routes) {
        let RouteHandler::Files(options) = &route.handler else {
            continue;
        };
        let is_it = |folder: &&Arc<files::Shared>| folder.options() == &**options;
        if folders.iter().any(|folder| is_it(&folder)) {
            continue;
        }
        let kept = before.and_then(|before| before.files.iter().find(is_it));
        let folder = match kept {
            Some(kept) => kept.clone(),
            None => {
                let opened = files::Shared::open((**options).clone(), clock.clone());
                opened.map_err(|error| {
                    let what = format!("can't serve {}", options.root.display());
                    Unusable::new(Part::Folder(options.root.clone()), &what, &error)
                })?
            }
        };
        folders.push(folder);
    }
    Ok(folders)
}

/// Returns the folder of the temporary files of buffered bodies. An unchanged folder is taken over.
fn buffer_folder(plan: &Plan, before: Option<&Snapshot>) -> anyhow::Result<Option<Arc<Folder>>> {
    let Some(options) = &plan.buffers.disk else {
        return Ok(None);
    };
    let path = options.folder.as_path();
    let kept = before.and_then(|before| before.buffer_folder.as_ref());
    if let Some(kept) = kept.filter(|kept| kept.path() == path) {
        return Ok(Some(kept.clone()));
    }
    let folder = Folder::open(path).map_err(|error| {
        let what = format!(
            "can't create files of buffered bodies in {}",
            path.display()
        );
        Unusable::new(Part::BufferFolder, &what, &error)
    })?;
    Ok(Some(folder))
}

/// Returns the router of a plan.
pub(super) fn router(plan: &Plan) -> Router<usize> {
    let mut count = 0..;
    let mut site = |site: &SitePlan| Site {
        hosts: site.hosts.clone(),
        routes: site
            .routes
            .iter()
            .filter_map(|route| Some((route.matcher.clone(), count.next()?)))
            .collect(),
    };
    Router::new(plan.sites.iter().map(&mut site))
}

/// Returns the names under which the counters of each route live on over reloads.
fn route_keys(plan: &Plan) -> Arc<[RouteKey]> {
    let sites = plan.sites.iter().zip(plan.site_names());
    let of_routes =
        sites.flat_map(|(site, name)| site.routes.iter().map(move |route| (route, name.clone())));
    let caches: BTreeMap<&str, Arc<str>> = plan
        .caches
        .keys()
        .map(|name| (name.as_str(), name.as_str().into()))
        .collect();
    let named = of_routes.zip(plan.route_names());
    named
        .map(|((route, site), name)| RouteKey {
            route: name,
            site,
            cache: route.cache().and_then(|cache| caches.get(cache).cloned()),
        })
        .collect()
}

/// Returns the gates of the routes. Key files are read again. The tables of clients are taken over,
/// and routes with the same limit share one table.
pub(super) fn gates(
    plan: &Plan,
    before: Option<&Snapshot>,
) -> anyhow::Result<Vec<Arc<gate::Shared>>> {
    let mut gates: Vec<Arc<gate::Shared>> = Vec::new();
    let routes = plan.sites.iter().flat_map(|site| &site.routes);
    for options in routes.filter_map(|route| route.gate.as_deref()) {
        if gates.iter().any(|gate| gate.options() == options) {
            continue;
        }
        let old = before.map_or(&[][..], |before| &before.gates);
        let gate = gate::Shared::open(options.clone(), gates.iter().chain(old))?;
        gates.push(Arc::new(gate));
    }
    Ok(gates)
}

/// Records by which rules the routes of a plan make the keys of a cache.
fn record_key_rules(plan: &Plan, cache: &str, key_rules: &KeyRuleHistory) {
    let routes = plan.sites.iter().flat_map(|site| &site.routes);
    let its = routes.filter_map(RoutePlan::proxied);
    let its = its.filter(|proxied| proxied.cache.as_deref() == Some(cache));
    let forgotten = key_rules.take_up(its.map(|proxied| &proxied.rules.key));
    if forgotten > 0 {
        tracing::warn!(
            "cache {cache}: its keys had so many forms that {forgotten} of them are \
             forgotten: purges by URL no longer cover responses stored under these"
        );
    }
}

/// Returns the options of the store of a cache.
pub(super) fn store_options(options: &cache::Options, workers: usize) -> store::Options {
    store::Options {
        memory: options.memory,
        max_object_size: options.object_max(),
        evict: options.evict,
        block: options.fill.block,
        // There are enough shards that two workers seldom need the lock of the same one.
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
    let writer = AccessWriter::start(options).map_err(|error| {
        let what = format!("can't write the access log to {}", options.target);
        Unusable::new(Part::AccessLog, &what, &error)
    })?;
    Ok(Some(Arc::new(Log(Mutex::new(Some(writer))))))
}

/// The writer of an access log, until it is closed.
pub(super) struct Log(Mutex<Option<AccessWriter>>);

impl Log {
    /// Creates a worker's sender to the log.
    pub(super) fn worker(&self, counters: Arc<Counters>) -> AccessLog {
        match &*self.0.lock() {
            Some(writer) => writer.worker(counters),
            None => AccessLog::off(),
        }
    }

    /// Reopens the log file by its name.
    pub(super) fn reopen(&self) {
        if let Some(writer) = &*self.0.lock() {
            writer.reopen();
        }
    }

    /// Whether a worker still has a sender to the log.
    pub(super) fn is_in_use(&self) -> bool {
        self.0.lock().as_ref().is_some_and(AccessWriter::is_in_use)
    }

    /// Waits until no worker has a sender and all lines are written. Returns whether that happened
    /// within `within`.
    pub(super) fn finish(&self, within: Duration) -> bool {
        let writer = self.0.lock().take();
        writer.is_none_or(|writer| writer.finish(within))
    }
}

/// The number of workers that use a snapshot.
#[derive(Default)]
pub(super) struct WorkersInUse {
    workers: Mutex<usize>,
    changed: Condvar,
}

impl WorkersInUse {
    /// Counts one more worker.
    pub(super) fn note(&self) {
        *self.workers.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits until this many workers use the snapshot. Returns whether that happened within
    /// `within`.
    pub(super) fn wait(&self, workers: usize, within: Duration) -> bool {
        let mut count = self.workers.lock();
        !self
            .changed
            .wait_while_for(&mut count, |count| *count < workers, within)
            .timed_out()
    }
}
