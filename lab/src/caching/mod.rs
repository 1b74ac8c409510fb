//! The caching experiment: what a crowd, a dead origin and a page that lives for a second cost the origin and the clients.
//!
//! Everything runs on loopback with the lab's own origin, in this order for Sluice and then for the rival.

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
use crate::caches::{self, Rival};
use crate::client;
use crate::figures::{self, Figure, Measured, Spec};
use crate::rivals::{Nginx, NginxMode, NginxOptions};

/// A part of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Many clients ask at once for one object that nobody has asked for.
    Crowd,
    /// They ask for one that must not be stored.
    Uncacheable,
    /// The origin dies, and what is stale may be used.
    Dead,
    /// A page that is made slowly and lives for a second.
    Micro,
}

impl Part {
    /// All, in their order.
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

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Whether nginx goes through the same; it is an error then if it is not installed.
    pub nginx: bool,
    /// Which parts; all if there are none.
    pub parts: Vec<Part>,
    /// How long the load lasts while the origin is dead, and on the page that lives for a second.
    pub seconds: f64,
    /// Clients of a crowd.
    pub clients: usize,
    /// Requests a second of loads with a constant rate.
    pub rate: f64,
}

impl Options {
    /// A thousand clients, a minute, 2,000 requests a second, Sluice alone.
    pub fn new(program: impl Into<PathBuf>) -> Options {
        Options {
            program: program.into(),
            nginx: false,
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
            "1 to 1000000 requests a second"
        );
        Ok(())
    }

    fn wants(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Seconds of the longer loads.
    pub seconds: f64,
    /// Clients of a crowd.
    pub clients: usize,
    /// Requests a second of loads with a constant rate.
    pub rate: f64,
    /// The rival's name and version, if one was measured.
    pub rival: Option<String>,
    /// Figures and goals.
    pub figures: Vec<Figure>,
    /// What else is worth knowing, and what could not be measured.
    pub notes: Vec<String>,
}

impl Report {
    /// The table and the notes.
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

/// Measures, with lines of progress for `tell`.
///
/// Errors: options out of bounds, or a rival that is not installed. What can't be measured is a note.
pub fn run(options: &Options, tell: &dyn Fn(&str)) -> anyhow::Result<Report> {
    options.check()?;
    raise_descriptor_limit()?;
    let asked: &[Rival] = if options.nginx { &[Rival::Nginx] } else { &[] };
    let rivals = caches::rivals(asked, &[])?;
    let parts = || Part::ALL.into_iter().filter(|part| options.wants(*part));
    let sluice = measure(Who::Sluice, parts(), options, tell);
    let nginx = options
        .nginx
        .then(|| measure(Who::Nginx, parts(), options, tell));
    let specs = parts().flat_map(|part| part.specs(options)).collect();
    let mut notes = rivals.notes;
    notes.extend(sluice.notes.iter().cloned());
    notes.extend(nginx.iter().flat_map(|nginx| nginx.notes.clone()));
    Ok(Report {
        seconds: options.seconds,
        clients: options.clients,
        rate: options.rate,
        rival: rivals.versions.into_iter().next(),
        figures: figures::compare(specs, &sluice, nginx.as_ref()),
        notes,
    })
}

/// All parts with one server.
fn measure(
    who: Who,
    parts: impl Iterator<Item = Part>,
    options: &Options,
    tell: &dyn Fn(&str),
) -> Measured {
    let mut measured = Measured::default();
    for part in parts {
        let bed = Bed { who, options, tell };
        let name = format!("{}: {part:?}", who.name());
        measured.part(&name, tell, |measured| part.measure(&bed, measured));
    }
    measured
}

impl Part {
    fn specs(self, options: &Options) -> Vec<Spec> {
        match self {
            Part::Crowd => crowd::specs(options),
            Part::Uncacheable => crowd::uncacheable_specs(options),
            Part::Dead => dead::specs(),
            Part::Micro => micro::specs(options),
        }
    }

    fn measure(self, bed: &Bed<'_>, measured: &mut Measured) -> anyhow::Result<()> {
        match self {
            Part::Crowd => crowd::measure(bed, measured),
            Part::Uncacheable => crowd::measure_uncacheable(bed, measured),
            Part::Dead => dead::measure(bed, measured),
            Part::Micro => micro::measure(bed, measured),
        }
    }
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Sluice,
    Nginx,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::Sluice => "Sluice",
            Who::Nginx => "nginx",
        }
    }
}

/// One server's turn at a part.
struct Bed<'a> {
    who: Who,
    options: &'a Options,
    tell: &'a dyn Fn(&str),
}

/// An origin that is silent for so long counts as failed.
const SILENCE_MS: u64 = 1000;

/// How long a page of the part `micro` lives, and what is fetched anew behind its back, by the configuration.
const MICRO: [(&str, &str); 2] = [
    ("valid", "{ 200 = \"1s\" }"),
    ("stale_while_revalidate", "\"30s\""),
];

enum Server {
    Sluice(Box<Sluice>),
    Nginx(Nginx),
}

impl Server {
    fn addr(&self) -> SocketAddr {
        match self {
            Server::Sluice(sluice) => sluice.addr(),
            Server::Nginx(nginx) => nginx.addr(),
        }
    }
}

impl Bed<'_> {
    fn tell(&self, what: &str) {
        (self.tell)(&format!("{}: {what}", self.who.name()));
    }

    /// Starts the server, empty, with two workers. `settings` are Sluice's; nginx has its own way to say the same.
    fn start(&self, origin: SocketAddr, settings: &[(&str, &str)]) -> anyhow::Result<Server> {
        match self.who {
            Who::Sluice => {
                let options = self.sluice(origin, settings);
                Ok(Server::Sluice(Box::new(Sluice::start(&options)?)))
            }
            Who::Nginx => {
                let mode = NginxMode::Graceful(SILENCE_MS);
                let mut options = NginxOptions::new(mode, Some(origin));
                options.workers = workers();
                Ok(Server::Nginx(Nginx::start(&options)?))
            }
        }
    }

    fn sluice(&self, origin: SocketAddr, settings: &[(&str, &str)]) -> SluiceOptions {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let silence = format!("\"{SILENCE_MS}ms\"");
        let upstream = [
            ("connect_timeout", silence.as_str()),
            ("read_timeout", &silence),
            ("keepalive", "5000"),
        ];
        SluiceOptions {
            memory: Some("256MiB".to_owned()),
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

/// Asks once, for a whole and right answer.
fn fill(server: SocketAddr, path: &str) -> anyhow::Result<()> {
    let reply = client::get(server, path, &[])?;
    anyhow::ensure!(reply.status == 200, "{path}: status {}", reply.status);
    Ok(())
}

/// Waits as long as what is stored needs to become stale. What a cache knows of time counts in whole seconds.
fn let_go_stale(lifetime: Duration) {
    thread::sleep(lifetime + Duration::from_millis(1100));
}
