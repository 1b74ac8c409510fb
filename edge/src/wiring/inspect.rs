//! Collects the state of a running Sluice for the admin API.

mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::edge::Edge;
use super::snapshot::Snapshot;
use crate::admin::{
    CertificateOrder, Certificates, DecisionState, FilesState, FlightState, Inspect, ObjectPhase,
    ObjectState, OnVolume, Order, Ordered, Price, Purging, Refusal, ReloadState, ServerOrder, Span,
    Status, UpstreamState, UrlObjects, UrlState,
};
use crate::config::RoutePlan;
use crate::files;
use crate::http::Fields;
use crate::http::date;
use crate::http::fields::{is_field_value, is_token};
use crate::http::key::{KeyHash, KeyRules};
use crate::http::url::Url;
use crate::http::vary::{self, Reductions};
use crate::ranges::Ranges;
use crate::store::{Claim, Decision, Head, Object, Phase};
use crate::sys;
use crate::telemetry::{Histogram, Numbers, WorkerNumbers};
use crate::tls;

impl Inspect for Edge {
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

/// Parses lines of request headers.
fn fields(lines: &str) -> Result<Fields, String> {
    let mut fields = Fields::new();
    for line in lines.lines() {
        let (name, value) = line.split_once(':').unwrap_or_default();
        let (name, value) = (name.trim(), value.trim());
        if !is_token(name.as_bytes()) || !is_field_value(value.as_bytes()) {
            return Err("a header is written as in Accept-Language: de".to_owned());
        }
        fields.append(name, value);
    }
    Ok(fields)
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

/// Age of a response, in microseconds, below which its transfer rate is not meaningful.
const RATE_AFTER_US: u64 = 50_000;

/// Returns an object's state for the admin API.
fn object_state(object: &Object, now_ms: u64, now_us: u64) -> ObjectState {
    let snapshot = object.snapshot();
    let mut state = ObjectState {
        length: snapshot.length,
        generation: (snapshot.generation != 0).then(|| format!("{:016x}", snapshot.generation)),
        flights: snapshot
            .flights
            .iter()
            .map(|claim| flight_state(claim, snapshot.length, now_us))
            .collect(),
        decisions: snapshot
            .decisions
            .iter()
            .map(|decision| decision_state(decision, now_ms))
            .collect(),
        ..ObjectState::default()
    };
    let in_flight = |claim: &Claim| claim.at..end(claim, snapshot.length);
    let flying = snapshot.flights.iter().map(in_flight).collect();
    list_bytes(
        &mut state,
        &snapshot.stored,
        &flying,
        &snapshot.missing,
        &snapshot.on_disk,
    );
    describe_phase(&mut state, &object.phase(), now_ms);
    state
}

/// Returns the end of a flight's claim, or of the object if the claim has no known end.
fn end(claim: &Claim, length: Option<u64>) -> u64 {
    claim.end.min(length.unwrap_or(u64::MAX))
}

fn flight_state(claim: &Claim, length: Option<u64>, now_us: u64) -> FlightState {
    let since = |us: u64| now_us.saturating_sub(us);
    let received = u128::from(claim.at.saturating_sub(claim.start));
    let rate = |us: u64| (received * 1_000_000 / u128::from(us)) as u64;
    FlightState {
        first: claim.start,
        next: claim.at,
        last: Span::of(claim.start..end(claim, length)).last,
        rate: claim
            .head_us
            .map(since)
            .filter(|us| *us >= RATE_AFTER_US)
            .map(rate),
        age_ms: since(claim.begun_us) / 1000,
        idle_ms: since(claim.progress_us) / 1000,
        head: claim.head_us.is_some(),
    }
}

fn decision_state(decision: &Decision, now_ms: u64) -> DecisionState {
    DecisionState {
        unix_ms: decision.unix_ms,
        ago_ms: now_ms.saturating_sub(decision.unix_ms),
        want: Span::of(decision.want.clone()),
        what: decision.kind.text().to_owned(),
        ranges: decision.ranges.iter().cloned().map(Span::of).collect(),
        why: decision.why.to_string(),
    }
}

/// Lists which bytes are stored, on volumes, in flight and missing.
fn list_bytes(
    state: &mut ObjectState,
    stored: &Ranges,
    flying: &Ranges,
    missing: &Ranges,
    volumes: &[(String, Ranges)],
) {
    state.stored_bytes = stored.total();
    state.missing_bytes = missing.total();
    state.volumes = volumes
        .iter()
        .map(|(name, ranges)| OnVolume {
            volume: name.clone(),
            stored: Vec::new(),
            stored_bytes: ranges.total(),
        })
        .collect();
    let on_volumes = state.volumes.iter_mut().map(|its| &mut its.stored);
    let on_volumes = on_volumes.zip(volumes.iter().map(|(_, ranges)| ranges));
    let here = [
        (&mut state.stored, stored),
        (&mut state.in_flight, flying),
        (&mut state.missing, missing),
    ];
    for (list, ranges) in here.into_iter().chain(on_volumes) {
        let mut all = ranges.iter();
        list.extend(all.by_ref().take(ObjectState::SPANS_MAX).map(Span::of));
        // Each list is cut after `SPANS_MAX` spans. `listed_to` is the offset up to which all lists
        // are complete.
        if let Some(left_out) = all.next() {
            let to = state.listed_to.unwrap_or(u64::MAX).min(left_out.start);
            state.listed_to = Some(to);
        }
    }
}

/// Sets an object's phase, and the reason for it.
fn describe_phase(state: &mut ObjectState, phase: &Phase, now_ms: u64) {
    state.state = match phase {
        Phase::Awaiting => ObjectPhase::Awaiting,
        Phase::Open(_) => ObjectPhase::Open,
        Phase::Refused { .. } => ObjectPhase::Refused,
        Phase::Failed(_) => ObjectPhase::Failed,
        Phase::Revalidated { .. } => ObjectPhase::Revalidated,
        Phase::Retired => ObjectPhase::Retired,
    };
    match phase {
        Phase::Awaiting | Phase::Retired | Phase::Revalidated { .. } => {}
        Phase::Open(head) => describe_head(state, head, now_ms),
        Phase::Refused {
            reason, until_ms, ..
        } => {
            state.why = Some(reason.to_string());
            state.refused_for_ms = Some(until_ms.saturating_sub(now_ms));
        }
        Phase::Failed(failure) => state.why = Some(failure.to_string()),
    }
}

/// Describes the stored response from its head.
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

/// Returns the reason why bytes of other responses can't be combined with this response's (RFC 9111
/// 3.4).
fn obstacle(head: &Head) -> Option<&'static str> {
    match &head.etag {
        _ if head.joinable => None,
        None => Some("no ETag"),
        Some(tag) if tag.starts_with(b"W/") => Some("its ETag is weak"),
        Some(_) if head.length.is_none() => Some("its complete length is not known"),
        Some(_) => Some("the origin does not support ranges"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::store::Selected;

    #[test]
    fn bytes_are_listed_up_to_a_bound() {
        let mut state = ObjectState::default();
        let (stored, flying) = (Ranges::from(0..10), Ranges::from(20..u64::MAX));
        list_bytes(&mut state, &stored, &flying, &Ranges::from(10..20), &[]);
        assert_eq!(state.stored, [Span::of(0..10)]);
        assert_eq!(state.in_flight[0].last, None);
        assert_eq!(state.missing, [Span::of(10..20)]);
        assert_eq!((state.stored_bytes, state.missing_bytes), (10, 10));
        assert_eq!(state.listed_to, None);

        let many: Ranges = (0..20_000).map(|n| 2 * n..2 * n + 1).collect();
        let mut state = ObjectState::default();
        list_bytes(&mut state, &many, &Ranges::new(), &Ranges::new(), &[]);
        assert_eq!(state.stored.len(), ObjectState::SPANS_MAX);
        assert_eq!(state.listed_to, Some(2 * ObjectState::SPANS_MAX as u64));
        assert_eq!(state.stored_bytes, 20_000);
    }

    #[test]
    fn bytes_on_volumes_are_listed() {
        let mut state = ObjectState::default();
        let (stored, none) = (Ranges::from(0..10), Ranges::new());
        let many: Ranges = (0..20_000).map(|n| 100 + 2 * n..101 + 2 * n).collect();
        let volumes = [
            ("disk1".to_owned(), Ranges::from(0..30)),
            ("disk2".to_owned(), many),
        ];
        list_bytes(&mut state, &stored, &none, &Ranges::from(30..100), &volumes);
        assert_eq!(state.missing, [Span::of(30..100)]);
        assert_eq!(state.missing_bytes, 70);
        assert_eq!(state.volumes[0].stored, [Span::of(0..30)]);
        assert_eq!(state.volumes[1].stored_bytes, 20_000);
        assert_eq!(state.volumes[1].stored.len(), ObjectState::SPANS_MAX);
        assert_eq!(
            state.listed_to,
            Some(100 + 2 * ObjectState::SPANS_MAX as u64)
        );
    }

    #[test]
    fn a_flight_has_a_rate_once_its_response_is_old_enough() {
        let mut claim = Claim {
            id: 1,
            start: 100,
            at: 100,
            end: u64::MAX,
            begun_us: 1_000_000,
            head_us: None,
            progress_us: 1_000_000,
            is_ending: false,
        };
        let young = flight_state(&claim, None, 1_004_000);
        assert_eq!((young.last, young.rate, young.head), (None, None, false));
        assert_eq!((young.age_ms, young.idle_ms), (4, 4));
        (claim.at, claim.head_us, claim.progress_us) = (1100, Some(1_500_000), 1_900_000);
        assert_eq!(flight_state(&claim, Some(5000), 1_510_000).rate, None);
        let steady = flight_state(&claim, Some(5000), 2_000_000);
        assert_eq!(
            (steady.first, steady.next, steady.last),
            (100, 1100, Some(4999))
        );
        assert_eq!(
            (steady.rate, steady.idle_ms, steady.head),
            (Some(2000), 100, true)
        );
    }

    fn head() -> Head {
        Head {
            status: 200,
            length: Some(100),
            etag: Some(Bytes::from_static(b"\"a\xff\"")),
            last_modified_s: Some(784_111_777),
            received_ms: 10_000,
            initial_age_ms: 500,
            fresh_until_ms: 20_000,
            vary: Some(Selected {
                names: [Box::from("accept-encoding")].into(),
                variant: 0xab,
            }),
            joinable: true,
            generation: 7,
            ..Head::default()
        }
    }

    fn described(phase: &Phase, now_ms: u64) -> ObjectState {
        let mut state = ObjectState::default();
        describe_phase(&mut state, phase, now_ms);
        state
    }

    #[test]
    fn a_head_is_described() {
        let state = described(&Phase::Open(Arc::new(head())), 12_000);
        assert_eq!((state.state, state.status), (ObjectPhase::Open, 200));
        assert_eq!(state.etag.as_deref(), Some("\"a\u{fffd}\""));
        let modified = state.last_modified.as_deref();
        assert_eq!(modified, Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!((state.age_s, state.fresh_for_s), (Some(2), 8));
        assert_eq!(
            described(&Phase::Open(Arc::new(head())), 23_000).fresh_for_s,
            -3
        );
        assert_eq!(state.vary, ["accept-encoding"]);
        assert!(
            state
                .variant
                .ends_with(": 000000000000000000000000000000ab")
        );
        assert_eq!(state.joinable, Some(true));
        let weak = Head {
            etag: Some(Bytes::from_static(b"W/\"a\"")),
            joinable: false,
            ..head()
        };
        let state = described(&Phase::Open(Arc::new(weak)), 0);
        assert_eq!(state.joinable, Some(false));
        assert_eq!(state.why_not_joinable.as_deref(), Some("its ETag is weak"));
    }

    #[test]
    fn an_object_without_a_response_has_a_reason() {
        let refused = Phase::Refused {
            reason: crate::reason::Reason::Private,
            until_ms: 5,
            one_client: false,
        };
        let state = described(&refused, 3);
        assert_eq!((state.state, state.status), (ObjectPhase::Refused, 0));
        assert_eq!(state.why.as_deref(), Some("private"));
        assert_eq!(state.refused_for_ms, Some(2));
        let failed = Phase::Failed(Arc::new(crate::store::Abandoned));
        let state = described(&failed, 3);
        assert_eq!(state.why.as_deref(), Some("the fetch was given up"));
        assert_eq!(described(&Phase::Awaiting, 3).state, ObjectPhase::Awaiting);
    }
}
