//! Collects the state of a running Sluice for the admin API.

pub(super) mod object;
mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;

use object::object_state;

use super::edge::Edge;
use super::preview::{self, request::fields};
use super::snapshot::Snapshot;
use crate::admin::{
    CertificateOrder, Certificates, Explanation, FetchOrder, Fetching, FilesState, Inspect,
    ObjectState, Order, Ordered, Price, Purging, Question, Refusal, ReloadState, ServerExchanges,
    ServerOrder, Status, Tokens, UpstreamState, UrlObjects, UrlState, WhatIf,
};
use crate::config::RoutePlan;
use crate::files;
use crate::http::Fields;
use crate::http::key::{KeyHash, KeyRules};
use crate::http::url::Url;
use crate::http::vary::{self, Reductions};
use crate::store::{Object, Phase};
use crate::sys;
use crate::telemetry::history::SharedHistory;
use crate::telemetry::{FineReading, Observed, RouteNumbers, RouteSums, WorkerReading};
use crate::tls;

impl Inspect for Edge {
    fn history(&self) -> Option<Arc<SharedHistory>> {
        self.history.clone()
    }

    fn is_admin_host(&self, name: &str) -> bool {
        let snapshot = self.snapshots.borrow().clone();
        snapshot.plan.admin_hosts.iter().any(|host| host == name)
    }

    fn price(&self) -> Price {
        self.snapshots.borrow().plan.price.clone()
    }

    fn host_name(&self) -> String {
        sys::host_name().unwrap_or_default()
    }

    fn admin_tokens(&self) -> Arc<Tokens> {
        self.snapshots.borrow().plan.admin_tokens.clone()
    }

    fn now_us(&self) -> u64 {
        self.clock.monotonic_us()
    }

    fn admin_tls(&self) -> Option<Arc<tls::Server>> {
        self.snapshots.borrow().encryption.admin.clone()
    }

    fn observed(&self) -> &Observed {
        &self.observed
    }

    fn note_counters(&self) {
        let mut edge = WorkerReading::default();
        for worker in self.telemetry.read() {
            edge.add(&worker);
        }
        let now_us = self.clock.monotonic_us();
        let now_s = u32::try_from(now_us / 1_000_000).unwrap_or(u32::MAX);
        for stored in self.snapshots.borrow().stores.values() {
            stored.store.note_time(now_s);
        }
        let durations = edge.measures.request_duration;
        self.recent.note(now_us, edge.numbers, durations);
    }

    fn status(&self) -> Status {
        let snapshot = self.snapshots.borrow().clone();
        let FineReading {
            at_us,
            process,
            workers,
            edge,
        } = self.read_fine();
        let durations = &edge.measures.request_duration;
        let recent = self.recent.rates(at_us, &edge.numbers, durations);
        let sums = self.routes.read::<RouteNumbers>(&snapshot.route_keys);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: process.uptime_seconds,
            process,
            workers: workers.iter().map(|worker| worker.numbers).collect(),
            measures_by_worker: workers.into_iter().map(|worker| worker.measures).collect(),
            counters: edge.numbers,
            measures: edge.measures,
            recent,
            routes: routes(&snapshot, &sums),
            sites: named_numbers(&sums.sites),
            cache_traffic: named_numbers(&sums.caches),
            caches: snapshot
                .stores
                .iter()
                .map(|(name, stored)| (name.clone(), stored.store.numbers()))
                .collect(),
            buffers: self.buffers.numbers(),
            compress: snapshot.compression.numbers(),
            volumes: snapshot
                .volumes
                .iter()
                .map(|(name, volume)| volume::volume_state(name, volume, &snapshot.plan))
                .collect(),
            files: snapshot
                .files
                .iter()
                .map(|files| files_state(files))
                .collect(),
            upstreams: self.upstream_states(),
            reload: ReloadState {
                generation: snapshot.generation,
                last_error: self.last_error.lock().clone(),
            },
            certificates: self.certificate_states().shortened(),
            tls_files_refused: process.tls_files_refused,
        }
    }

    fn url(&self, url: &str, headers: &str) -> Result<UrlObjects, String> {
        let url = Url::parse(url)?;
        let fields = fields(headers)?;
        let snapshot = self.snapshots.borrow().clone();
        let (now_ms, now_us) = (self.clock.unix_ms(), self.clock.monotonic_us());
        let urls: Vec<Url> = snapshot.rewritten(&url).into_iter().chain([url]).collect();
        let url_keys = |name: &str| {
            let keys = urls.iter().map(|url| keys(&snapshot, name, url, &fields));
            keys.flatten().collect::<Vec<_>>()
        };
        let states = snapshot.stores.iter().map(|(name, stored)| UrlState {
            cache: name.clone(),
            objects: url_keys(name)
                .iter()
                .flat_map(|(key, rules)| {
                    let objects = stored.store.enter(key.0, |locked| locked.all());
                    let states = objects.into_iter().map(|(_, object)| ObjectState {
                        selected: selects(*key, rules, &object, &fields),
                        ..object_state(&object, now_ms, now_us)
                    });
                    states.collect::<Vec<_>>()
                })
                .collect(),
        });
        let caches: Vec<_> = states.filter(|state| !state.objects.is_empty()).collect();
        Ok(UrlObjects {
            note: caches
                .is_empty()
                .then(|| note(&snapshot, &urls[urls.len() - 1])),
            caches,
        })
    }

    fn explain(&self, question: &Question) -> Result<Explanation, String> {
        let snapshot = self.snapshots.borrow().clone();
        preview::explain(&snapshot, &self.clock, question)
    }

    fn fetch(&self, order: FetchOrder) -> Result<Fetching, Refusal> {
        Edge::fetch(self, order)
    }

    fn purge(&self, order: &Order) -> Result<Purging, Refusal> {
        Edge::purge(self, order)
    }

    fn upstreams(&self) -> BTreeMap<String, UpstreamState> {
        self.upstream_states()
    }

    fn exchanges(&self, upstream: &str) -> Result<ServerExchanges, Refusal> {
        self.server_exchanges(upstream)
    }

    fn order_server(&self, order: &ServerOrder) -> Result<(), Refusal> {
        self.carry_out(order)
    }

    fn what_if(&self) -> WhatIf {
        self.simulated()
    }

    fn certificates(&self) -> Certificates {
        self.certificate_states()
    }

    fn order_certificate(&self, order: &CertificateOrder) -> Result<Ordered, Refusal> {
        self.carry_out_about_certificate(order)
    }

    fn reload(&self) -> Result<String, String> {
        Edge::reload(self)
    }
}

