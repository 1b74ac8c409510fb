//! The content of `sluice top` at one moment: the newest reading, and rates since the reading before.

use std::collections::HashMap;
use std::hash::Hash;

use serde::Serialize;

use super::lists::{Lists, Route, Url};
use super::reading::{self, Latency, Reading, Server, Volume};
use crate::telemetry::WorkerNumbers;

/// Everything that is shown. Rates are per second, and absent if they are not known yet.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// Version of the running Sluice.
    pub version: String,
    /// Its process id.
    pub pid: u64,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Number of the configuration in use.
    pub generation: u64,
    /// The traffic of all workers.
    pub traffic: Traffic,
    /// Caches.
    pub caches: Vec<Cache>,
    /// Volumes.
    pub volumes: Vec<Disk>,
    /// Servers of all upstreams.
    pub servers: Vec<Origin>,
    /// Workers.
    pub workers: Vec<Worker>,
    /// The routes with the most requests; absent if the server keeps no history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes: Option<Vec<Route>>,
    /// The URLs with the most requests, misses or bytes, or with the longest latency; absent if the server does not
    /// observe URLs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub urls: Option<Vec<Url>>,
    /// Messages about things that need attention.
    pub notes: Vec<String>,
}

/// The traffic of all workers. Latency and hit ratios are those of the last ten seconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Traffic {
    pub requests_per_s: Option<f64>,
    pub responses_2xx_per_s: Option<f64>,
    pub responses_3xx_per_s: Option<f64>,
    pub responses_4xx_per_s: Option<f64>,
    pub responses_5xx_per_s: Option<f64>,
    pub client_bytes_per_s: Option<f64>,
    pub upstream_bytes_per_s: Option<f64>,
    pub upstream_requests_per_s: Option<f64>,
    pub requests_now: u64,
    pub connections_now: u64,
    pub http2_connections_now: u64,
    pub latency: Latency,
    pub hit_ratio: Option<f64>,
    pub byte_hit_ratio: Option<f64>,
    /// Hit ratio since the reading before.
    #[serde(skip)]
    pub hit_ratio_now: Option<f64>,
}

/// One cache.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cache {
    pub name: String,
    pub objects: u64,
    pub memory_bytes: u64,
    pub memory_limit_bytes: u64,
    pub pinned_bytes: u64,
    pub flights: u64,
    pub evicted_per_s: Option<f64>,
    pub volume_hits_per_s: Option<f64>,
    pub volume_bytes_per_s: Option<f64>,
    pub evicted_age_s: Option<u64>,
}

/// One volume.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Disk {
    pub name: String,
    pub state: String,
    pub size_bytes: u64,
    pub queue_bytes: u64,
    pub written_bytes_per_s: Option<f64>,
    pub read_bytes_per_s: Option<f64>,
    pub reads_per_s: Option<f64>,
    /// Share of the time in which a write was in progress.
    pub writing: Option<f64>,
    /// Share of the time in which the disk had work, for all programs.
    pub busy: Option<f64>,
    /// Mean time of a read.
    pub read_us: Option<u64>,
    pub shed_per_s: Option<f64>,
    pub errors: u64,
    pub damaged: u64,
    pub laps: u64,
}

/// One server of an upstream.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Origin {
    pub upstream: String,
    pub address: String,
    pub state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    pub backup: bool,
    pub requests_per_s: Option<f64>,
    pub failures_per_s: Option<f64>,
    pub failures: u64,
    pub busy: u64,
    pub idle: u64,
    /// Share of the requests on connections that had carried other requests before.
    pub reused: Option<f64>,
    pub bytes_in_per_s: Option<f64>,
    /// Times to the head of the response since the start of Sluice.
    pub header: Latency,
    pub rtt: Latency,
}

/// One worker.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Worker {
    pub worker: usize,
    /// Share of a core that the worker used.
    pub cpu: Option<f64>,
    pub connections_now: u64,
    pub requests_now: u64,
    pub requests_per_s: Option<f64>,
    pub hit_ratio: Option<f64>,
    pub client_bytes_per_s: Option<f64>,
    pub upstream_bytes_per_s: Option<f64>,
    pub flights_now: u64,
    pub panics: u64,
}

/// The numbers of one thing now and at an earlier moment.
struct Period<'a, N> {
    now: &'a N,
    before: Option<&'a N>,
    seconds: f64,
}

