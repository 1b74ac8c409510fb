//! The experiment of static files: small files from one worker to saturation, at a rising rate, and over thousands of
//! connections, with CPU time, memory over time, and the cost of a user. Sluice and other servers do the same work in
//! turns.

mod comparison;
mod connections;
mod cost;
mod report;
mod rising;
mod saturation;
mod watch;

use std::path::PathBuf;

use crate::scratch::Folder;
use anyhow::Context as _;
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use crate::bench::raise_descriptor_limit;
use crate::configurations::Configurations;
use crate::ramp::climb::{self, Contender};
use crate::ramp::servers::Candidate;
use crate::ramp::{GOOD_US, Ramp, StaticRival};
use crate::rivals::version_of;

pub use comparison::{Comparison, FIGURES};
pub use connections::{Connections, ConnectionsRun};
pub use cost::{Capacity, Cost, Price};
pub use rising::{Replies, Rising, RisingRun};
pub use saturation::{Saturation, SaturationRun};
pub use watch::Sample;

/// Most connections that stay open at a time. All servers are configured for this number.
pub const CONNECTIONS_MAX: usize = 16_000;

/// Descriptors that the lab and the servers need besides those of the connections.
const OTHER_DESCRIPTORS: usize = 500;

/// If both server and load generator use less than this share of their cores at saturation, other processes use them.
const QUIET: f64 = 0.7;

/// Share of the duration of the rising load for which each saturation lasts.
const SATURATION_SHARE: f64 = 0.25;

/// Options of the experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Servers to compare with, which must be installed; if empty, all installed ones.
    pub against: Vec<StaticRival>,
    /// Whether only Sluice is measured.
    pub alone: bool,
    /// Number of rounds, whose medians are the result.
    pub rounds: usize,
    /// Duration in seconds of a rising load and of a load of many connections. Each saturation takes a quarter of it.
    pub seconds: f64,
    /// Duration of the runs that find the maximum throughput, in seconds.
    pub probe_seconds: f64,
    /// Number of connections that stay open at the same time, up to [`CONNECTIONS_MAX`].
    pub connections: usize,
    /// Price of the machine, and the requests of a user.
    pub price: Price,
}

impl Options {
    /// Returns options for three rounds against all installed servers, which take about ten minutes.
    pub fn new(program: impl Into<PathBuf>) -> Options {
        Options {
            program: program.into(),
            against: Vec::new(),
            alone: false,
            rounds: 3,
            seconds: 20.0,
            probe_seconds: 1.0,
            connections: 10_000,
            price: Price::default(),
        }
    }

    /// Shortens the experiment to one round of a few seconds and 1,000 connections at most, only to show that it works.
    pub fn quick(self) -> Options {
        Options {
            rounds: 1,
            seconds: 2.0,
            probe_seconds: 0.2,
            connections: self.connections.min(1000),
            ..self
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        let seconds = [self.seconds, self.probe_seconds];
        anyhow::ensure!(
            seconds.iter().all(|one| (0.1..=3600.0).contains(one)),
            "0.1 to 3600 seconds"
        );
        anyhow::ensure!((1..=100).contains(&self.rounds), "1 to 100 rounds");
        anyhow::ensure!(
            (1..=CONNECTIONS_MAX).contains(&self.connections),
            "1 to {CONNECTIONS_MAX} connections"
        );
        let Price {
            per_hour,
            currency,
            requests_per_user,
        } = &self.price;
        anyhow::ensure!(
            (1e-6..=1e6).contains(per_hour),
            "a price per hour from 0.000001 to 1,000,000"
        );
        anyhow::ensure!(
            (1e-6..=1e6).contains(requests_per_user),
            "0.000001 to 1,000,000 requests per second of a user"
        );
        let is_short = (1..=8).contains(&currency.chars().count());
        anyhow::ensure!(
            is_short && !currency.chars().any(char::is_control),
            "a currency of 1 to 8 characters"
        );
        Ok(())
    }
}

/// Result of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Number of rounds.
    pub rounds: usize,
    /// Duration in seconds of each rising load and of each load of many connections.
    pub seconds: f64,
    /// Duration of each saturation in seconds.
    pub saturation_seconds: f64,
    /// Number of files, which are requested in turn.
    pub files: u64,
    /// Length of each file in bytes.
    pub file_bytes: u64,
    /// Number of concurrent requests of each saturation.
    pub clients: usize,
    /// Number of connections that stay open at the same time.
    pub connections: usize,
    /// First and last rate of the rising load, in requests per second.
    pub rates: (f64, f64),
    /// A server holds a rate if its median latency at that rate is at most this many microseconds.
    pub good_us: f64,
    /// Price of the machine, and the requests of a user.
    pub price: Price,
    /// Results of the servers, of which Sluice is the first.
    pub servers: Vec<ServerReport>,
    /// Sluice's figures beside those of each rival.
    pub comparisons: Vec<Comparison>,
    /// Configurations of the servers, including those that were slower than another one of the same server.
    pub configurations: Configurations,
    /// Remarks: servers that are not installed, parts that were not measured, failed requests, limits of the load
    /// generator.
    pub notes: Vec<String>,
}

