//! The budget experiment: one client asks for single bytes at random places of a file far too big to keep, which tempts
//! a cache to fetch a block for each. What the origin has to send must stay within what the cache grants one client.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::bench::plain;
use crate::caches::{Cache, Room, SluiceCache};
use crate::client::{Client, ReadError, Reply};
use crate::noise::Dice;
use crate::origin::{Origin, OriginOptions, Resource};

/// Bytes of the file.
pub const LENGTH: u64 = 100_000_000_000;

/// How often it is looked at what the origin has sent.
const MARKS: u32 = 6;

const PATH: &str = "/huge.bin";

/// Bytes that the cache may keep.
const MEMORY: u64 = 256 << 20;

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Sluice's way to fill.
    pub fill: String,
    /// Bytes that may be fetched and not sent for a client, where it is not left at its default; 0: no limit.
    pub client_budget: Option<u64>,
    /// How long.
    pub seconds: f64,
    /// Connections of the one client.
    pub connections: usize,
    /// What the places are drawn from.
    pub seed: u64,
}

impl Options {
    /// A minute on four connections.
    pub fn new(program: impl Into<PathBuf>) -> Options {
        Options {
            program: program.into(),
            fill: "auto".to_owned(),
            client_budget: None,
            seconds: 60.0,
            connections: 4,
            seed: 1,
        }
    }
}

/// How far things were at a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Mark {
    /// Since the beginning.
    pub seconds: f64,
    /// Requests that were answered with the right byte.
    pub right: u64,
    /// Others.
    pub not_right: u64,
    /// Requests to the origin.
    pub origin_requests: u64,
    /// Bytes of bodies that the origin sent.
    pub origin_bytes: u64,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Sluice's way to fill.
    pub fill: String,
    /// The budget that was set.
    pub client_budget: Option<u64>,
    /// Bytes of the file.
    pub length: u64,
    /// What the places were drawn from.
    pub seed: u64,
    /// How it went on.
    pub marks: Vec<Mark>,
}

/// Counters of all connections.
#[derive(Default)]
struct Count {
    asked: AtomicU64,
    right: AtomicU64,
    not_right: AtomicU64,
    ended: AtomicBool,
}

/// Asks, with lines of progress for `tell`.
///
/// Errors: options out of bounds, or a server that does not start.
pub fn run(options: &Options, tell: &dyn Fn(&str)) -> anyhow::Result<Report> {
    anyhow::ensure!(
        (0.1..=3600.0).contains(&options.seconds),
        "0.1 to 3600 seconds"
    );
    anyhow::ensure!(
        (1..=100).contains(&options.connections),
        "1 to 100 connections"
    );
    let origin = Origin::start(OriginOptions {
        forget: true,
        ..OriginOptions::default()
    })?;
    origin.serve(PATH, Resource::offset(LENGTH).cache_control("max-age=3600"));
    let cache = Cache::Sluice(SluiceCache {
        client_budget: options.client_budget,
        ..SluiceCache::new(&options.program, &options.fill)
    });
    let room = Room {
        memory: MEMORY,
        workers: thread::available_parallelism()?.get(),
    };
    let running = cache.start(origin.addr(), room)?;
    tell(&format!("{}: {:.0} s", cache.name(), options.seconds));
    let count = Count::default();
    let marks = thread::scope(|scope| {
        for _ in 0..options.connections {
            scope.spawn(|| ask(running.addr(), options.seed, &count));
        }
        let marks = watch(&origin, &count, options.seconds, tell);
        count.ended.store(true, Ordering::Relaxed);
        marks
    });
    Ok(Report {
        fill: options.fill.clone(),
        client_budget: options.client_budget,
        length: LENGTH,
        seed: options.seed,
        marks,
    })
}