impl<N> Period<'_, N> {
    /// Returns by how much a counter rose; `None` without an earlier value, or if the counter began again.
    fn rise(&self, of: impl Fn(&N) -> u64) -> Option<u64> {
        of(self.now).checked_sub(of(self.before?))
    }

    /// Returns by how much a counter rose per second.
    fn rate(&self, of: impl Fn(&N) -> u64) -> Option<f64> {
        let rise = self.rise(of)?;
        (self.seconds > 0.0).then(|| rise as f64 / self.seconds)
    }

    /// Returns the quotient of the rises of two counters.
    fn quotient(&self, part: impl Fn(&N) -> u64, all: impl Fn(&N) -> u64) -> Option<f64> {
        let (part, all) = (self.rise(part)?, self.rise(all)?);
        (all > 0).then(|| part as f64 / all as f64)
    }
}

impl Snapshot {
    /// Makes a snapshot of the newest reading. `before` is an earlier one, if there is one.
    pub fn new(before: Option<&Reading>, now: &Reading, lists: Lists) -> Snapshot {
        // The counters of another process begin at zero.
        let before = before.filter(|before| before.pid == now.pid);
        let since_us = before.map_or(0, |before| now.at_us.saturating_sub(before.at_us));
        let seconds = since_us as f64 / 1e6;
        Snapshot {
            version: now.version.clone(),
            pid: now.pid,
            uptime_s: now.uptime_s,
            generation: now.generation,
            traffic: traffic(before, now, seconds),
            caches: caches(before, now, seconds),
            volumes: volumes(before, now, seconds),
            servers: servers(before, now, seconds),
            workers: workers(before, now, seconds),
            routes: lists.routes,
            urls: lists.urls,
            notes: now.notes.clone(),
        }
    }
}

/// Returns the numbers of a period between two values.
fn period<'a, N>(before: Option<&'a N>, now: &'a N, seconds: f64) -> Period<'a, N> {
    Period {
        now,
        before,
        seconds,
    }
}

fn hits(numbers: &WorkerNumbers) -> u64 {
    numbers.cache_hits.saturating_add(numbers.cache_validated)
}

fn lookups(numbers: &WorkerNumbers) -> u64 {
    let others = [
        numbers.cache_misses,
        numbers.cache_collapsed,
        numbers.cache_passes,
    ];
    others
        .iter()
        .fold(hits(numbers), |all, n| all.saturating_add(*n))
}

fn traffic(before: Option<&Reading>, now: &Reading, seconds: f64) -> Traffic {
    let numbers = period(
        before.map(|before| &before.counters),
        &now.counters,
        seconds,
    );
    let counters = &now.counters;
    Traffic {
        requests_per_s: numbers.rate(|n| n.requests),
        responses_2xx_per_s: numbers.rate(|n| n.responses_2xx),
        responses_3xx_per_s: numbers.rate(|n| n.responses_3xx),
        responses_4xx_per_s: numbers.rate(|n| n.responses_4xx),
        responses_5xx_per_s: numbers.rate(|n| n.responses_5xx),
        client_bytes_per_s: numbers.rate(|n| n.client_bytes_out),
        upstream_bytes_per_s: numbers.rate(|n| n.upstream_bytes_in),
        upstream_requests_per_s: numbers.rate(|n| n.upstream_requests),
        requests_now: counters.requests_now,
        connections_now: counters.connections_now,
        http2_connections_now: counters.http2_connections_now,
        latency: now.recent.latency,
        hit_ratio: now.recent.hit_ratio,
        byte_hit_ratio: now.recent.byte_hit_ratio,
        hit_ratio_now: numbers.quotient(hits, lookups),
    }
}

/// Returns the values of an earlier reading by their keys.
fn by_key<'a, T, K: Eq + Hash>(
    before: Option<&'a Reading>,
    all: impl Fn(&'a Reading) -> &'a [T],
    key: impl Fn(&'a T) -> K,
) -> HashMap<K, &'a T> {
    let all = before.map(all).unwrap_or_default();
    all.iter().map(|value| (key(value), value)).collect()
}