/// Results of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerReport {
    /// Name of the server.
    pub name: String,
    /// Name of the server with the measured configuration, if there are several: the one with the highest throughput.
    pub variant: String,
    /// Version of the server; `None` if its program prints none.
    pub version: Option<String>,
    /// Saturation over connections that stay open.
    pub keepalive: Saturation,
    /// Saturation with a connection for each request.
    pub close: Saturation,
    /// Short connections at a rising rate.
    pub rising: Rising,
    /// Memory and latency with many open connections.
    pub connections: Connections,
    /// Users that the server serves and their cost, for each capacity that was measured.
    pub costs: Vec<Cost>,
}

/// A part of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Keepalive,
    Close,
    Rising,
    Connections,
}

impl Part {
    const ALL: [Part; 4] = [
        Part::Keepalive,
        Part::Close,
        Part::Rising,
        Part::Connections,
    ];

    fn name(self) -> &'static str {
        match self {
            Part::Keepalive => "saturation, keepalive",
            Part::Close => "saturation, a connection each",
            Part::Rising => "rising load",
            Part::Connections => "many connections",
        }
    }
}

/// Runs the experiment and reports progress to `progress`.
///
/// Errors: options out of bounds, too few descriptors for the connections, fewer than two cores, a required server that
/// is not installed, or a server that does not start.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Report> {
    options.check()?;
    climb::ensure_two_cores()?;
    raise_descriptor_limit()?;
    check_descriptors(options.connections, getrlimit(Resource::Nofile).current)?;
    let (mut bed, mut notes) = TestBed::start(options, progress)?;
    for round in 1..=options.rounds {
        for part in Part::ALL {
            for place in 0..bed.entrants.len() {
                let name = bed.entrants[place].name;
                let what = format!("round {round}, {}, {name}", part.name());
                match bed.measure(part, place) {
                    Ok(line) => progress(&format!("{what}: {line}")),
                    Err(error) => {
                        let error = format!("{error:#}");
                        let first = error.lines().next().unwrap_or_default();
                        progress(&format!("{what}: not measured: {error}"));
                        notes.push(format!("{what}: not measured: {first}"));
                    }
                }
            }
        }
    }
    Ok(bed.report(notes))
}

/// Fails if a process may have too few descriptors for this many connections.
fn check_descriptors(connections: usize, limit: Option<u64>) -> anyhow::Result<()> {
    let needed = connections + OTHER_DESCRIPTORS;
    match limit {
        Some(limit) if limit < needed as u64 => anyhow::bail!(
            "{connections} connections need {needed} descriptors in the lab and in each server, and a process may have \
             {limit} here (ulimit -Hn): at most {} connections",
            limit.saturating_sub(OTHER_DESCRIPTORS as u64)
        ),
        _ => Ok(()),
    }
}

