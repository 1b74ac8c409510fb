//! What the admin address sees of a running edge.

use std::sync::Arc;

use super::{Edge, Snapshot};
use crate::admin::{
    CacheState, Inspect, Numbers, ObjectState, ReloadState, ServerState, Span, Status,
    UpstreamState, UrlState,
};
use crate::http::date;
use crate::http::key::KeyHash;
use crate::http::target;
use crate::http::{Method, Scheme};
use crate::ranges::Ranges;
use crate::store::{Extent, Head, Object, Phase, Store};
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

/// One object, as the admin address shows it.
fn object_state(object: &Object, now_ms: u64) -> ObjectState {
    let Extent {
        stored,
        flying,
        length,
    } = object.extent();
    let mut state = ObjectState {
        length,
        ..ObjectState::default()
    };
    list_bytes(&mut state, &stored, &flying);
    describe_phase(&mut state, &object.phase(), now_ms);
    state
}

/// Lists which bytes are where. Bytes past the last known one are not called missing.
fn list_bytes(state: &mut ObjectState, stored: &Ranges, flying: &Ranges) {
    let known = stored.end().max(flying.end());
    let mut there = stored.clone();
    there.extend(flying.iter());
    let missing: Ranges = there.gaps(0..state.length.unwrap_or(known)).collect();
    state.stored_bytes = stored.total();
    state.missing_bytes = missing.total();
    for (list, ranges) in [
        (&mut state.stored, stored),
        (&mut state.in_flight, flying),
        (&mut state.missing, &missing),
    ] {
        let mut all = ranges.iter();
        list.extend(all.by_ref().take(ObjectState::SPANS_MAX).map(Span::of));
        // The lists are complete up to where the first of them has to stop.
        if let Some(left_out) = all.next() {
            let to = state.listed_to.unwrap_or(u64::MAX).min(left_out.start);
            state.listed_to = Some(to);
        }
    }
}

/// What it is, and why.
fn describe_phase(state: &mut ObjectState, phase: &Phase, now_ms: u64) {
    state.state = match phase {
        Phase::Awaiting => "awaiting",
        Phase::Open(_) => "open",
        Phase::Refused { .. } => "refused",
        Phase::Failed(_) => "failed",
    }
    .to_owned();
    match phase {
        Phase::Awaiting => {}
        Phase::Open(head) => describe_head(state, head, now_ms),
        Phase::Refused { word, until_ms } => {
            state.why = Some((*word).to_owned());
            state.refused_for_ms = Some(until_ms.saturating_sub(now_ms));
        }
        Phase::Failed(failure) => state.why = Some(failure.to_string()),
    }
}

/// What the head of its response says.
fn describe_head(state: &mut ObjectState, head: &Head, now_ms: u64) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    state.status = head.status;
    state.etag = head.etag.as_deref().map(text);
    state.last_modified = head.last_modified_s.map(|s| text(&date::format(s)));
    state.age_s = Some(head.age_ms(now_ms) / 1000);
    state.fresh_for_s = (head.fresh_until_ms as i64).saturating_sub(now_ms as i64) / 1000;
    if let Some(selected) = &head.vary {
        state.vary = selected.names.iter().map(|n| n.to_string()).collect();
        state.variant = format!("{}: {:032x}", selected.names.join(", "), selected.variant);
    }
    let obstacle = obstacle(head);
    state.joinable = Some(obstacle.is_none());
    state.why_not_joinable = obstacle.map(str::to_owned);
}

/// What keeps bytes of other responses from being put beside this one's (RFC 9111 3.4).
fn obstacle(head: &Head) -> Option<&'static str> {
    match &head.etag {
        None => Some("no ETag"),
        Some(tag) if tag.starts_with(b"W/") => Some("its ETag is weak"),
        Some(_) if head.length.is_none() => Some("its complete length is not known"),
        Some(_) => None,
    }
}
