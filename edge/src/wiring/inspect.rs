//! What the admin address sees of a running edge.

use std::sync::Arc;

use super::{Edge, Snapshot};
use crate::admin::{
    CacheState, Inspect, Numbers, ObjectState, ReloadState, ServerState, Span, Status,
    UpstreamState, UrlState,
};
use crate::http::key::KeyHash;
use crate::http::target;
use crate::http::{Method, Scheme};
use crate::store::{Object, Phase, Store, Xray};
use crate::upstream::Shared;

impl Inspect for Edge {
    fn status(&self) -> Status {
        let snapshot = self.snapshots.borrow().clone();
        let numbers = |list: Vec<_>| Numbers(list);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: (self.clock.monotonic_us() - self.began_us) / 1_000_000,
            workers: self
                .telemetry
                .workers()
                .iter()
                .map(|counters| numbers(counters.list()))
                .collect(),
            counters: numbers(self.telemetry.merged()),
            caches: snapshot
                .stores
                .iter()
                .map(|(name, (_, store))| (name.clone(), cache_state(store)))
                .collect(),
            upstreams: snapshot
                .upstreams
                .iter()
                .map(|(name, shared)| (name.clone(), upstream_state(shared)))
                .collect(),
            reload: ReloadState {
                generation: snapshot.generation,
                last_error: self.last_error.lock().clone(),
            },
        }
    }

    fn url(&self, url: &str) -> Result<Vec<UrlState>, String> {
        let key = key_of(url)?;
        let snapshot = self.snapshots.borrow().clone();
        let now_ms = self.clock.unix_ms();
        Ok(stores(&snapshot)
            .map(|(name, store)| UrlState {
                cache: name.clone(),
                objects: store
                    .enter(key.0, |locked| locked.all())
                    .iter()
                    .map(|(_, object)| object_state(object, now_ms))
                    .collect(),
            })
            .filter(|state| !state.objects.is_empty())
            .collect())
    }

    fn reload(&self) -> Result<String, String> {
        Edge::reload(self)
    }
}

fn stores(snapshot: &Snapshot) -> impl Iterator<Item = (&String, &Arc<Store>)> {
    snapshot
        .stores
        .iter()
        .map(|(name, (_, store))| (name, store))
}

/// The key of a URL, put into the same form as a request's target and host.
fn key_of(url: &str) -> Result<KeyHash, String> {
    let (scheme, rest) = match url.split_once("://") {
        Some(("http", rest)) => (Scheme::Http, rest),
        Some(("https", rest)) => (Scheme::Https, rest),
        _ => return Err("a URL begins with http:// or https://".to_owned()),
    };
    let slash = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(slash);
    let path = if path.is_empty() { "/" } else { path };
    let (mut authority, mut canonical) = (String::new(), String::new());
    target::host(host.as_bytes(), &mut authority).map_err(|e| e.word().to_owned())?;
    target::canonical(&Method::Get, path.as_bytes(), &mut canonical)
        .map_err(|e| e.word().to_owned())?;
    let (path, query) = match canonical.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (canonical.as_str(), None),
    };
    Ok(KeyHash::of(scheme, &authority, path, query))
}

fn cache_state(store: &Store) -> CacheState {
    let status = store.status();
    CacheState {
        objects: status.objects,
        bytes: status.bytes,
        limit: status.limit,
        pinned: status.pinned,
        flights: status.flights,
        evicted: status.evictions,
    }
}

fn upstream_state(shared: &Shared) -> UpstreamState {
    let servers = shared.status().into_iter().map(|server| ServerState {
        address: server.address,
        idle: server.idle,
        busy: server.busy,
        requests: server.requests,
        failures: server.failures,
    });
    UpstreamState {
        servers: servers.collect(),
    }
}

fn object_state(object: &Object, now_ms: u64) -> ObjectState {
    let Xray {
        stored,
        flights,
        length,
        ..
    } = object.xray(0);
    let mut state = ObjectState {
        length,
        stored_bytes: stored.total(),
        stored: stored
            .iter()
            .map(|range| span(range.start, range.end))
            .collect(),
        in_flight: flights
            .iter()
            .map(|claim| span(claim.at, claim.end))
            .collect(),
        ..ObjectState::default()
    };
    if let Phase::Open(head) = object.phase() {
        state.status = head.status;
        state.etag = head
            .etag
            .as_deref()
            .map(|tag| String::from_utf8_lossy(tag).into_owned());
        state.fresh_for_s = (head.fresh_until_ms as i64 - now_ms as i64) / 1000;
        if let Some(selected) = &head.vary {
            state.variant = format!("{}: {:032x}", selected.names.join(", "), selected.variant);
        }
    }
    state
}

/// Both ends included.
fn span(start: u64, end: u64) -> Span {
    Span {
        first: start,
        last: end.saturating_sub(1),
    }
}
