//! One answer of `GET /status`, parsed. All texts in it are escaped and bounded.

use serde_json::Value;

use super::format::shortened;
use crate::commands::output::harmless;
use crate::commands::status::values::{items, number};
use crate::telemetry::{CacheNumbers, Numbers, ServerNumbers, VolumeNumbers, WorkerNumbers};

/// Most rows of one kind that are read.
const ROWS_MAX: usize = 10_000;
/// Most characters of a name, state or address.
const NAME_MAX: usize = 120;
/// Most characters of a message or a URL.
const TEXT_MAX: usize = 400;

/// The state of a running Sluice at one moment.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Time of the answer, in microseconds of this process's monotonic clock.
    pub at_us: u64,
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub pid: u64,
    /// Seconds since the process started.
    pub uptime_s: u64,
    /// Number of the configuration in use.
    pub generation: u64,
    /// Sum of the workers' counters.
    pub counters: WorkerNumbers,
    /// The workers.
    pub workers: Vec<Worker>,
    /// Measures of the last seconds, made by the server.
    pub recent: Recent,
    /// Caches in the order of their names.
    pub caches: Vec<Cache>,
    /// Volumes in the order of their names.
    pub volumes: Vec<Volume>,
    /// Servers of all upstreams.
    pub servers: Vec<Server>,
    /// Messages about things that need attention.
    pub notes: Vec<String>,
}

/// Measures of the last ten seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recent {
    /// Durations of requests.
    pub latency: Latency,
    /// Share of the requests to caches that were served from stored bytes.
    pub hit_ratio: Option<f64>,
    /// Share of their body bytes that were.
    pub byte_hit_ratio: Option<f64>,
}

/// Percentiles of a duration in microseconds. Absent: there was nothing to measure, or the server does not measure it.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Latency {
    /// Median.
    pub p50_us: Option<u64>,
    /// 95th percentile.
    pub p95_us: Option<u64>,
    /// 99th percentile.
    pub p99_us: Option<u64>,
    /// Longest one.
    pub max_us: Option<u64>,
}

/// One worker.
#[derive(Clone, Debug, Default)]
pub struct Worker {
    /// Its counters.
    pub numbers: WorkerNumbers,
    /// CPU time of its thread, if the server measures it.
    pub cpu_ms: Option<u64>,
}

/// One cache.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    /// Name of the cache.
    pub name: String,
    /// Numbers of the cache.
    pub numbers: CacheNumbers,
    /// Time since the last use of what was evicted last, if the server measures it.
    pub evicted_age_s: Option<u64>,
}

/// One volume.
#[derive(Clone, Debug, Default)]
pub struct Volume {
    /// Name of the volume.
    pub name: String,
    /// `up`, `loading` or `out`.
    pub state: String,
    /// Numbers of the volume.
    pub numbers: VolumeNumbers,
    /// Time in which the disk had work, if the server knows it.
    pub disk_busy_ms: Option<u64>,
}

/// One server of an upstream.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// Name of the upstream.
    pub upstream: String,
    /// Address of the server.
    pub address: String,
    /// The server as configured.
    pub name: String,
    /// State of the server.
    pub state: String,
    /// Why the server is in this state.
    pub why: Option<String>,
    /// Whether the server is used only while all others fail or are full.
    pub backup: bool,
    /// Numbers of the server.
    pub numbers: ServerNumbers,
    /// Times from sending a request to the complete head of the response.
    pub header: Latency,
    /// Round trips.
    pub rtt: Latency,
}

/// Returns a value as a text that can't control a terminal, of at most this many characters.
fn text(value: &Value, max: usize) -> String {
    shortened(&harmless(value.as_str().unwrap_or("-")), max)
}

/// Returns the text of a URL or of a route, which may be hostile.
pub fn long_text(value: &Value) -> String {
    text(value, TEXT_MAX)
}

impl Reading {
    /// Parses the answer of `GET /status`. What is missing or of another type counts as zero or unknown.
    pub fn parse(at_us: u64, status: &Value) -> Reading {
        let volumes: Vec<&Value> = items(&status["volumes"]).take(ROWS_MAX).collect();
        Reading {
            at_us,
            version: text(&status["version"], NAME_MAX),
            pid: number(status, "pid"),
            uptime_s: number(status, "uptime_s"),
            generation: number(&status["reload"], "generation"),
            counters: WorkerNumbers::read(|name| number(&status["counters"], name)),
            workers: items(&status["workers"])
                .take(ROWS_MAX)
                .map(Worker::parse)
                .collect(),
            recent: Recent::parse(&status["recent"]),
            caches: caches(&status["caches"]),
            notes: notes(status, &volumes),
            volumes: volumes.into_iter().map(Volume::parse).collect(),
            servers: servers(&status["upstreams"]),
        }
    }
}

