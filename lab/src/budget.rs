//! The budget experiment: one client requests single bytes at random offsets of a file that is too large for the
//! cache. A cache that fetches a whole block for each byte makes the origin send far more than the client receives.
//! The setting `client_budget` must limit that.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::bench::plain;
use crate::caches::{Cache, Capacity, SluiceCache};
use crate::client::{Client, ReadError, Reply};
use crate::configurations::Configurations;
use crate::noise::Dice;
use crate::origin::{Origin, OriginOptions, Resource};

/// Bytes of the file.
pub const LENGTH: u64 = 100_000_000_000;

/// Sluice's default of the setting `client_budget` in bytes.
pub const DEFAULT_BUDGET: u64 = 64 << 20;

/// Seconds in which Sluice forgives a client a debt as large as the whole budget.
pub const FORGIVEN_SECONDS: u64 = 600;

/// Number of measurements during the experiment.
const MARKS: u32 = 6;

const PATH: &str = "/huge.bin";

/// Size of the cache in bytes.
const MEMORY: u64 = 256 << 20;

/// Options of the experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Sluice's fill mode.
    pub fill: String,
    /// Value of `client_budget` in bytes; 0: no limit; `None`: Sluice's default.
    pub client_budget: Option<u64>,
    /// Duration in seconds.
    pub seconds: f64,
    /// Connections of the one client.
    pub connections: usize,
    /// Seed of the random offsets.
    pub seed: u64,
}

impl Options {
    /// Returns options for an experiment of one minute with four connections.
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

/// A measurement during the experiment. Counters are totals since the start.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Mark {
    /// Seconds since the start.
    pub seconds: f64,
    /// Requests answered with the right byte.
    pub right: u64,
    /// Requests without a response, or with another response than the right byte.
    pub not_right: u64,
    /// Requests that the origin received.
    pub origin_requests: u64,
    /// Body bytes that the origin sent.
    pub origin_bytes: u64,
}

/// Result of the experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Sluice's fill mode.
    pub fill: String,
    /// Value of `client_budget` in bytes; 0: no limit; `None`: Sluice's default.
    pub client_budget: Option<u64>,
    /// Bytes of the file.
    pub length: u64,
    /// Seed of the random offsets.
    pub seed: u64,
    /// Measurements in order of time.
    pub marks: Vec<Mark>,
    /// Configuration of Sluice.
    pub configurations: Configurations,
}

/// Returns the bytes per second beyond the requested ones that a client may make the origin send once its budget is used
/// up; `None` without a limit. `client_budget` is in bytes, as in [`Options`].
pub fn allowance(client_budget: Option<u64>) -> Option<f64> {
    match client_budget.unwrap_or(DEFAULT_BUDGET) {
        0 => None,
        budget => Some(budget as f64 / FORGIVEN_SECONDS as f64),
    }
}

/// Counters shared by all connections.
#[derive(Default)]
struct Count {
    sent: AtomicU64,
    right: AtomicU64,
    not_right: AtomicU64,
    ended: AtomicBool,
}

/// Runs the experiment and reports progress to `progress`.
///
/// Errors: options out of bounds, or a server that does not start.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Report> {
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
    let room = Capacity {
        memory: MEMORY,
        workers: thread::available_parallelism()?.get(),
    };
    let running = cache.start(origin.addr(), room)?;
    let mut configurations = Configurations::default();
    configurations.keep(&cache.name(), running.configuration());
    progress(&format!("{}: {:.0} s", cache.name(), options.seconds));
    let count = Count::default();
    let marks = thread::scope(|scope| {
        for _ in 0..options.connections {
            scope.spawn(|| run_connection(running.addr(), options.seed, &count));
        }
        let marks = measure(&origin, &count, options.seconds, progress);
        count.ended.store(true, Ordering::Relaxed);
        marks
    });
    Ok(Report {
        fill: options.fill.clone(),
        client_budget: options.client_budget,
        length: LENGTH,
        seed: options.seed,
        marks,
        configurations,
    })
}

fn measure(origin: &Origin, count: &Count, seconds: f64, progress: &dyn Fn(&str)) -> Vec<Mark> {
    let began = Instant::now();
    let mut marks = Vec::new();
    for number in 1..=MARKS {
        let until = Duration::from_secs_f64(seconds * f64::from(number) / f64::from(MARKS));
        thread::sleep(until.saturating_sub(began.elapsed()));
        if number == MARKS {
            wait_for_a_response(count);
        }
        let (origin_requests, origin_bytes) =
            origin.read_record(|record| (record.requests_total, record.sent_total));
        let mark = Mark {
            seconds: began.elapsed().as_secs_f64(),
            right: count.right.load(Ordering::Relaxed),
            not_right: count.not_right.load(Ordering::Relaxed),
            origin_requests,
            origin_bytes,
        };
        progress(&format!(
            "{:.1} s: {} requests, {:.1} MiB from the origin",
            mark.seconds,
            mark.right + mark.not_right,
            mebibytes(mark.origin_bytes)
        ));
        marks.push(mark);
    }
    marks
}

