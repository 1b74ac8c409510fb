//! The caching experiment measures how crowds of clients, failing origins and short lifetimes affect the origin and the
//! clients.
//!
//! All servers run on loopback with the lab's origin. All parts are measured with Sluice first, then with a rival if that
//! was requested.

mod crowd;
mod dead;
mod micro;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::bench::{Sluice, SluiceOptions, raise_descriptor_limit};
use crate::caches::{self, Cache, Capacity, Rival, Running};
use crate::client;
use crate::configurations::Configurations;
use crate::figures::{self, Figure, Measured, Spec};
use crate::rivals::{NginxMode, RangeMode};

/// A part of the caching experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Many clients request an object that is not stored yet, at the same time.
    Crowd,
    /// Many clients request an object that must not be stored.
    Uncacheable,
    /// The origin fails, and clients request stale objects that may be served.
    Dead,
    /// Clients request a page that is generated slowly and is fresh for a second.
    Micro,
}

impl Part {
    /// All parts, in the order in which they run.
    pub const ALL: [Part; 4] = [Part::Crowd, Part::Uncacheable, Part::Dead, Part::Micro];
}

impl FromStr for Part {
    type Err = String;

    fn from_str(name: &str) -> Result<Part, String> {
        match name {
            "crowd" => Ok(Part::Crowd),
            "uncacheable" => Ok(Part::Uncacheable),
            "dead" => Ok(Part::Dead),
            "micro" => Ok(Part::Micro),
            _ => Err("crowd, uncacheable, dead or micro".to_owned()),
        }
    }
}

/// Options of the caching experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// Path of the `sluice` program.
    pub program: PathBuf,
    /// The rival that is measured as well. It must be installed then.
    pub against: Option<Rival>,
    /// Parts to run; if empty, all parts.
    pub parts: Vec<Part>,
    /// Duration in seconds of the load in each of the parts `dead` and `micro`.
    pub seconds: f64,
    /// Number of concurrent clients that request one object.
    pub clients: usize,
    /// Rate in requests per second of the loads that have a constant rate.
    pub rate: f64,
}

impl Options {
    /// Returns the default options: 1,000 clients, one minute, 2,000 requests per second, and Sluice alone.
    pub fn new(program: impl Into<PathBuf>) -> Options {
        Options {
            program: program.into(),
            against: None,
            parts: Vec::new(),
            seconds: 60.0,
            clients: 1000,
            rate: 2000.0,
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        let within = |least: f64, value: f64, most: f64| (least..=most).contains(&value);
        anyhow::ensure!(within(0.1, self.seconds, 3600.0), "0.1 to 3600 seconds");
        anyhow::ensure!((4..=5000).contains(&self.clients), "4 to 5000 clients");
        anyhow::ensure!(
            within(1.0, self.rate, 1e6),
            "1 to 1000000 requests per second"
        );
        Ok(())
    }

    fn wants(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }
}

/// Result of the caching experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Duration in seconds of the load in each of the parts `dead` and `micro`.
    pub seconds: f64,
    /// Number of concurrent clients that requested one object.
    pub clients: usize,
    /// Rate in requests per second of the loads that had a constant rate.
    pub rate: f64,
    /// Name and version of the server that Sluice was compared with, if there was one.
    pub rival: Option<String>,
    /// Measured figures with their goals.
    pub figures: Vec<Figure>,
    /// Configurations of the servers.
    pub configurations: Configurations,
    /// Remarks, including figures that could not be measured and the reason.
    pub notes: Vec<String>,
}

impl Report {
    /// Renders the table of figures and the remarks as text.
    pub fn render(&self) -> String {
        let mut text = format!(
            "{} clients, loads of {} s, {} requests/s\n\n",
            self.clients, self.seconds, self.rate
        );
        text.push_str(&figures::render(&self.figures, self.rival.as_deref()));
        for note in &self.notes {
            text.push_str(&format!("{note}\n"));
        }
        text
    }
}

/// Runs the experiment. Messages about its progress are passed to `progress`.
///
/// Errors: options are out of bounds, or the rival is not installed. A part that can't be measured becomes a note.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Report> {
    options.check()?;
    raise_descriptor_limit()?;
    let rivals = caches::rivals(options.against.as_slice(), &[])?;
    let parts = || Part::ALL.into_iter().filter(|part| options.wants(*part));
    let sluice = measure(ServerKind::Sluice, parts(), options, progress);
    let rival = options.against.map(|rival| {
        let kind = ServerKind::Rival(rival);
        measure(
            kind,
            parts().filter(|part| part.suits(rival)),
            options,
            progress,
        )
    });
    let specs = parts().flat_map(|part| part.specs(options)).collect();
    let mut notes = rivals.notes;
    notes.extend(sluice.notes.iter().cloned());
    notes.extend(rival.iter().flat_map(|rival| rival.notes.clone()));
    let figures = figures::compare(specs, &sluice, rival.as_ref());
    let mut configurations = sluice.configurations;
    configurations.append(rival.unwrap_or_default().configurations);
    Ok(Report {
        seconds: options.seconds,
        clients: options.clients,
        rate: options.rate,
        rival: rivals.versions.into_iter().next(),
        figures,
        configurations,
        notes,
    })
}

/// Runs all selected parts with one server.
fn measure(
    kind: ServerKind,
    parts: impl Iterator<Item = Part>,
    options: &Options,
    progress: &dyn Fn(&str),
) -> Measured {
    let mut measured = Measured::default();
    for part in parts {
        let bed = TestBed {
            kind,
            options,
            progress,
        };
        let name = format!("{}: {part:?}", kind.name());
        measured.part(&name, progress, |measured| part.measure(&bed, measured));
    }
    measured
}

