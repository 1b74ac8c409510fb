//! The counters of all routes and workers, which live on over reloads.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use super::metric::Numbers;
use super::reading::{Reading, RouteReading};
use super::traffic_table::{RouteCounters, RouteNumbers};
use super::turns::Turns;

/// The names under which the counters of a route live on over reloads. The number of keys is bounded by the
/// configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteKey {
    /// Name of the route. Empty for the sum over routes that no longer exist.
    pub route: Arc<str>,
    /// Name of the site. Empty for the sum over sites that no longer exist.
    pub site: Arc<str>,
    /// Name of the route's cache, if it has one.
    pub cache: Option<Arc<str>>,
}

/// Number of routes that are read in one turn, which takes up to a millisecond.
const ROUTES_PER_TURN: usize = 128;

/// The counters of all routes that got requests.
#[derive(Default)]
pub struct RouteTelemetry(Mutex<BTreeMap<RouteKey, Entry>>);

/// The counters of one route.
#[derive(Clone, Default)]
struct Entry {
    /// The counters of each worker that got a request, with the worker's index.
    workers: Vec<(usize, Arc<RouteCounters>)>,
    /// Sums of counters that no worker writes any more.
    past: Arc<RouteReading>,
}

/// The values that are read of a route's counters: a whole reading, or the numbers alone, which takes a tenth of the time.
pub trait RouteValues: Clone + Default {
    /// Adds what a worker has counted.
    fn count(&mut self, counters: &RouteCounters);

    /// Adds the sums of counters that are gone.
    fn add_past(&mut self, past: &RouteReading);

    /// Adds the values of another route.
    fn add(&mut self, other: &Self);
}

impl RouteValues for RouteNumbers {
    fn count(&mut self, counters: &RouteCounters) {
        Numbers::add(self, &counters.numbers());
    }

    fn add_past(&mut self, past: &RouteReading) {
        Numbers::add(self, &past.numbers);
    }

    fn add(&mut self, other: &RouteNumbers) {
        Numbers::add(self, other);
    }
}

impl RouteValues for RouteReading {
    fn count(&mut self, counters: &RouteCounters) {
        Reading::add(
            self,
            &Reading {
                numbers: counters.numbers(),
                measures: counters.measures(),
            },
        );
    }

    fn add_past(&mut self, past: &RouteReading) {
        Reading::add(self, past);
    }

    fn add(&mut self, other: &RouteReading) {
        Reading::add(self, other);
    }
}

/// The values of all routes of a configuration, and their sums.
#[derive(Clone, Debug, Default)]
pub struct RouteSums<V> {
    /// The values of each route, in the order of the configuration.
    pub routes: Vec<V>,
    /// Sums by site of the configuration, with routes that no longer exist.
    pub sites: BTreeMap<Arc<str>, V>,
    /// Sums by cache, with routes that no longer exist.
    pub caches: BTreeMap<Arc<str>, V>,
}

impl RouteTelemetry {
    /// Returns the counters of a route for the worker with this index. The first call creates them.
    pub fn counters(&self, key: &RouteKey, worker: usize) -> Arc<RouteCounters> {
        let mut all = self.0.lock();
        let entry = match all.get_mut(key) {
            Some(entry) => entry,
            None => all.entry(key.clone()).or_default(),
        };
        let found = entry.workers.iter().find(|(index, _)| *index == worker);
        if let Some((_, counters)) = found {
            return counters.clone();
        }
        let counters = Arc::new(RouteCounters::default());
        entry.workers.push((worker, counters.clone()));
        counters
    }

