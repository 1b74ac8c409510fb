//! `cargo xtask bench`: compares Sluice with nginx and HAProxy, and prints a table with goals.
//!
//! Servers run on one core; the load generator, which is a separate process, and cheap origins run on another. Runs of
//! the compared servers alternate (A B A B), and medians count.

mod behaviour;
mod changing_names;
pub(crate) mod contest;
mod cpu;
mod encrypted;
mod failing_servers;
mod generators;
mod handshake_attack;
mod http2;
mod http2_attack;
mod http2_origin;
mod http2_stalls;
mod memory;
pub(crate) mod pages;
#[cfg(feature = "lab")]
mod slow_reads;
mod sluice;
mod start;
pub(crate) mod statics;
mod table;
mod uploads;
mod upstreams;

use std::path::PathBuf;

use crate::scratch::Folder;
use anyhow::Context as _;

use crate::rivals::{HAPROXY, NGINX};

pub(crate) use memory::settled;
pub use sluice::{Files, Route, Sluice, SluiceOptions, Volume, worker_connections};
pub use table::{Row, Unit, plain, render};

/// Options of the bench.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// Path of a release build of `sluice`; `None`: only the other servers are measured.
    pub sluice_binary: Option<PathBuf>,
    /// Path of an earlier build of `sluice` to compare CPU time per request with; `None`: no comparison.
    pub against: Option<PathBuf>,
    /// Number of runs of each server. Medians of the runs count.
    pub rounds: usize,
    /// Duration of each run in seconds.
    pub seconds_per_run: f64,
    /// Seconds for which a server fails in each row of `failing-servers`, and for which each attack of `http2-attack` lasts.
    pub failing_seconds: f64,
    /// Text that the name of a row must contain for the row to be measured; `None`: all rows are.
    pub only: Option<String>,
    /// Number of the CPU core on which servers run.
    pub server_core: usize,
    /// Number of the CPU core on which the load generator and origins run.
    pub load_core: usize,
}

impl Default for BenchOptions {
    fn default() -> Self {
        BenchOptions {
            sluice_binary: None,
            against: None,
            rounds: 3,
            seconds_per_run: 3.0,
            failing_seconds: 30.0,
            only: None,
            server_core: 0,
            load_core: 1,
        }
    }
}

/// State that the measurements of all rows share.
struct Bench<'a> {
    options: &'a BenchOptions,
    folder: Folder,
    nginx: bool,
    haproxy: bool,
}

/// Function that measures one or more rows of the table.
type Measure = fn(&Bench<'_>) -> anyhow::Result<Vec<Row>>;

const ROWS: &[(&str, Measure)] = &[
    ("hit-5k", cpu::hit_5k),
    ("hit-1m", cpu::hit_1m),
    ("proxy-5k", cpu::proxy_5k),
    ("proxy-1m", cpu::proxy_1m),
    ("short-5k", cpu::short_5k),
    ("hit-5k-tls", encrypted::hit_5k),
    ("hit-1m-tls", encrypted::hit_1m),
    ("static-100m-tls", encrypted::static_100m),
    ("handshakes-tls", encrypted::handshakes),
    ("idle-tls", encrypted::idle),
    ("upload-tls", uploads::upload_1g),
    ("attack-tls", handshake_attack::attack),
    ("http2-5k", http2::hit_5k),
    ("http2-5k-clear", http2::hit_5k_clear),
    ("http2-1m", http2::hit_1m),
    ("http2-idle", http2::idle),
    ("http2-upload", http2::upload),
    ("http2-origin", http2_origin::proxied),
    ("http2-stalls", http2_stalls::stalls),
    ("http2-attack", http2_attack::attack),
    ("idle", memory::idle),
    ("churn", memory::churn),
    ("ranges", behaviour::ranges),
    ("crowd", behaviour::crowd),
    ("workers", behaviour::workers),
    ("stored-1m", cpu::stored_1m),
    ("start", start::start),
    ("static-5k", statics::static_5k),
    ("static-close", statics::static_close),
    ("static-100m", statics::static_100m),
    ("gzip-50k", statics::gzip_50k),
    ("rss-10k", statics::rss_10k),
    ("origin-connections", upstreams::connections),
    ("origin-idle", upstreams::idle),
    ("slow-server", upstreams::slow_server),
    ("all-down", upstreams::all_down),
    ("failing-servers-killed", failing_servers::killed),
    ("failing-servers-paused", failing_servers::paused),
    ("failing-servers-black-holed", failing_servers::black_holed),
    ("failing-servers-500", failing_servers::answering_500),
    ("failing-servers-resetting", failing_servers::resetting),
    ("failing-servers-cutting", failing_servers::cutting),
    ("failing-servers-dripping", failing_servers::dripping),
    (
        "failing-servers-dripping-bodies",
        failing_servers::dripping_bodies,
    ),
    ("changing-names", changing_names::changing_names),
    ("generator-wrk", generators::wrk),
    ("generator-h2load", generators::h2load),
    ("generator-stalls", generators::stalls),
    #[cfg(feature = "lab")]
    ("slow-reads", slow_reads::slow_reads),
];

/// Returns the names by which [`BenchOptions::only`] selects rows.
pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|(name, _)| *name)
}

/// Measures all selected rows, prints the table and returns the rows. Progress goes to standard error.
///
/// Errors: no row is selected, or the machine has too few cores.
pub fn run_bench(options: &BenchOptions) -> anyhow::Result<Vec<Row>> {
    let cores = std::thread::available_parallelism()?.get();
    anyhow::ensure!(
        cores > options.server_core.max(options.load_core),
        "the bench needs cores {} and {}, and this machine has {cores}",
        options.server_core,
        options.load_core
    );
    raise_descriptor_limit()?;
    let (nginx, haproxy) = (NGINX.version(), HAPROXY.version());
    for (name, version) in [("nginx", &nginx), ("HAProxy", &haproxy)] {
        match version {
            Ok(version) => eprintln!("{name} {version}"),
            Err(missing) => eprintln!("{missing}: its column stays empty"),
        }
    }
    let bench = Bench {
        options,
        folder: Folder::new("lab-bench-")?,
        nginx: nginx.is_ok(),
        haproxy: haproxy.is_ok(),
    };
    let mut rows = Vec::new();
    let wanted = |name: &str| {
        options
            .only
            .as_deref()
            .is_none_or(|only| name.contains(only))
    };
    for (name, measure) in ROWS.iter().filter(|(name, _)| wanted(name)) {
        eprintln!("{name} …");
        match measure(&bench) {
            Ok(mut measured) => rows.append(&mut measured),
            // If a row can't be measured, the table shows the error, and the other rows are still measured.
            Err(error) => rows.push(Row::failed(name, &error)),
        }
    }
    anyhow::ensure!(!rows.is_empty(), "no row's name contains the filter");
    println!("{}", render(&rows));
    Ok(rows)
}

/// Raises the soft limit of file descriptors to the hard limit, for thousands of connections.
pub(crate) fn raise_descriptor_limit() -> anyhow::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("raising the limit of descriptors")
}

/// Returns the median of the values. For an even number of values, that is the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn an_unknown_row_is_an_error() {
        let options = BenchOptions {
            only: Some("no such row".to_owned()),
            load_core: 0,
            ..BenchOptions::default()
        };
        let error = run_bench(&options).expect_err("nothing to measure");
        assert!(error.to_string().contains("no row"), "{error}");
    }
}