/// Returns the numbers of each route that got a request, by its name.
fn routes(snapshot: &Snapshot, sums: &RouteSums<RouteNumbers>) -> Vec<(Arc<str>, RouteNumbers)> {
    let names = snapshot.route_keys.iter().map(|key| key.route.clone());
    names
        .zip(sums.routes.iter().copied())
        .filter(|(_, numbers)| numbers.requests > 0)
        .collect()
}

/// Returns the numbers of sites or caches that exist, by name.
fn named_numbers(sums: &BTreeMap<Arc<str>, RouteNumbers>) -> BTreeMap<String, RouteNumbers> {
    let named = sums.iter().filter(|(name, _)| !name.is_empty());
    named.map(|(name, sum)| (name.to_string(), *sum)).collect()
}

/// Explains why a URL has no objects, as far as its route shows.
fn note(snapshot: &Snapshot, url: &Url) -> String {
    let mut target = url.path.clone();
    if let Some(query) = &url.query {
        target = format!("{target}?{query}");
    }
    let host = url.authority.to_ascii_lowercase();
    let index = snapshot.router.find(&host, &target).copied();
    let mut routes = snapshot.plan.sites.iter().flat_map(|site| &site.routes);
    let Some(route) = index.and_then(|index| routes.nth(index)) else {
        return "no route matches this URL: requests for it get 404".to_owned();
    };
    let Some(proxied) = route.proxied() else {
        return "the route of this URL has no cache: it serves files or an answer of its own"
            .to_owned();
    };
    let key = &proxied.rules.key;
    match proxied.cache.is_some() {
        false => "the route of this URL has no cache: every request goes to the origin".to_owned(),
        true if key.needs_fields() => {
            "the key contains headers or cookies: give those of the client with -H \"NAME: VALUE\""
                .to_owned()
        }
        true => "write scheme, host, port and query as clients send them; an object on a volume is found after its first \
                 request since the last restart"
            .to_owned(),
    }
}

/// Returns whether a request with these headers selects the variant in an object (RFC 9111 4.1).
/// Returns `None` without headers, and without Vary.
fn selects(key: KeyHash, rules: &KeyRules, object: &Object, fields: &Fields) -> Option<bool> {
    let Phase::Open(head) = object.phase() else {
        return None;
    };
    let selected = head.vary.as_ref().filter(|_| !fields.is_empty())?;
    let normal = Reductions {
        codings: None,
        languages: &rules.languages,
    };
    let mut text = Vec::new();
    vary::select(&selected.names, fields, normal, &mut text);
    Some(key.variant(&text).0 == selected.variant)
}

/// Returns the keys that the routes of a cache make of a URL and these request headers, now and before
/// earlier reloads, each with its rules.
fn keys(snapshot: &Snapshot, cache: &str, url: &Url, fields: &Fields) -> Vec<(KeyHash, KeyRules)> {
    let routes = snapshot.plan.sites.iter().flat_map(|site| &site.routes);
    let own = routes.filter_map(RoutePlan::proxied);
    let own = own.filter(|proxied| proxied.cache.as_deref() == Some(cache));
    let rules = own.map(|proxied| proxied.rules.key.clone());
    let earlier = snapshot
        .stores
        .get(cache)
        .map(|stored| stored.key_rules.all());
    let mut keys = Vec::new();
    for rules in rules.chain(earlier.into_iter().flatten()) {
        let (host, path, query) = (&url.authority, &url.path, url.query.as_deref());
        let key = rules.hash(url.scheme, host, path, query, fields);
        if keys.iter().all(|(known, _)| *known != key) {
            keys.push((key, rules));
        }
    }
    keys
}

fn files_state(files: &files::Shared) -> FilesState {
    FilesState {
        root: files.options().root.display().to_string(),
        numbers: files.numbers(),
    }
}