    /// Adds up the counters of routes that are not in `current` and that no worker uses any more, so that a removed route
    /// costs no memory, and the sums of its site and cache go on.
    pub fn retain(&self, current: &[RouteKey]) {
        let names = Names::of(current);
        let is_unused = |entry: &Entry| {
            let mut counters = entry.workers.iter().map(|(_, counters)| counters);
            counters.all(|counters| Arc::strong_count(counters) == 1)
        };
        let mut all = self.0.lock();
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut *all)
            .into_iter()
            .partition(|(key, entry)| names.keys.contains(key) || !is_unused(entry));
        *all = kept;
        for (key, entry) in gone {
            if let Some(key) = names.merged(key) {
                let mut past: RouteReading = entry.sum();
                let sum = all.entry(key).or_default();
                past.add_past(&sum.past);
                sum.past = Arc::new(past);
            }
        }
    }

    /// Reads the counters of all routes. `current` are the keys of the configuration, in the order of its routes. The lock
    /// is not held while the counters are read.
    pub fn read<V: RouteValues>(&self, current: &[RouteKey]) -> RouteSums<V> {
        let entries = self.0.lock().clone();
        let mut sums = RouteSums {
            routes: vec![V::default(); current.len()],
            sites: BTreeMap::new(),
            caches: BTreeMap::new(),
        };
        for key in current {
            sums.sites.entry(key.site.clone()).or_default();
        }
        let indexes: HashMap<&str, usize> = current
            .iter()
            .enumerate()
            .map(|(index, key)| (&*key.route, index))
            .collect();
        let mut turns = Turns::of(ROUTES_PER_TURN);
        for (key, entry) in entries {
            turns.step();
            let values = entry.sum::<V>();
            if let Some(index) = indexes.get(&*key.route) {
                sums.routes[*index].add(&values);
            }
            // Counters that are still in use may be those of a site that exists no longer.
            if let Some(site) = sums.sites.get_mut(&key.site) {
                site.add(&values);
            }
            if let Some(cache) = key.cache {
                sums.caches.entry(cache).or_default().add(&values);
            }
        }
        sums
    }
}

impl Entry {
    fn sum<V: RouteValues>(&self) -> V {
        let mut sum = V::default();
        sum.add_past(&self.past);
        for (_, counters) in &self.workers {
            sum.count(counters);
        }
        sum
    }
}

/// The names that a configuration has.
struct Names<'a> {
    keys: BTreeSet<&'a RouteKey>,
    routes: BTreeSet<&'a str>,
    sites: BTreeSet<&'a str>,
    caches: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    fn of(current: &'a [RouteKey]) -> Names<'a> {
        Names {
            keys: current.iter().collect(),
            routes: current.iter().map(|key| &*key.route).collect(),
            sites: current.iter().map(|key| &*key.site).collect(),
            caches: current
                .iter()
                .filter_map(|key| key.cache.as_deref())
                .collect(),
        }
    }

    /// Returns the key of the sum that counters outside of the configuration become a part of: that of their route, site
    /// and cache, as far as these still exist. `None` if none of them does.
    fn merged(&self, key: RouteKey) -> Option<RouteKey> {
        let empty_or = |name: Arc<str>, all: &BTreeSet<&str>| match all.contains(&*name) {
            true => name,
            false => "".into(),
        };
        let key = RouteKey {
            route: empty_or(key.route, &self.routes),
            site: empty_or(key.site, &self.sites),
            cache: key.cache.filter(|name| self.caches.contains(&**name)),
        };
        let exists = !key.route.is_empty() || !key.site.is_empty() || key.cache.is_some();
        exists.then_some(key)
    }
}

/// The number of no route.
const NONE: usize = usize::MAX;

/// One worker's counters of all routes of one configuration, and the route that was chosen for the last request.
pub struct WorkerRoutes {
    counters: Box<[OnceCell<Arc<RouteCounters>>]>,
    chosen: Cell<usize>,
}

/// The number of a route in `WorkerRoutes`, or of none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenRoute(usize);

impl ChosenRoute {
    /// No route.
    pub const NONE: ChosenRoute = ChosenRoute(NONE);
}

impl WorkerRoutes {
    /// Creates the list of `count` routes without counters.
    pub fn new(count: usize) -> WorkerRoutes {
        WorkerRoutes {
            counters: (0..count).map(|_| OnceCell::new()).collect(),
            chosen: Cell::new(NONE),
        }
    }

    /// Sets the counters of a route. Called before the route is chosen first.
    pub fn set(&self, route: usize, counters: Arc<RouteCounters>) {
        if let Some(cell) = self.counters.get(route) {
            // A route whose handler is built a second time after a panic keeps its counters.
            let _ = cell.set(counters);
        }
    }

    /// Notes the route that was chosen for the request that is being handled.
    #[inline]
    pub fn choose(&self, route: usize) {
        self.chosen.set(route);
    }