/// A server that takes part, with its results so far.
struct Entrant {
    name: &'static str,
    version: Option<String>,
    contender: Contender,
    keepalive: Vec<SaturationRun>,
    close: Vec<SaturationRun>,
    rising: Vec<RisingRun>,
    connections: Vec<ConnectionsRun>,
}

impl Entrant {
    fn new(name: &'static str, version: Option<String>, contender: Contender) -> Entrant {
        Entrant {
            name,
            version,
            contender,
            keepalive: Vec::new(),
            close: Vec::new(),
            rising: Vec::new(),
            connections: Vec::new(),
        }
    }

    fn report(self, price: &Price) -> ServerReport {
        let keepalive = Saturation::of(self.keepalive);
        let close = Saturation::of(self.close);
        let rising = Rising::of(self.rising);
        let capacities = [
            (Capacity::Keepalive, &keepalive.rate),
            (Capacity::Close, &close.rate),
            (Capacity::Held, &rising.held),
        ];
        let cost = |(capacity, rate): (Capacity, &Option<_>)| {
            rate.as_ref()
                .and_then(|rate| Cost::of(price, capacity, rate))
        };
        ServerReport {
            name: self.name.to_owned(),
            variant: self.contender.name().to_owned(),
            version: self.version,
            costs: capacities.into_iter().filter_map(cost).collect(),
            keepalive,
            close,
            rising,
            connections: Connections::of(self.connections),
        }
    }
}

/// The running servers and their files.
struct TestBed<'a> {
    options: &'a Options,
    entrants: Vec<Entrant>,
    configurations: Configurations,
    rates: (f64, f64),
    folder: Folder,
}

impl TestBed<'_> {
    /// Writes the files, and starts Sluice and the servers to compare with. Returns the test bed, and remarks about
    /// servers that are missing.
    fn start<'a>(
        options: &'a Options,
        progress: &dyn Fn(&str),
    ) -> anyhow::Result<(TestBed<'a>, Vec<String>)> {
        let (rivals, mut notes) = rivals(options)?;
        let folder = Folder::new("lab-static-")?;
        climb::files(folder.path())?;
        let mut configurations = Configurations::default();
        let mut start = |candidates| {
            Contender::fastest(
                candidates,
                folder.path(),
                options.probe_seconds,
                &mut configurations,
                progress,
            )
        };
        let version = version_of(&options.program, "--version").ok();
        let sluice = start(vec![Candidate::Sluice(options.program.clone())])?;
        let mut entrants = vec![Entrant::new("Sluice", version, sluice)];
        for rival in rivals {
            let name = rival.program().name;
            match start(rival.candidates()) {
                Ok(contender) => {
                    let version = rival.program().version().ok();
                    entrants.push(Entrant::new(name, version, contender));
                }
                Err(error) if options.against.contains(&rival) => {
                    return Err(error).context(name);
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    let first = error.lines().next().unwrap_or_default();
                    notes.push(format!("{name} was left out: {first}"));
                }
            }
        }
        let contenders = entrants.iter().map(|one| &one.contender);
        let bed = TestBed {
            options,
            rates: climb::rates(contenders),
            entrants,
            configurations,
            folder,
        };
        Ok((bed, notes))
    }

    /// Measures a part of one round for one server. Returns a line about the result.
    fn measure(&mut self, part: Part, place: usize) -> anyhow::Result<String> {
        let (options, rates) = (self.options, self.rates);
        let one = &mut self.entrants[place];
        let saturate = |one: &Entrant, keepalive| {
            let seconds = options.seconds * SATURATION_SHARE;
            saturation::measure(&one.contender, keepalive, seconds.max(0.1))
        };
        Ok(match part {
            Part::Keepalive => {
                let run = saturate(one, true)?;
                let line = report::saturation_line(&run);
                one.keepalive.push(run);
                line
            }
            Part::Close => {
                let run = saturate(one, false)?;
                let line = report::saturation_line(&run);
                one.close.push(run);
                line
            }
            Part::Rising => {
                let run = rising::measure(&one.contender, options.seconds, rates)?;
                let line = report::rising_line(&run);
                one.rising.push(run);
                line
            }
            Part::Connections => {
                let candidate = &one.contender.candidate;
                let (root, count) = (self.folder.path(), options.connections);
                let run = connections::measure(candidate, root, count, options.seconds)?;
                let line = report::connections_line(&run);
                one.connections.push(run);
                line
            }
        })
    }

    fn report(self, mut notes: Vec<String>) -> Report {
        let options = self.options;
        let entrants = self.entrants.into_iter();
        let servers: Vec<ServerReport> = entrants.map(|one| one.report(&options.price)).collect();
        notes.extend(remarks(&servers, options.rounds));
        Report {
            rounds: options.rounds,
            seconds: options.seconds,
            saturation_seconds: (options.seconds * SATURATION_SHARE).max(0.1),
            files: climb::FILES,
            file_bytes: climb::LENGTH,
            clients: saturation::CONNECTIONS,
            connections: options.connections,
            rates: self.rates,
            good_us: GOOD_US,
            price: options.price.clone(),
            comparisons: comparison::compare(&servers),
            configurations: self.configurations,
            servers,
            notes,
        }
    }
}