fn caches(before: Option<&Reading>, now: &Reading, seconds: f64) -> Vec<Cache> {
    let earlier = by_key(before, |reading| &reading.caches, |cache| &cache.name);
    let row = |cache: &reading::Cache| {
        let before = earlier.get(&cache.name).map(|cache| &cache.numbers);
        let (numbers, rates) = (&cache.numbers, period(before, &cache.numbers, seconds));
        Cache {
            name: cache.name.clone(),
            objects: numbers.objects,
            memory_bytes: numbers.bytes,
            memory_limit_bytes: numbers.limit,
            pinned_bytes: numbers.pinned,
            flights: numbers.flights,
            evicted_per_s: rates.rate(|n| n.evicted),
            volume_hits_per_s: rates.rate(|n| n.volume_hits),
            volume_bytes_per_s: rates.rate(|n| n.volume_bytes),
            evicted_age_s: cache.evicted_age_s.filter(|_| numbers.evicted > 0),
        }
    };
    now.caches.iter().map(row).collect()
}

fn volumes(before: Option<&Reading>, now: &Reading, seconds: f64) -> Vec<Disk> {
    let earlier = by_key(before, |reading| &reading.volumes, |volume| &volume.name);
    let row = |volume: &Volume| {
        let before = earlier.get(&volume.name).copied();
        let busy_before = before.and_then(|volume| volume.disk_busy_ms);
        let before = before.map(|volume| &volume.numbers);
        let (numbers, rates) = (&volume.numbers, period(before, &volume.numbers, seconds));
        let read_ms = rates.quotient(|n| n.read_ms, |n| n.reads);
        Disk {
            name: volume.name.clone(),
            state: volume.state.clone(),
            size_bytes: numbers.size,
            queue_bytes: numbers.queue_bytes,
            written_bytes_per_s: rates.rate(|n| n.written_bytes),
            read_bytes_per_s: rates.rate(|n| n.read_bytes),
            reads_per_s: rates.rate(|n| n.reads),
            writing: rates.rate(|n| n.write_ms).map(|ms| (ms / 1e3).min(1.0)),
            busy: share_of_time(busy_before, volume.disk_busy_ms, seconds),
            read_us: read_ms.map(|ms| (ms * 1e3) as u64),
            shed_per_s: rates.rate(|n| n.shed),
            errors: numbers.errors,
            damaged: numbers.damaged,
            laps: numbers.laps,
        }
    };
    now.volumes.iter().map(row).collect()
}

fn servers(before: Option<&Reading>, now: &Reading, seconds: f64) -> Vec<Origin> {
    fn key(server: &Server) -> [&str; 3] {
        [&server.upstream, &server.name, &server.address]
    }
    let earlier = by_key(before, |reading| &reading.servers, key);
    let row = |server: &Server| {
        let before = earlier.get(&key(server)).map(|server| &server.numbers);
        let (numbers, rates) = (&server.numbers, period(before, &server.numbers, seconds));
        Origin {
            upstream: server.upstream.clone(),
            address: server.address.clone(),
            state: server.state.clone(),
            why: server.why.clone(),
            backup: server.backup,
            requests_per_s: rates.rate(|n| n.requests),
            failures_per_s: rates.rate(|n| n.failures),
            failures: numbers.failures,
            busy: numbers.busy,
            idle: numbers.idle,
            reused: rates.quotient(|n| n.reuses, |n| n.requests),
            bytes_in_per_s: rates.rate(|n| n.bytes_in),
            header: server.header,
            rtt: server.rtt,
        }
    };
    now.servers.iter().map(row).collect()
}

fn workers(before: Option<&Reading>, now: &Reading, seconds: f64) -> Vec<Worker> {
    let row = |(index, worker): (usize, &reading::Worker)| {
        let before = before.and_then(|before| before.workers.get(index));
        let cpu_before = before.and_then(|before| before.cpu_ms);
        let numbers = &worker.numbers;
        let rates = period(before.map(|before| &before.numbers), numbers, seconds);
        Worker {
            worker: index,
            cpu: share_of_time(cpu_before, worker.cpu_ms, seconds),
            connections_now: numbers.connections_now,
            requests_now: numbers.requests_now,
            requests_per_s: rates.rate(|n| n.requests),
            hit_ratio: rates.quotient(hits, lookups),
            client_bytes_per_s: rates.rate(|n| n.client_bytes_out),
            upstream_bytes_per_s: rates.rate(|n| n.upstream_bytes_in),
            flights_now: numbers.flights_now,
            panics: numbers.panics,
        }
    };
    now.workers.iter().enumerate().map(row).collect()
}