    /// Returns the route that was chosen since the last call.
    #[inline]
    pub fn take_chosen(&self) -> ChosenRoute {
        ChosenRoute(self.chosen.replace(NONE))
    }

    /// Returns the counters of a route.
    #[inline]
    pub fn get(&self, route: ChosenRoute) -> Option<&RouteCounters> {
        Some(self.counters.get(route.0)?.get()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(route: &str, site: &str, cache: Option<&str>) -> RouteKey {
        RouteKey {
            route: route.into(),
            site: site.into(),
            cache: cache.map(Into::into),
        }
    }

    /// Counts requests of a route that has no other user of its counters afterwards.
    fn count(telemetry: &RouteTelemetry, key: &RouteKey, worker: usize, requests: u64) {
        let counters = telemetry.counters(key, worker);
        counters.requests.add(requests);
        counters.body_size.record(10 * requests);
    }

    fn requests(sums: &BTreeMap<Arc<str>, RouteReading>) -> Vec<(&str, u64)> {
        let all = sums.iter();
        all.map(|(name, sum)| (&**name, sum.numbers.requests))
            .collect()
    }

    #[test]
    fn a_route_has_the_sum_of_all_workers_and_sites_and_caches_that_of_their_routes() {
        let telemetry = RouteTelemetry::default();
        let keys = [
            key("a /", "a", Some("c")),
            key("a /x", "a", None),
            key("b /", "b", Some("c")),
        ];
        count(&telemetry, &keys[0], 0, 1);
        count(&telemetry, &keys[0], 1, 2);
        count(&telemetry, &keys[1], 1, 4);
        count(&telemetry, &keys[0], 1, 8);
        let sums = telemetry.read::<RouteReading>(&keys);
        let routes: Vec<u64> = sums.routes.iter().map(|one| one.numbers.requests).collect();
        assert_eq!(routes, [11, 4, 0]);
        assert_eq!(sums.routes[0].measures.body_size.count(), 3);
        assert_eq!(requests(&sums.sites), [("a", 15), ("b", 0)]);
        assert_eq!(requests(&sums.caches), [("c", 11)]);
        let numbers = telemetry.read::<RouteNumbers>(&keys);
        let of_readings: Vec<_> = sums.routes.iter().map(|one| one.numbers).collect();
        assert_eq!(numbers.routes, of_readings);
        assert_eq!(numbers.sites["a"], sums.sites["a"].numbers);
        assert_eq!(numbers.caches["c"], sums.caches["c"].numbers);
    }

    #[test]
    fn sums_go_on_when_routes_are_removed_or_change_their_cache() {
        let telemetry = RouteTelemetry::default();
        let before = [
            key("a /", "a", Some("c")),
            key("a /old", "a", Some("c")),
            key("b /", "b", Some("c")),
        ];
        before.iter().for_each(|key| count(&telemetry, key, 0, 1));
        let after = [key("a /", "a", Some("d")), key("a /new", "a", Some("c"))];
        let used = telemetry.counters(&before[1], 0);
        telemetry.retain(&after);
        count(&telemetry, &after[0], 0, 10);
        used.requests.add(100);
        drop(used);
        for _ in 0..2 {
            telemetry.retain(&after);
            let sums = telemetry.read(&after);
            assert_eq!(requests(&sums.sites), [("a", 112)]);
            assert_eq!(requests(&sums.caches), [("c", 103), ("d", 10)]);
            assert_eq!(sums.routes[0].numbers.requests, 11);
            assert_eq!(sums.routes[1].numbers.requests, 0);
        }
        drop(telemetry.counters(&after[1], 0));
        let neither = [key("e /", "e", None)];
        telemetry.retain(&neither);
        assert_eq!(requests(&telemetry.read(&neither).sites), [("e", 0)]);
    }

    #[test]
    fn the_chosen_route_is_taken_once() {
        let routes = WorkerRoutes::new(2);
        assert_eq!(routes.take_chosen(), ChosenRoute::NONE);
        routes.choose(1);
        let chosen = routes.take_chosen();
        assert!(routes.get(chosen).is_none());
        routes.set(1, Arc::default());
        assert!(routes.get(chosen).is_some());
        assert_eq!(routes.take_chosen(), ChosenRoute::NONE);
    }
}