/// Waits until a request has been answered or has failed: an experiment without any shows nothing.
fn wait_for_a_response(count: &Count) {
    let ended = || count.right.load(Ordering::Relaxed) + count.not_right.load(Ordering::Relaxed);
    while ended() == 0 {
        thread::sleep(PAUSE);
    }
}

/// Pause after a request without a response, so that a server that refuses connections does not cause a busy loop.
const PAUSE: Duration = Duration::from_millis(10);

/// Sends requests until the experiment ends, reconnecting when necessary.
fn run_connection(server: SocketAddr, seed: u64, count: &Count) {
    let mut connection = None;
    while !count.ended.load(Ordering::Relaxed) {
        let number = count.sent.fetch_add(1, Ordering::Relaxed);
        let place = Dice::new(seed, number).below(LENGTH);
        let right = match request_byte(&mut connection, server, place) {
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

fn request_byte(
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

const TITLES: [(&str, &str); 7] = [
    ("after", "s"),
    ("right", ""),
    ("not right", ""),
    ("origin", "requests"),
    ("origin sent", "MiB"),
    ("rate", "kB/s"),
    ("per request", "bytes"),
];

const LEGEND: &str = "
right        requests answered with the right byte, one byte each;  not right: all others
origin sent  body bytes in total, whether the cache stored them or not
rate         bytes per second that the origin sent since the previous row
per request  bytes that the origin sent per request since the previous row
";

impl Report {
    /// Fails if a request was not answered with the right byte: the origin's traffic says little then.
    pub fn check(&self) -> anyhow::Result<()> {
        let last = self.marks.last();
        let (right, not_right) = last.map_or((0, 0), |mark| (mark.right, mark.not_right));
        anyhow::ensure!(
            not_right == 0,
            "{not_right} of {} requests were not answered with the right byte",
            right + not_right
        );
        Ok(())
    }

    /// Renders a table of the measurements and an explanation of its columns.
    pub fn render(&self) -> String {
        let budget = match self.client_budget {
            Some(0) => "no client budget".to_owned(),
            Some(bytes) => format!("a budget of {:.1} MiB", mebibytes(bytes)),
            None => "the default budget".to_owned(),
        };
        let mut text = format!(
            "One client, single bytes at random offsets of {:.0} GB, fill = \"{}\", {budget}, seed {}\n\n",
            self.length as f64 / 1e9,
            self.fill,
            self.seed
        );
        let mut before = (0, 0, 0.0);
        let rows: Vec<Vec<String>> = self
            .marks
            .iter()
            .map(|mark| {
                let requests = mark.right + mark.not_right;
                let bytes = (mark.origin_bytes - before.1) as f64;
                let each = bytes / (requests - before.0).max(1) as f64;
                let rate = bytes / f64::max(mark.seconds - before.2, 1e-3);
                before = (requests, mark.origin_bytes, mark.seconds);
                vec![
                    format!("{:.1}", mark.seconds),
                    mark.right.to_string(),
                    mark.not_right.to_string(),
                    mark.origin_requests.to_string(),
                    format!("{:.1}", mebibytes(mark.origin_bytes)),
                    format!("{:.1}", rate / 1e3),
                    format!("{each:.0}"),
                ]
            })
            .collect();
        text.push_str(&plain(&TITLES, &rows));
        text.push_str(LEGEND);
        if let Some(allowance) = allowance(self.client_budget) {
            text.push_str(&format!(
                "\nWhen the budget is used up, the client may make the origin send {:.1} kB/s beyond the requested bytes, at any \
                 rate of requests.\n",
                allowance / 1e3
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_shows_origin_bytes_per_request_since_the_previous_row() {
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
                mark(20.0, 1064, (64 << 20) + 1_000_000),
            ],
            configurations: Configurations::default(),
        };
        assert!(report.check().is_ok());
        let mut failed = report.clone();
        failed.marks[1].not_right = 3;
        let error = failed.check().expect_err("a failure").to_string();
        assert!(error.starts_with("3 of 1067 requests"), "{error}");
        let text = report.render();
        assert!(
            text.contains("  1048576\n") && text.contains("  100.0         1000\n"),
            "{text}"
        );
        assert!(text.contains("origin send 111.8 kB/s beyond"), "{text}");
        assert_eq!(
            (allowance(Some(0)), allowance(Some(600))),
            (None, Some(1.0))
        );
    }
}