/// Returns by how much a time in milliseconds rose, as a share of the seconds that passed, at most 1.
fn share_of_time(before_ms: Option<u64>, now_ms: Option<u64>, seconds: f64) -> Option<f64> {
    let rise = now_ms?.checked_sub(before_ms?)?;
    (seconds > 0.0).then(|| (rise as f64 / 1e3 / seconds).min(1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::commands::top::lists::{routes, urls};

    fn status(pid: u64, requests: u64) -> Value {
        json!({
            "pid": pid,
            "counters": { "requests": requests, "cache_hits": requests, "cache_misses": 0 },
            "workers": [{ "requests": requests, "cpu_ms": 4 * requests }],
            "recent": { "hit_ratio": 0.5, "request_duration": { "p50_us": 7, "p99_us": 9 } },
            "caches": { "a\u{1b}": { "evicted": requests, "bytes": 3 } },
            "volumes": [{ "name": "v", "state": "up", "reads": requests, "read_ms": 2 * requests, "write_ms": requests }],
            "upstreams": { "o": { "servers": [{ "address": "10.0.0.1:1", "name": "n", "state": "up", "requests": requests }] } },
        })
    }

    #[test]
    fn rates_are_those_since_the_reading_before() {
        let before = Reading::parse(1_000_000, &status(1, 100));
        let now = Reading::parse(3_000_000, &status(1, 300));
        let shown = Snapshot::new(Some(&before), &now, Lists::default());
        assert_eq!(shown.traffic.requests_per_s, Some(100.0));
        assert_eq!(shown.traffic.hit_ratio_now, Some(1.0));
        assert_eq!(shown.traffic.hit_ratio, Some(0.5));
        assert_eq!(shown.traffic.latency.p99_us, Some(9));
        assert_eq!(shown.caches[0].name, "a\\u{1b}");
        assert_eq!(shown.caches[0].evicted_per_s, Some(100.0));
        assert_eq!(shown.volumes[0].read_us, Some(2000));
        assert_eq!(shown.volumes[0].writing, Some(0.1));
        assert_eq!(shown.servers[0].requests_per_s, Some(100.0));
        assert_eq!(shown.workers[0].requests_per_s, Some(100.0));
        assert_eq!(
            (shown.workers[0].cpu, shown.volumes[0].busy),
            (Some(0.4), None)
        );
    }

    #[test]
    fn counters_that_began_again_have_no_rate() {
        let before = Reading::parse(1_000_000, &status(1, 100));
        for now in [status(2, 300), status(1, 50)] {
            let shown = Snapshot::new(
                Some(&before),
                &Reading::parse(2_000_000, &now),
                Lists::default(),
            );
            assert_eq!(shown.traffic.requests_per_s, None);
            assert_eq!(shown.servers[0].requests_per_s, None);
        }
        let first = Snapshot::new(None, &before, Lists::default());
        assert_eq!(first.traffic.requests_per_s, None);
    }

    /// Any JSON of some depth.
    fn any_json() -> impl Strategy<Value = Value> {
        let names = prop::sample::select(vec![
            "counters",
            "workers",
            "caches",
            "volumes",
            "upstreams",
            "servers",
            "name",
            "requests",
            "recent",
            "request_duration",
            "p50_us",
            "pid",
            "urls",
            "url",
            "why",
            "reload",
            "last_error",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,9}|[\\x00-\\x1f\\x7f-\\x9f]{0,9}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 8, move |inner| {
            let entries = prop::collection::vec((names.clone(), inner.clone()), 0..8);
            prop_oneof![
                prop::collection::vec(inner, 0..8).prop_map(Value::from),
                entries.prop_map(|all| all.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_answer_can_be_shown_and_controls_no_terminal(one in any_json(), other in any_json(), at_us in any::<u64>()) {
            let before = Reading::parse(at_us, &one);
            let now = Reading::parse(at_us.wrapping_add(1_000_000), &other);
            let shown = Snapshot::new(Some(&before), &now, Lists { routes: Some(routes(&other)), urls: Some(urls(&other)) });
            let text = format!("{shown:?}{:?}", shown.notes);
            prop_assert!(!text.chars().any(char::is_control));
        }
    }
}
