//! The ramp experiment: small files, one connection per request, at a rate that rises until the server falls behind.
//! Measures the highest rate with a good median, and the 99th percentile at half of that rate.
//!
//! All loads are open loops: latencies count from the scheduled time of a request.

pub(crate) mod climb;
pub(crate) mod report;
pub(crate) mod servers;

use std::path::PathBuf;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::bench::raise_descriptor_limit;
use crate::caches::{self, Rival};
use crate::configurations::Configurations;
use crate::figures::{self, Figure, Measured, Spec};
use crate::load::Window;

pub use servers::StaticRival;

/// A server holds a rate if its median latency at that rate is at most this many microseconds.
pub const GOOD_US: f64 = 1100.0;

/// Options of the experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Whether nginx, which must be installed then, is measured as well.
    pub nginx: bool,
    /// Number of ramps of each server, and of runs at half of the rate that the server held. The medians are the result.
    pub rounds: usize,
    /// Duration of a ramp in seconds.
    pub seconds: f64,
    /// Duration of a run at half of the held rate, in seconds.
    pub half_seconds: f64,
    /// Duration of the runs that find the maximum throughput, in seconds.
    pub probe_seconds: f64,
}

impl Options {
    /// Returns options for three rounds of Sluice alone, which take 90 seconds.
    pub fn new(program: impl Into<PathBuf>) -> Options {
        Options {
            program: program.into(),
            nginx: false,
            rounds: 3,
            seconds: 20.0,
            half_seconds: 10.0,
            probe_seconds: 1.0,
        }
    }

    /// Shortens all durations to a few seconds in total, only to show that the experiment works.
    pub fn quick(self) -> Options {
        Options {
            rounds: 1,
            seconds: 2.0,
            half_seconds: 1.0,
            probe_seconds: 0.2,
            ..self
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        let seconds = [self.seconds, self.half_seconds, self.probe_seconds];
        anyhow::ensure!(
            seconds.iter().all(|one| (0.1..=3600.0).contains(one)),
            "0.1 to 3600 seconds"
        );
        anyhow::ensure!((1..=100).contains(&self.rounds), "1 to 100 rounds");
        Ok(())
    }

    fn specs(&self) -> Vec<Spec> {
        let good = GOOD_US / 1000.0;
        let mut specs = vec![
            Spec::new("held", format!("held with a median of {good} ms"), "/s"),
            Spec::new("p50", "median at half of that rate", "ms"),
            Spec::new("p99", "p99 at half of that rate", "ms"),
        ];
        if self.nginx {
            specs.extend([
                Spec::new("held_ratio", "rate held / nginx's", "").least(1.05),
                Spec::new("p99_ratio", "p99 at half of the own rate / nginx's", "").most(1.0),
                Spec::new("p99_same", "p99 at half of nginx's rate / nginx's", ""),
            ]);
        }
        specs
    }
}

/// Result of the experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Number of ramps and runs whose medians count.
    pub rounds: usize,
    /// Duration of a ramp in seconds.
    pub seconds: f64,
    /// First and last rate of a ramp in requests per second.
    pub rates: (f64, f64),
    /// A server holds a rate if its median latency at that rate is at most this many microseconds.
    pub good_us: f64,
    /// Name and version of the rival, if one was measured.
    pub rival: Option<String>,
    /// Figures with their goals.
    pub figures: Vec<Figure>,
    /// All ramps.
    pub ramps: Vec<Ramp>,
    /// Configurations of the servers, including those that were slower than another one of the same server.
    pub configurations: Configurations,
    /// Remarks.
    pub notes: Vec<String>,
}

/// One ramp of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ramp {
    /// Name of the server.
    pub name: String,
    /// The held rate: the highest rate with a good median latency, in requests per second.
    pub held: f64,
    /// Whether the load generator's core was nearly saturated at the held rate, so that the server may hold more.
    pub limited: bool,
    /// Requests that failed.
    pub errors: u64,
    /// Measurements over time.
    pub windows: Vec<Window>,
}

/// Runs the experiment and reports progress to `progress`.
///
/// Errors: options out of bounds, a rival that is not installed, fewer than two cores, or a server that does not
/// start.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Report> {
    options.check()?;
    raise_descriptor_limit()?;
    let required: &[Rival] = if options.nginx { &[Rival::Nginx] } else { &[] };
    let rivals = caches::rivals(required, &[])?;
    let results = climb::measure(options, progress)?;
    let (own, others) = results.servers.split_first().context("Sluice")?;
    let mut sluice = figures_of(own);
    let nginx = others.first().map(figures_of);
    if let Some(rival) = others.first() {
        if rival.held > 0.0 {
            sluice.put("held_ratio", own.held / rival.held);
        }
        for (key, p99) in [("p99_ratio", own.p99_us), ("p99_same", rival.same_p99_us)] {
            if let (Some(own), Some(rival)) = (p99, rival.p99_us) {
                sluice.put(key, own / rival);
            }
        }
    }
    Ok(Report {
        rounds: options.rounds,
        seconds: options.seconds,
        rates: results.rates,
        good_us: GOOD_US,
        rival: rivals.versions.into_iter().next(),
        figures: figures::compare(options.specs(), &sluice, nginx.as_ref()),
        ramps: results.ramps,
        configurations: results.configurations,
        notes: results.notes,
    })
}

fn figures_of(one: &climb::ServerResult) -> Measured {
    let mut measured = Measured::default();
    measured.put("held", one.held);
    for (key, us) in [("p50", one.p50_us), ("p99", one.p99_us)] {
        if let Some(us) = us {
            measured.put(key, us / 1000.0);
        }
    }
    measured
}
