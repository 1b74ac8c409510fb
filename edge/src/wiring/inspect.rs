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
    ObjectState, Order, Ordered, Purging, Question, Refusal, ReloadState, ServerOrder, Status,
    UpstreamState, UrlObjects, UrlState,
};
use crate::config::RoutePlan;
use crate::files;
use crate::http::Fields;
use crate::http::key::{KeyHash, KeyRules};
use crate::http::url::Url;
use crate::http::vary::{self, Reductions};
use crate::store::{Object, Phase};
use crate::telemetry::{Histogram, Numbers, WorkerNumbers};
use crate::tls;

impl Inspect for Edge {
    fn is_admin_host(&self, name: &str) -> bool {
        let snapshot = self.snapshots.borrow().clone();
        snapshot.plan.admin_hosts.iter().any(|host| host == name)
    }

    fn admin_tls(&self) -> Option<Arc<tls::Server>> {
        self.snapshots.borrow().encryption.admin.clone()
    }

    fn note_counters(&self) {
        let workers = self.telemetry.workers();
        let (mut counters, mut durations) = (WorkerNumbers::default(), Histogram::default());
        for worker in &workers {
            counters.add(&worker.numbers());
            durations.add(&worker.request_duration.values());
        }
        let now_us = self.clock.monotonic_us();
        self.recent.note(now_us, counters, durations);
    }

    fn status(&self) -> Status {
        let snapshot = self.snapshots.borrow().clone();
        let workers = self.telemetry.workers();
        let (mut counters, mut durations) = (WorkerNumbers::default(), Histogram::default());
        let read = workers.iter().map(|worker| {
            let read = (worker.numbers(), worker.request_duration.values());
            counters.add(&read.0);
            durations.add(&read.1);
            read
        });
        let (workers, durations_by_worker) = read.unzip();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: (self.clock.monotonic_us() - self.began_us) / 1_000_000,
            workers,
            counters,
            durations: durations_by_worker,
            request_duration: durations.percentiles(),
            recent: self
                .recent
                .rates(self.clock.monotonic_us(), &counters, &durations),
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
            tls_files_refused: snapshot.encryption.refused.len() as u64,
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

    fn order_server(&self, order: &ServerOrder) -> Result<(), Refusal> {
        self.carry_out(order)
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