impl Recent {
    fn parse(recent: &Value) -> Recent {
        Recent {
            latency: Latency::parse(&recent["request_duration"]),
            hit_ratio: ratio(&recent["hit_ratio"]),
            byte_hit_ratio: ratio(&recent["byte_hit_ratio"]),
        }
    }
}

/// Returns a share from 0 to 1.
fn ratio(value: &Value) -> Option<f64> {
    value.as_f64().filter(|ratio| (0.0..=1.0).contains(ratio))
}

impl Latency {
    fn parse(durations: &Value) -> Latency {
        Latency {
            p50_us: durations["p50_us"].as_u64(),
            p95_us: durations["p95_us"].as_u64(),
            p99_us: durations["p99_us"].as_u64(),
            max_us: durations["max_us"].as_u64(),
        }
    }
}

impl Worker {
    fn parse(worker: &Value) -> Worker {
        Worker {
            numbers: WorkerNumbers::read(|name| number(worker, name)),
            cpu_ms: worker["cpu_ms"].as_u64(),
        }
    }
}

impl Volume {
    fn parse(volume: &Value) -> Volume {
        Volume {
            name: text(&volume["name"], NAME_MAX),
            state: text(&volume["state"], NAME_MAX),
            numbers: VolumeNumbers::read(|name| number(volume, name)),
            disk_busy_ms: volume["disk_busy_ms"].as_u64(),
        }
    }
}

impl Server {
    fn parse(upstream: &str, server: &Value) -> Server {
        Server {
            upstream: upstream.to_owned(),
            address: text(&server["address"], NAME_MAX),
            name: text(&server["name"], NAME_MAX),
            state: text(&server["state"], NAME_MAX),
            why: server["why"]
                .is_string()
                .then(|| text(&server["why"], TEXT_MAX)),
            backup: server["backup"].as_bool() == Some(true),
            numbers: ServerNumbers::read(|name| number(server, name)),
            header: Latency::parse(&server["header_duration"]),
            rtt: Latency::parse(&server["tcp_rtt"]),
        }
    }
}

fn caches(caches: &Value) -> Vec<Cache> {
    let all = caches.as_object().into_iter().flatten().take(ROWS_MAX);
    let parse = |(name, cache): (&String, &Value)| Cache {
        name: shortened(&harmless(name), NAME_MAX),
        numbers: CacheNumbers::read(|name| number(cache, name)),
        evicted_age_s: cache["evicted_age_seconds"].as_u64(),
    };
    all.map(parse).collect()
}

fn servers(upstreams: &Value) -> Vec<Server> {
    let upstreams = upstreams.as_object().into_iter().flatten();
    let all = upstreams.flat_map(|(name, upstream)| {
        let name = shortened(&harmless(name), NAME_MAX);
        items(&upstream["servers"]).map(move |server| Server::parse(&name, server))
    });
    all.take(ROWS_MAX).collect()
}

/// Returns one line about each thing that needs attention: a failed reload, volumes out of service, certificates.
fn notes(status: &Value, volumes: &[&Value]) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(error) = status["reload"]["last_error"].as_str() {
        let line = error.lines().next().unwrap_or_default();
        let line = shortened(&harmless(line), TEXT_MAX);
        notes.push(format!("the last reload changed nothing: {line}"));
    }
    for volume in volumes {
        if volume["why"].is_string() {
            let (name, why) = (
                text(&volume["name"], NAME_MAX),
                text(&volume["why"], TEXT_MAX),
            );
            notes.push(format!("volume {name} is out: {why}"));
        }
    }
    let warned = number(&status["certificates"], "warned");
    if warned > 0 {
        notes.push(format!(
            "certificates with a warning: {warned} (see `sluice certs`)"
        ));
    }
    let refused = number(status, "tls_files_refused");
    if refused > 0 {
        notes.push(format!(
            "changed files of TLS that can't be used: {refused}"
        ));
    }
    notes
}