/// Returns the servers to compare with, and remarks about those that are not installed.
///
/// Errors: a required server is not installed.
fn rivals(options: &Options) -> anyhow::Result<(Vec<StaticRival>, Vec<String>)> {
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    let is_wanted = |rival: &StaticRival| {
        !options.alone && (options.against.is_empty() || options.against.contains(rival))
    };
    for rival in StaticRival::ALL.into_iter().filter(is_wanted) {
        match rival.program().find() {
            Ok(_) => found.push(rival),
            Err(missing) if options.against.contains(&rival) => return Err(missing),
            Err(missing) => notes.push(format!("{missing:#}")),
        }
    }
    Ok((found, notes))
}

/// Returns remarks about results that are doubtful.
fn remarks(servers: &[ServerReport], rounds: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if rounds < 2 && servers.len() > 1 {
        notes.push(
            "one round shows no noise: larger differences than those marked may be noise, too"
                .to_owned(),
        );
    }
    let names = |is_meant: fn(&Saturation) -> bool| {
        let meant = servers
            .iter()
            .filter(|one| is_meant(&one.keepalive) || is_meant(&one.close));
        meant.map(|one| &*one.name).collect::<Vec<_>>()
    };
    let disturbed = names(|one| one.is_disturbed(QUIET));
    if !disturbed.is_empty() {
        notes.push(format!(
            "neither the server nor the load generator saturated its core ({}): other processes use the cores of this \
             machine, so rates are too low and latencies too high",
            disturbed.join(", ")
        ));
    }
    let limited = names(|one| one.is_limited(climb::BUSY));
    if !limited.is_empty() {
        notes.push(format!(
            "the load generator's core was nearly saturated ({}): these servers may answer more requests; their CPU time \
             per request does not depend on it",
            limited.join(", ")
        ));
    }
    let runs = servers.iter().flat_map(|one| &one.rising.runs);
    let ramps: Vec<&Ramp> = runs.map(|run| &run.ramp).collect();
    notes.extend(climb::remarks(&ramps));
    for one in servers {
        let saturated = one.keepalive.errors() + one.close.errors();
        if saturated > 0 {
            notes.push(format!(
                "{}: {saturated} requests failed at saturation",
                one.name
            ));
        }
        let open = one.connections.errors();
        if open > 0 {
            notes.push(format!(
                "{}: {open} requests failed with many connections, so not all of these stayed open",
                one.name
            ));
        }
    }
    notes
}

#[cfg(test)]
mod tests;
