//! The ramp experiment: small files, one connection for each request, at a rate that rises until the server does not
//! follow. What rate is held with a good median, and what is the 99th percentile at half of it?
//!
//! All loads are open loops: latencies count from when a request ought to have been sent.

mod climb;
mod report;

use std::path::PathBuf;

use serde::Serialize;

use crate::bench::raise_descriptor_limit;
use crate::caches::{self, Rival};
use crate::figures::{self, Figure, Measured, Spec};
use crate::load::Window;

/// The median up to which a rate counts as held, in microseconds.
pub const GOOD_US: f64 = 1100.0;

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Whether nginx goes through the same; it is an error then if it is not installed.
    pub nginx: bool,
    /// Ramps of each server, and runs at half of the rate; medians count.
    pub rounds: usize,
    /// Seconds in which the rate rises to more than can be held.
    pub seconds: f64,
    /// Seconds of a run at half of the rate.
    pub half_seconds: f64,
    /// Seconds of the runs that find out how far the rate has to rise.
    pub probe_seconds: f64,
}

impl Options {
    /// Three rounds of Sluice alone, a minute and a half.
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

    /// The same in a few seconds, to see that it works.
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
            Spec::new("p50", "median at half of that", "ms"),
            Spec::new("p99", "p99 at half of that", "ms"),
        ];
        if self.nginx {
            specs.extend([
                Spec::new("held_ratio", "rate held / nginx's", "").least(1.05),
                Spec::new("p99_ratio", "p99, each at half of its own / nginx's", "").most(1.0),
                Spec::new("p99_same", "p99 at half of nginx's rate / nginx's", ""),
            ]);
        }
        specs
    }
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Ramps and runs whose medians count.
    pub rounds: usize,
    /// Seconds of a ramp.
    pub seconds: f64,
    /// Requests a second at its beginning and its end.
    pub rates: (f64, f64),
    /// The median up to which a rate counts as held, in microseconds.
    pub good_us: f64,
    /// The rival's name and version, if one was measured.
    pub rival: Option<String>,
    /// Figures and goals.
    pub figures: Vec<Figure>,
    /// Every ramp.
    pub ramps: Vec<Ramp>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

/// One ramp of one server.
#[derive(Debug, Clone, Serialize)]
pub struct Ramp {
    /// The server.
    pub name: String,
    /// The rate that was held, in requests a second.
    pub held: f64,
    /// Whether the load generator's core was nearly used up then: the server may have held more.
    pub limited: bool,
    /// Requests that failed.
    pub errors: u64,
    /// What it was like at each time.
    pub windows: Vec<Window>,
}

/// Measures, with lines of progress for `tell`.
///
/// Errors: options out of bounds, a rival that is not installed, less than two cores, or a server that does not start.
pub fn run(options: &Options, tell: &dyn Fn(&str)) -> anyhow::Result<Report> {
    options.check()?;
    raise_descriptor_limit()?;
    let asked: &[Rival] = if options.nginx { &[Rival::Nginx] } else { &[] };
    let rivals = caches::rivals(asked, &[])?;
    let climbed = climb::measure(options, tell)?;
    let mut sluice = figures_of(&climbed.sluice);
    let nginx = climbed.nginx.as_ref().map(figures_of);
    if let Some(rival) = &climbed.nginx {
        if rival.held > 0.0 {
            sluice.put("held_ratio", climbed.sluice.held / rival.held);
        }
        sluice.put("p99_ratio", climbed.sluice.p99_us / rival.p99_us);
        if let Some(same) = climbed.same_p99_us {
            sluice.put("p99_same", same / rival.p99_us);
        }
    }
    Ok(Report {
        rounds: options.rounds,
        seconds: options.seconds,
        rates: climbed.rates,
        good_us: GOOD_US,
        rival: rivals.versions.into_iter().next(),
        figures: figures::compare(options.specs(), &sluice, nginx.as_ref()),
        ramps: climbed.ramps,
        notes: climbed.notes,
    })
}

fn figures_of(one: &climb::Climbed) -> Measured {
    let mut measured = Measured::default();
    measured.put("held", one.held);
    measured.put("p50", one.p50_us / 1000.0);
    measured.put("p99", one.p99_us / 1000.0);
    measured
}
