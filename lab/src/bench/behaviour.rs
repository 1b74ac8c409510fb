//! Rows of the bench about the number of requests to the origin and the balance of connections between workers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::Bench;
use super::sluice::{Sluice, SluiceOptions, worker_connections};
use super::table::{Row, Unit};
use crate::client::{Client, ClientOptions};
use crate::load::{self, LoadPlan};
use crate::origin::{Origin, OriginOptions, Outcome, Record, Resource};
use crate::rivals::{NginxMode, NginxOptions};

const FILE: u64 = 10 << 20;
const RATE: u64 = 1 << 20;

/// Positions of the first bytes of three ranges of ten bytes each: two in the middle of the object, one near its end.
const RANGES: [u64; 3] = [5_000_000, 5_000_100, 10_485_000];

/// Tolerated delay of a range in seconds, after the time at which a fetch from the object's beginning would reach the
/// range.
const TOLERANCE: f64 = 0.25;

const CROWD: usize = 1000;
const CROWD_OBJECT: u64 = 10_000_000;
/// Rate of the origin in bytes per second: so slow that all clients have connected before the fetch ends.
const CROWD_RATE: u64 = 10_000_000;

/// Number of repetitions, of which the worst result counts: the kernel distributes connections by a hash of the ports,
/// which differs each time.
const ATTEMPTS: usize = 5;

/// Longest duration of any step of a measurement.
const TIMEOUT: Duration = Duration::from_secs(120);

pub(super) fn ranges(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let mut bytes = Row::new(
        "three ranges of a cold file: origin sends, files",
        Unit::Factor,
    );
    let mut requests = Row::new("three ranges of a cold file: origin requests", Unit::Count);
    let mut late = Row::new(
        "three ranges of a cold file: delay after a fetch from the start",
        Unit::Seconds,
    );
    if bench.nginx {
        let origin = slow_origin()?;
        let options = NginxOptions::new(NginxMode::Cached, Some(origin.addr()));
        let nginx = options.start()?;
        let figures = request_ranges(nginx.addr(), &origin)?;
        bytes.nginx = Some(figures.files);
        requests.nginx = Some(figures.requests as f64);
        late.nginx = Some(figures.latest());
        late = late.note(&format!("nginx {}", figures.times()));
    }
    if bench.options.sluice_binary.is_some() {
        let origin = slow_origin()?;
        let sluice = start(bench, origin.addr(), 1)?.context("a binary")?;
        let figures = request_ranges(sluice.addr(), &origin)?;
        bytes.sluice = Some(figures.files);
        requests.sluice = Some(figures.requests as f64);
        late.sluice = Some(figures.latest());
        late = late.note(&format!("Sluice {}", figures.times()));
    }
    Ok(vec![
        bytes.goal_most(1.0),
        requests.goal_most(1.0),
        late.goal_most(TOLERANCE),
    ])
}

fn slow_origin() -> anyhow::Result<Origin> {
    let origin = Origin::start(OriginOptions::default())?;
    let file = Resource::offset(FILE)
        .rate(RATE)
        .cache_control("max-age=3600")
        .vary("Accept-Encoding");
    origin.serve("/file", file);
    Ok(origin)
}

/// Results of requesting three ranges at the same time.
struct RangeFigures {
    files: f64,
    requests: usize,
    /// Seconds until each of the ranges was complete.
    seconds: Vec<f64>,
}

impl RangeFigures {
    /// Returns the largest delay in seconds of a range, after the time at which a fetch from the object's beginning
    /// would reach the range.
    fn latest(&self) -> f64 {
        let late = self.seconds.iter().zip(RANGES).map(|(seconds, first)| {
            let reached = (first + 10) as f64 / RATE as f64;
            (seconds - reached).max(0.0)
        });
        late.fold(0.0, f64::max)
    }

    fn times(&self) -> String {
        let times: Vec<String> = self.seconds.iter().map(|s| format!("{s:.2}")).collect();
        format!("{} s", times.join(", "))
    }
}

fn request_ranges(server: SocketAddr, origin: &Origin) -> anyhow::Result<RangeFigures> {
    let seconds = std::thread::scope(|scope| {
        let clients = RANGES.map(|first| scope.spawn(move || request_range(server, first)));
        let times = clients.into_iter().map(|client| {
            let joined = client.join();
            joined.map_err(|_| anyhow::anyhow!("a client panicked"))?
        });
        times.collect::<anyhow::Result<Vec<f64>>>()
    })?;
    let ended = |record: &Record| {
        let pending = |outcome| outcome == Outcome::Pending;
        record.requests.iter().all(|seen| !pending(seen.outcome))
    };
    anyhow::ensure!(origin.wait_for(ended, TIMEOUT), "a fetch did not end");
    Ok(origin.read_record(|record| RangeFigures {
        files: record.sent_total as f64 / FILE as f64,
        requests: record.requests.len(),
        seconds,
    }))
}

