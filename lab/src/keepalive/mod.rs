//! The keepalive experiment: the cost of opening a connection to a far server for each request, and the settings of proxy
//! and server with which connections are reused.
//!
//! A proxy without a cache sends the requests of a few clients to a server at the other end of an emulated WAN link.
//! Five combinations (A to E) of the proxy's and the server's settings are measured with an idle server, two with a
//! heavily loaded one. Each measurement shows the six series that a proxy's access log can tell: the times to connect,
//! to the response head and to the end of the response of the upstream, the time of the request, its body bytes, and
//! the number of upstream requests.

mod case;
mod proxy;
mod report;
mod series;
mod sockets;
mod test_bed;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use case::{Case, Load};
pub use report::{Article, Connection, Measurement, Report};
pub use series::{Percentiles, Series, Window};
pub use sockets::SocketSample;

use crate::caches::{self, Rival};
use crate::wan::Profile;
use proxy::ProxyKind;
use test_bed::TestBed;

/// Length in bytes of each response's body: more than a new connection may send before the first acknowledgement.
pub const BODY: u64 = 32 << 10;

/// Bounds of the number of the proxy's clients.
pub const CLIENTS: std::ops::RangeInclusive<usize> = 1..=100;

/// Options of the experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Whether nginx, which must be installed then, is measured as well.
    pub nginx: bool,
    /// The link between proxy and server.
    pub profile: Profile,
    /// Whether a relay in this process delays bytes, in place of the emulator, which needs permissions.
    pub relay: bool,
    /// Number of the proxy's clients, each of which sends one request after the other.
    pub clients: usize,
    /// Duration in seconds of each measurement with an idle server.
    pub seconds: f64,
    /// Duration in seconds of each measurement with a loaded server.
    pub loaded_seconds: f64,
    /// Number of rounds, in which all measurements follow one another.
    pub rounds: usize,
    /// Seed of the link's losses and jitter.
    pub seed: u64,
}

impl Options {
    /// Returns options for Sluice alone and a link of 80 ms, which take two minutes and a half.
    pub fn new(program: impl Into<PathBuf>, profile: Profile) -> Options {
        Options {
            program: program.into(),
            nginx: false,
            profile,
            relay: false,
            clients: 5,
            seconds: 15.0,
            loaded_seconds: 30.0,
            rounds: 1,
            seed: 1,
        }
    }

    /// Shortens all durations to a few seconds each.
    pub fn quick(self) -> Options {
        Options {
            seconds: 4.0,
            loaded_seconds: 10.0,
            rounds: 1,
            ..self
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        self.profile.check()?;
        let seconds = [self.seconds, self.loaded_seconds];
        let in_bounds = |one: &f64| (0.5..=3600.0).contains(one);
        anyhow::ensure!(seconds.iter().all(in_bounds), "0.5 to 3600 seconds");
        anyhow::ensure!((1..=100).contains(&self.rounds), "1 to 100 rounds");
        anyhow::ensure!(CLIENTS.contains(&self.clients), "1 to 100 clients");
        Ok(())
    }

    fn seconds_of(&self, case: Case) -> f64 {
        match case.load {
            Load::Idle => self.seconds,
            Load::Heavy => self.loaded_seconds,
        }
    }
}

/// The way in which the link was emulated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkUsed {
    /// The notation of the link's profile.
    pub profile: String,
    /// Whether the link was the fallback: a relay of TCP connections, which is less exact.
    pub fallback: bool,
    /// Name of the server's congestion control, if the kernel says it.
    pub congestion_control: Option<String>,
}

/// Runs the experiment and reports progress to `progress`. If a measurement fails, the error becomes a note.
///
/// Errors: options out of bounds, nginx is required and not installed, or the emulator can't start.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Report> {
    options.check()?;
    let required: &[Rival] = if options.nginx { &[Rival::Nginx] } else { &[] };
    let rivals = caches::rivals(required, &[])?;
    let mut proxies = vec![ProxyKind::Sluice(options.program.clone())];
    proxies.extend(options.nginx.then_some(ProxyKind::Nginx));
    let bed = TestBed::start(options)?;
    let mut report = Report::new(options, rivals.versions.into_iter().next());
    report.link.congestion_control = bed.congestion_control();
    for round in 1..=options.rounds {
        for case in Case::all() {
            for proxy in &proxies {
                let name = format!("{} {}", proxy.name(), case.name);
                progress(&format!("round {round} of {}: {name}", options.rounds));
                match bed.measure(proxy, case, options, &mut report.configurations) {
                    Ok(measurement) => report.measurements.push(measurement),
                    Err(error) => {
                        progress(&format!("{name}: {error:#}"));
                        report
                            .notes
                            .push(format!("{name}: not measured: {error:#}"));
                    }
                }
            }
        }
    }
    Ok(report)
}