impl Part {
    /// Whether the part is measured for a rival. `uncacheable` compares two routes of one process of Sluice. `dead` and
    /// `micro` need settings for stale responses, which each rival has under other names; the lab knows those of nginx.
    fn suits(self, rival: Rival) -> bool {
        match self {
            Part::Crowd => true,
            Part::Uncacheable => false,
            Part::Dead | Part::Micro => rival == Rival::Nginx,
        }
    }

    fn specs(self, options: &Options) -> Vec<Spec> {
        match self {
            Part::Crowd => crowd::specs(options),
            Part::Uncacheable => crowd::uncacheable_specs(options),
            Part::Dead => dead::specs(),
            Part::Micro => micro::specs(options),
        }
    }

    fn measure(self, bed: &TestBed<'_>, measured: &mut Measured) -> anyhow::Result<()> {
        match self {
            Part::Crowd => crowd::measure(bed, measured),
            Part::Uncacheable => crowd::measure_uncacheable(bed, measured),
            Part::Dead => dead::measure(bed, measured),
            Part::Micro => micro::measure(bed, measured),
        }
    }
}

/// The kind of server that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerKind {
    Sluice,
    Rival(Rival),
}

impl ServerKind {
    fn name(self) -> &'static str {
        match self {
            ServerKind::Sluice => "Sluice",
            ServerKind::Rival(rival) => rival.program().name,
        }
    }
}

/// Everything that the measurement of one part needs: the server program, the options, and the output for progress.
struct TestBed<'a> {
    kind: ServerKind,
    options: &'a Options,
    progress: &'a dyn Fn(&str),
}

/// Time in milliseconds after which the server treats a silent origin as failed.
const SILENCE_MS: u64 = 1000;

/// Sluice's cache settings for the part `micro`: a lifetime of one second, and revalidation in the background.
const MICRO: [(&str, &str); 2] = [
    ("valid", "{ 200 = \"1s\" }"),
    ("stale_while_revalidate", "\"30s\""),
];

/// Size in bytes of each cache.
const MEMORY: u64 = 256 << 20;

impl TestBed<'_> {
    fn progress(&self, what: &str) {
        (self.progress)(&format!("{}: {what}", self.kind.name()));
    }

    /// Starts a server with an empty cache and one worker per core. `settings` are cache settings of Sluice; the
    /// configuration of nginx has equivalent ones. The server's configuration is added to `measured`.
    fn start(
        &self,
        origin: SocketAddr,
        settings: &[(&str, &str)],
        measured: &mut Measured,
    ) -> anyhow::Result<Running> {
        self.start_with(origin, settings, &[], measured)
    }

    /// Starts a server as `start` does, which treats a silent origin as failed after [`SILENCE_MS`].
    fn start_impatient(
        &self,
        origin: SocketAddr,
        settings: &[(&str, &str)],
        measured: &mut Measured,
    ) -> anyhow::Result<Running> {
        let silence = format!("\"{SILENCE_MS}ms\"");
        let upstream = [("connect_timeout", &*silence), ("read_timeout", &silence)];
        self.start_with(origin, settings, &upstream, measured)
    }

    fn start_with(
        &self,
        origin: SocketAddr,
        settings: &[(&str, &str)],
        upstream: &[(&str, &str)],
        measured: &mut Measured,
    ) -> anyhow::Result<Running> {
        let running = match self.kind {
            ServerKind::Sluice => {
                let options = self.sluice(origin, settings, upstream);
                Running::Sluice(Box::new(Sluice::start(&options)?))
            }
            ServerKind::Rival(rival) => {
                let cache = match rival {
                    Rival::Nginx => Cache::Nginx(NginxMode::Graceful(SILENCE_MS)),
                    Rival::Varnish => Cache::Varnish,
                    Rival::TrafficServer => Cache::TrafficServer(RangeMode::Forwarded),
                    Rival::Apache => Cache::Apache,
                    Rival::Squid => Cache::Squid,
                };
                let capacity = Capacity {
                    memory: MEMORY,
                    workers: workers(),
                };
                cache.start(origin, capacity)?
            }
        };
        measured
            .configurations
            .keep(self.kind.name(), running.configuration());
        Ok(running)
    }

    fn sluice(
        &self,
        origin: SocketAddr,
        settings: &[(&str, &str)],
        upstream: &[(&str, &str)],
    ) -> SluiceOptions {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let upstream = [&[("keepalive", "5000")], upstream].concat();
        SluiceOptions {
            memory: Some(MEMORY.to_string()),
            fill: "auto".to_owned(),
            cache: settings.iter().copied().map(owned).collect(),
            upstream: upstream.into_iter().map(owned).collect(),
            workers: workers(),
            ..SluiceOptions::new(&self.options.program, origin)
        }
    }
}

fn workers() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Most requests of `fill`.
const FILL_TRIES: u32 = 5;

/// Requests a path, so that the server stores the response. If the machine pauses, a server may treat the origin as
/// silent, and the path is requested again.
fn fill(server: SocketAddr, path: &str) -> anyhow::Result<()> {
    for _ in 1..FILL_TRIES {
        if client::get(server, path, &[])?.status == 200 {
            return Ok(());
        }
    }
    let reply = client::get(server, path, &[])?;
    anyhow::ensure!(reply.status == 200, "{path}: status {}", reply.status);
    Ok(())
}

/// Waits until responses with this lifetime are stale. A second is added because caching headers count in whole
/// seconds.
fn wait_until_stale(lifetime: Duration) {
    thread::sleep(lifetime + Duration::from_millis(1100));
}
