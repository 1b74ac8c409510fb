//! `cargo xtask bench`: Sluice beside nginx, and the table of what the first edge is to reach.
//!
//! Servers run on one core, the load generator (a process of its own) and cheap origins on another. What is compared
//! runs in turns, A B A B, and medians count.

mod behaviour;
pub(crate) mod contest;
mod cpu;
mod memory;
pub(crate) mod pages;
#[cfg(feature = "lab")]
mod slow_reads;
mod sluice;
mod start;
pub(crate) mod statics;
mod table;

use std::path::PathBuf;

use anyhow::Context as _;
use tempfile::TempDir;

use crate::rivals::Nginx;

pub use sluice::{Files, Route, Sluice, SluiceOptions, Volume, worker_connections};
pub use table::{Row, Unit, plain, render};

/// What to measure, and how thoroughly.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// The program `sluice`, a release build; without it only nginx and the floor are measured.
    pub sluice_binary: Option<PathBuf>,
    /// An earlier build of `sluice`, measured in the same turns wherever the CPU time of requests is compared.
    pub against: Option<PathBuf>,
    /// Runs of each contender whose median counts.
    pub rounds: usize,
    /// Length of each run under load.
    pub seconds_per_run: f64,
    /// Only rows whose name contains this.
    pub only: Option<String>,
    /// Core of the servers.
    pub server_core: usize,
    /// Core of the load generator and of origins.
    pub load_core: usize,
}

impl Default for BenchOptions {
    fn default() -> Self {
        BenchOptions {
            sluice_binary: None,
            against: None,
            rounds: 3,
            seconds_per_run: 3.0,
            only: None,
            server_core: 0,
            load_core: 1,
        }
    }
}

/// What all rows work with.
struct Bench<'a> {
    options: &'a BenchOptions,
    folder: TempDir,
    nginx: bool,
}

/// A row's name and how it is measured. Names are what `only` filters.
type Measure = fn(&Bench<'_>) -> anyhow::Result<Vec<Row>>;

const ROWS: &[(&str, Measure)] = &[
    ("hit-5k", cpu::hit_5k),
    ("hit-1m", cpu::hit_1m),
    ("proxy-5k", cpu::proxy_5k),
    ("proxy-1m", cpu::proxy_1m),
    ("short-5k", cpu::short_5k),
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
    #[cfg(feature = "lab")]
    ("slow-reads", slow_reads::slow_reads),
];

/// Names of the rows, for [`BenchOptions::only`].
pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|(name, _)| *name)
}

/// Measures the first edge's table, prints it, and gives its rows. Progress goes to standard error.
///
/// Errors: a server does not start or answers wrongly under load, or the machine has too few cores.
pub fn first_edge(options: &BenchOptions) -> anyhow::Result<Vec<Row>> {
    let cores = std::thread::available_parallelism()?.get();
    anyhow::ensure!(
        cores > options.server_core.max(options.load_core),
        "the bench needs cores {} and {}, and this machine has {cores}",
        options.server_core,
        options.load_core
    );
    raise_descriptor_limit()?;
    let nginx = Nginx::version();
    match &nginx {
        Ok(version) => eprintln!("nginx {version}"),
        Err(missing) => eprintln!("{missing}: its column stays empty"),
    }
    let bench = Bench {
        options,
        folder: tempfile::Builder::new().prefix("lab-bench-").tempdir()?,
        nginx: nginx.is_ok(),
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
            // One broken row must not cost the others.
            Err(error) => rows.push(Row::failed(name, &error)),
        }
    }
    anyhow::ensure!(!rows.is_empty(), "no row has a name like that");
    println!("{}", render(&rows));
    Ok(rows)
}

/// Thousands of connections need as many descriptors as the system allows.
pub(crate) fn raise_descriptor_limit() -> anyhow::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("raising the limit of descriptors")
}

/// The median; for an even number the mean of the two in the middle.
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
    fn medians() {
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
        let error = first_edge(&options).expect_err("nothing to measure");
        assert!(error.to_string().contains("no row"), "{error}");
    }
}