fn request_range(server: SocketAddr, first: u64) -> anyhow::Result<f64> {
    let options = ClientOptions {
        timeout: TIMEOUT,
        ..ClientOptions::default()
    };
    let began = Instant::now();
    let range = format!("bytes={first}-{}", first + 9);
    let reply = Client::connect_with(server, &options)?.get("/file", &[("Range", &range)])?;
    reply
        .verify_range(first, first + 9, FILE)
        .map_err(anyhow::Error::msg)?;
    Ok(began.elapsed().as_secs_f64())
}

fn start(bench: &Bench<'_>, origin: SocketAddr, workers: usize) -> anyhow::Result<Option<Sluice>> {
    let Some(binary) = &bench.options.sluice_binary else {
        return Ok(None);
    };
    let options = SluiceOptions {
        memory: Some("256MiB".to_owned()),
        workers,
        ..SluiceOptions::new(binary, origin)
    };
    Sluice::start(&options).map(Some)
}

pub(super) fn crowd(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let mut row = Row::new(
        "1,000 clients, one cold 10 MB object: origin requests",
        Unit::Count,
    );
    let mut right = None;
    if bench.options.sluice_binary.is_some() {
        let origin = crowd_origin()?;
        let sluice = start(bench, origin.addr(), 2)?.context("a binary")?;
        let (requests, note) = run_crowd(sluice.addr(), &origin)?;
        row.sluice = Some(requests);
        right = Some(note.starts_with("1000 right"));
        row = row.note(&format!("Sluice {note}"));
    }
    let mut row = row.goal_most(1.0);
    row.goal.push_str(", every body correct");
    row.met = row.met.and_then(|met| right.map(|right| met && right));
    Ok(vec![row])
}

fn crowd_origin() -> anyhow::Result<Origin> {
    let origin = Origin::start(OriginOptions::default())?;
    let object = Resource::offset(CROWD_OBJECT)
        .rate(CROWD_RATE)
        .cache_control("max-age=3600");
    origin.serve("/object", object);
    Ok(origin)
}

/// Sends requests of many clients for one object. Returns the number of requests that reached the origin, and a
/// description of the clients' results.
fn run_crowd(server: SocketAddr, origin: &Origin) -> anyhow::Result<(f64, String)> {
    let result = load::run(LoadPlan {
        connections: CROWD,
        requests: Some(CROWD as u64),
        verify: true,
        expect_length: Some(CROWD_OBJECT),
        timeout_seconds: TIMEOUT.as_secs_f64(),
        sources: 8,
        ..LoadPlan::new(server, "/object")
    })?;
    let note = format!(
        "{} correct, {} wrong in {:.1} s",
        result.requests,
        result.errors.total(),
        result.seconds
    );
    Ok((origin.requests().len() as f64, note))
}

pub(super) fn workers(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let origin = Origin::start(OriginOptions::default())?;
    let mut rows = Vec::new();
    for connections in [10, 64] {
        let name = format!("two workers, {connections} connections: busier one's share");
        let mut row = Row::new(&name, Unit::Factor);
        if let Some(sluice) = start(bench, origin.addr(), 2)? {
            let mut shares = Vec::new();
            for _ in 0..ATTEMPTS {
                shares.push(busier_share(&sluice, connections)?);
            }
            shares.sort_by(f64::total_cmp);
            row.sluice = shares.last().copied();
            let shown: Vec<String> = shares.iter().map(|share| format!("{share:.2}")).collect();
            row = row.note(&format!("worst of {}", shown.join(" ")));
        }
        rows.push(row.goal_most(0.65));
    }
    Ok(rows)
}

/// Opens `connections` new connections and returns the share of them that the busier of two workers accepted.
fn busier_share(sluice: &Sluice, connections: usize) -> anyhow::Result<f64> {
    let before = worker_connections(sluice.admin())?;
    load::run(LoadPlan {
        connections,
        requests: Some(connections as u64 * 20),
        ..LoadPlan::new(sluice.addr(), "/offset/5120")
    })?;
    let after = worker_connections(sluice.admin())?;
    anyhow::ensure!(before.len() == after.len(), "the number of workers changed");
    let counts = after.iter().zip(&before).map(|(now, then)| now - then);
    let total: u64 = counts.clone().sum();
    anyhow::ensure!(total > 0, "no worker has counted a connection");
    Ok(counts.max().unwrap_or(0) as f64 / total as f64)
}