fn watch(origin: &Origin, count: &Count, seconds: f64, tell: &dyn Fn(&str)) -> Vec<Mark> {
    let began = Instant::now();
    let mut marks = Vec::new();
    for number in 1..=MARKS {
        let until = Duration::from_secs_f64(seconds * f64::from(number) / f64::from(MARKS));
        thread::sleep(until.saturating_sub(began.elapsed()));
        let (origin_requests, origin_bytes) =
            origin.read_record(|record| (record.requests_total, record.sent_total));
        let mark = Mark {
            seconds: began.elapsed().as_secs_f64(),
            right: count.right.load(Ordering::Relaxed),
            not_right: count.not_right.load(Ordering::Relaxed),
            origin_requests,
            origin_bytes,
        };
        tell(&format!(
            "{:.1} s: {} requests, {:.1} MiB from the origin",
            mark.seconds,
            mark.right + mark.not_right,
            mebibytes(mark.origin_bytes)
        ));
        marks.push(mark);
    }
    marks
}

/// What is waited after a request that got no response, so that an edge that refuses is not asked in a busy loop.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks, on one connection after the other, until all is over.
fn ask(server: SocketAddr, seed: u64, count: &Count) {
    let mut connection = None;
    while !count.ended.load(Ordering::Relaxed) {
        let number = count.asked.fetch_add(1, Ordering::Relaxed);
        let place = Dice::new(seed, number).below(LENGTH);
        let right = match one(&mut connection, server, place) {
            Ok(reply) => reply.verify_range(place, place, LENGTH).is_ok(),
            Err(_) => {
                connection = None;
                thread::sleep(PAUSE);
                false
            }
        };
        let counter = if right {
            &count.right
        } else {
            &count.not_right
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn one(
    connection: &mut Option<Client>,
    server: SocketAddr,
    place: u64,
) -> Result<Reply, ReadError> {
    let client = match connection {
        Some(client) => client,
        None => connection.insert(Client::connect(server)?),
    };
    let reply = client.get(PATH, &[("Range", &format!("bytes={place}-{place}"))])?;
    let closes = reply
        .header("connection")
        .is_some_and(|value| value.eq_ignore_ascii_case("close"));
    if closes || reply.truncated() {
        *connection = None;
    }
    Ok(reply)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

const TITLES: [(&str, &str); 6] = [
    ("after", "s"),
    ("bytes got", ""),
    ("not right", ""),
    ("origin", "requests"),
    ("origin sent", "MiB"),
    ("a request", "bytes"),
];

const LEGEND: &str = "
bytes got    requests that were answered with the right byte, one byte each;  not right: all others
origin sent  bytes of bodies in all, whether the cache kept them or not
a request    bytes that the origin sent for each request since the line above
";

impl Report {
    /// A table of how it went on, and what its columns mean.
    pub fn render(&self) -> String {
        let budget = match self.client_budget {
            Some(0) => "no limit to its budget".to_owned(),
            Some(bytes) => format!("a budget of {:.1} MiB", mebibytes(bytes)),
            None => "the default budget".to_owned(),
        };
        let mut text = format!(
            "One client, single bytes anywhere in {:.0} GB, fill = \"{}\", {budget}, seed {}\n\n",
            self.length as f64 / 1e9,
            self.fill,
            self.seed
        );
        let mut before = (0, 0);
        let rows: Vec<Vec<String>> = self
            .marks
            .iter()
            .map(|mark| {
                let asked = mark.right + mark.not_right;
                let each = (mark.origin_bytes - before.1) as f64 / (asked - before.0).max(1) as f64;
                before = (asked, mark.origin_bytes);
                vec![
                    format!("{:.1}", mark.seconds),
                    mark.right.to_string(),
                    mark.not_right.to_string(),
                    mark.origin_requests.to_string(),
                    format!("{:.1}", mebibytes(mark.origin_bytes)),
                    format!("{each:.0}"),
                ]
            })
            .collect();
        text.push_str(&plain(&TITLES, &rows));
        text.push_str(LEGEND);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_tells_what_came_since_the_one_above() {
        let mark = |seconds, right, origin_bytes| Mark {
            seconds,
            right,
            not_right: 0,
            origin_requests: right,
            origin_bytes,
        };
        let report = Report {
            fill: "auto".to_owned(),
            client_budget: Some(64 << 20),
            length: LENGTH,
            seed: 1,
            marks: vec![
                mark(10.0, 64, 64 << 20),
                mark(20.0, 1064, (64 << 20) + 1000),
            ],
        };
        let text = report.render();
        assert!(
            text.contains("  1048576\n") && text.contains("       1\n"),
            "{text}"
        );
    }
}
