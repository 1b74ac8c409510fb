//! The loads of the ramp experiment: finding the maximum rate, the ramps, and the runs at half of the held rate.

use std::path::Path;
use std::thread;

use anyhow::Context as _;

use super::servers::{Candidate, StaticRival};
use super::{GOOD_US, Options, Ramp};
use crate::LOAD_CORE;
use crate::bench::contest::{SOURCES, Server};
use crate::bench::{median, pages};
use crate::configurations::Configurations;
use crate::load::{self, Latency, LoadPlan, LoadResult, Window};
use crate::scratch::Folder;

/// Number of files, which are requested in turn.
pub(crate) const FILES: u64 = 1000;

/// Length of each file in bytes.
pub(crate) const LENGTH: u64 = 5 << 10;

/// Maximum number of concurrent requests. Requests beyond that wait, and the wait counts as latency.
const CONNECTIONS: usize = 2000;

/// Number of windows of a ramp.
pub(super) const WINDOWS: f64 = 100.0;

/// A ramp ends when the median latency is above this, in microseconds.
const SATURATED_US: f64 = 30_000.0;

/// First and last rate of a ramp, relative to the maximum throughput.
const FROM: f64 = 0.1;
const TO: f64 = 1.3;

/// Above this share of its core, the load generator may send requests late.
pub(crate) const BUSY: f64 = 0.9;

/// Results of one server: medians over all rounds.
pub(super) struct ServerResult {
    pub(super) held: f64,
    /// Latency at half of the held rate, in microseconds; `None` if a run had no good response.
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    /// The first server's 99th percentile at half of this server's held rate; `None` for the first server itself, or if a run
    /// had no good response.
    pub(super) same_p99_us: Option<f64>,
}

pub(super) struct Results {
    pub(super) rates: (f64, f64),
    /// Results of the servers, of which Sluice is the first.
    pub(super) servers: Vec<ServerResult>,
    pub(super) ramps: Vec<Ramp>,
    pub(super) configurations: Configurations,
    pub(super) notes: Vec<String>,
}

/// A running server that is compared with others.
pub(crate) struct Contender {
    /// The server's configuration, of which another instance can be started.
    pub(crate) candidate: Candidate,
    pub(crate) server: Server,
    /// Maximum throughput in responses per second, from a closed loop.
    most: f64,
}

pub(super) fn measure(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Results> {
    ensure_two_cores()?;
    let folder = Folder::new("lab-ramp-")?;
    files(folder.path())?;
    let mut configurations = Configurations::default();
    let contenders = contenders(options, folder.path(), &mut configurations, progress)?;
    let rates = rates(contenders.iter());
    progress(&format!(
        "ramps from {:.0} to {:.0} requests/s in {} s",
        rates.0, rates.1, options.seconds
    ));
    let mut ramps = Vec::new();
    for _ in 0..options.rounds {
        for one in &contenders {
            let ramp = one.ramp(options.seconds, rates)?;
            progress(&format!("{}: held {:.0} requests/s", ramp.name, ramp.held));
            ramps.push(ramp);
        }
    }
    let held = |one: &Contender| {
        let of = ramps.iter().filter(|ramp| ramp.name == one.name());
        median(of.map(|ramp| ramp.held).collect()).context("a ramp")
    };
    let held: Vec<f64> = contenders.iter().map(held).collect::<Result<_, _>>()?;
    let (servers, failed) = half_rates(options, &contenders, &held, rates, progress)?;
    let mut notes = remarks(&ramps.iter().collect::<Vec<_>>());
    if failed > 0 {
        notes.push(format!("{failed} requests failed at half of the rate"));
    }
    Ok(Results {
        rates,
        servers,
        ramps,
        configurations,
        notes,
    })
}

/// Fails if server and load can't have a core each.
pub(crate) fn ensure_two_cores() -> anyhow::Result<()> {
    anyhow::ensure!(
        thread::available_parallelism()?.get() > LOAD_CORE,
        "needs two cores: one for the server, one for the load"
    );
    Ok(())
}

/// Writes the files that the servers serve.
pub(crate) fn files(folder: &Path) -> anyhow::Result<()> {
    pages::offset_files(folder, FILES, LENGTH as usize)
}

/// Returns the first and the last rate of ramps of these servers, in requests per second.
pub(crate) fn rates<'a>(contenders: impl Iterator<Item = &'a Contender>) -> (f64, f64) {
    let most = contenders.map(|one| one.most).fold(0.0, f64::max);
    (FROM * most, TO * most)
}

/// Measures each server at half of the rate that it held, and the first server also at half of the rate of each other
/// one. Returns the results of the servers, and the number of requests that failed.
fn half_rates(
    options: &Options,
    contenders: &[Contender],
    held: &[f64],
    rates: (f64, f64),
    progress: &dyn Fn(&str),
) -> anyhow::Result<(Vec<ServerResult>, u64)> {
    let own = held.iter().copied().enumerate();
    let others = held.iter().skip(1).map(|rival| (0, *rival));
    // A server that held no rate is measured at half of the first rate of the ramp.
    let runs: Vec<(&Contender, f64)> = own
        .chain(others)
        .map(|(place, held)| (&contenders[place], held.max(rates.0) / 2.0))
        .collect();
    let halves = run_at_half_rate(options, &runs, progress)?;
    let failed = halves.iter().flatten().map(|run| run.errors.total()).sum();
    let of = |place: usize, pick: fn(&Latency) -> f64| middle(halves.get(place)?, pick);
    let same = |place: usize| match place {
        0 => None,
        _ => of(held.len() + place - 1, |latency| latency.p99_us),
    };
    let servers = held.iter().enumerate().map(|(place, held)| ServerResult {
        held: *held,
        p50_us: of(place, |latency| latency.p50_us),
        p99_us: of(place, |latency| latency.p99_us),
        same_p99_us: same(place),
    });
    Ok((servers.collect(), failed))
}

/// Returns the median of a percentile over these runs; `None` if one of them had no good response, and so no latency.
fn middle(runs: &[LoadResult], pick: fn(&Latency) -> f64) -> Option<f64> {
    let known = |run: &LoadResult| (!run.latency.is_empty()).then(|| pick(&run.latency));
    let all: Option<Vec<f64>> = runs.iter().map(known).collect();
    median(all?)
}

/// Runs each server at its rate, in turns, once per round. Returns all results for each.
fn run_at_half_rate(
    options: &Options,
    runs: &[(&Contender, f64)],
    progress: &dyn Fn(&str),
) -> anyhow::Result<Vec<Vec<LoadResult>>> {
    let mut halves: Vec<Vec<LoadResult>> = runs.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for ((one, rate), results) in runs.iter().zip(&mut halves) {
            let result = one.half(options, *rate)?;
            progress(&format!(
                "{}: {rate:.0} requests/s: median {:.0} µs, p99 {:.0} µs, longest {:.0} µs",
                one.name(),
                result.latency.p50_us,
                result.latency.p99_us,
                result.latency.max_us
            ));
            results.push(result);
        }
    }
    Ok(halves)
}

/// Starts Sluice, and the fastest configuration of nginx.
fn contenders(
    options: &Options,
    root: &Path,
    configurations: &mut Configurations,
    progress: &dyn Fn(&str),
) -> anyhow::Result<Vec<Contender>> {
    let mut servers = vec![vec![Candidate::Sluice(options.program.clone())]];
    servers.extend(options.nginx.then(|| StaticRival::Nginx.candidates()));
    let fastest = |candidates: Vec<Candidate>| {
        Contender::fastest(
            candidates,
            root,
            options.probe_seconds,
            configurations,
            progress,
        )
    };
    servers.into_iter().map(fastest).collect()
}

impl Contender {
    /// Starts each of these configurations of one server, and returns the one with the highest throughput. `seconds` is
    /// the duration of each measurement. All configurations are added to `configurations`.
    pub(crate) fn fastest(
        candidates: Vec<Candidate>,
        root: &Path,
        seconds: f64,
        configurations: &mut Configurations,
        progress: &dyn Fn(&str),
    ) -> anyhow::Result<Contender> {
        let mut fastest: Option<Contender> = None;
        for candidate in candidates {
            let one = Contender::start(candidate, root, seconds)?;
            configurations.keep(one.name(), one.server.configuration());
            progress(&format!(
                "{}: {:.0} requests/s maximum",
                one.name(),
                one.most
            ));
            if fastest.as_ref().is_none_or(|other| one.most > other.most) {
                fastest = Some(one);
            }
        }
        fastest.context("a server without a configuration")
    }

    fn start(candidate: Candidate, root: &Path, seconds: f64) -> anyhow::Result<Contender> {
        let mut one = Contender {
            server: candidate.start(root)?,
            candidate,
            most: 0.0,
        };
        // The result of the first run is discarded, because no file has been opened before it.
        one.probe(seconds)?;
        one.most = one.probe(seconds)?;
        Ok(one)
    }

    /// Returns the name of server and configuration.
    pub(crate) fn name(&self) -> &'static str {
        self.candidate.name()
    }

    /// Returns the plan of a load of many concurrent requests, with a connection for each.
    pub(crate) fn plan(&self) -> LoadPlan {
        plan(&self.server)
    }

    fn probe(&self, seconds: f64) -> anyhow::Result<f64> {
        let result = load::run_apart(LoadPlan {
            connections: 64,
            seconds: Some(seconds),
            ..self.plan()
        })?;
        anyhow::ensure!(
            result.errors.total() == 0,
            "{}: errors: {}",
            self.name(),
            result.errors
        );
        Ok(result.rate())
    }

    /// Raises the rate from the first to the last of `rates` within `seconds`, or until the server is saturated.
    pub(crate) fn ramp(&self, seconds: f64, (from, to): (f64, f64)) -> anyhow::Result<Ramp> {
        let window_seconds = seconds / WINDOWS;
        let result = load::run_apart(LoadPlan {
            rate: Some(from),
            rising_to: Some(to),
            seconds: Some(seconds),
            window_seconds: Some(window_seconds),
            saturated_us: Some(SATURATED_US),
            ..self.plan()
        })?;
        let good = held(&result.windows);
        let rate = good.map_or(0.0, |window| window.offered as f64 / window_seconds);
        Ok(Ramp {
            name: self.name().to_owned(),
            held: rate,
            limited: good.is_some_and(|window| window.busy > BUSY),
            errors: result.errors.total(),
            windows: result.windows,
        })
    }

    fn half(&self, options: &Options, rate: f64) -> anyhow::Result<LoadResult> {
        load::run_apart(LoadPlan {
            rate: Some(rate),
            seconds: Some(options.half_seconds),
            ..self.plan()
        })
    }
}

/// Returns the plan of a load of many concurrent requests for the files, with a connection for each.
pub(crate) fn plan(server: &Server) -> LoadPlan {
    LoadPlan {
        numbers: Some((0, FILES)),
        connections: CONNECTIONS,
        keepalive: false,
        sources: SOURCES,
        expect_length: Some(LENGTH),
        core: Some(LOAD_CORE),
        ..LoadPlan::new(server.address(), "/{n}")
    }
}

/// Returns the last window with a good median before two consecutive windows without one. A single bad window may be
/// caused by the machine.
pub(crate) fn held(windows: &[Window]) -> Option<&Window> {
    let good = |window: &Window| window.p50_us.is_some_and(|median| median <= GOOD_US);
    let end = windows
        .windows(2)
        .position(|pair| !good(&pair[0]) && !good(&pair[1]))
        .unwrap_or(windows.len());
    windows[..end].iter().rev().find(|window| good(window))
}

/// Returns remarks about ramps whose results are doubtful.
pub(crate) fn remarks(ramps: &[&Ramp]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut limited: Vec<&str> = Vec::new();
    for ramp in ramps.iter().filter(|ramp| ramp.limited) {
        if !limited.contains(&&*ramp.name) {
            limited.push(&ramp.name);
        }
    }
    if !limited.is_empty() {
        notes.push(format!(
            "the load generator's core was nearly saturated at the held rate ({}): the servers may hold more \
             (see docs/lab.md for a way to move work to the server's core)",
            limited.join(", ")
        ));
    }
    if ramps.iter().any(|ramp| ramp.held == 0.0) {
        notes.push("a server held no rate at all: this machine is too busy".to_owned());
    }
    let failed: u64 = ramps.iter().map(|ramp| ramp.errors).sum();
    if failed > 0 {
        notes.push(format!("{failed} requests of the ramps failed"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(medians: &[f64]) -> Vec<Window> {
        let window = |(place, median): (usize, &f64)| Window {
            begin: place as f64,
            offered: 100 * (place as u64 + 1),
            answered: 100,
            p50_us: (*median > 0.0).then_some(*median),
            ..Window::default()
        };
        medians.iter().enumerate().map(window).collect()
    }

    fn rate(medians: &[f64]) -> Option<u64> {
        held(&windows(medians)).map(|window| window.offered)
    }

    #[test]
    fn a_percentile_without_good_responses_is_not_measured() {
        let run = |us: f64| LoadResult {
            latency: Latency {
                p99_us: us,
                max_us: us,
                ..Latency::default()
            },
            ..LoadResult::default()
        };
        let p99 = |latency: &Latency| latency.p99_us;
        assert_eq!(middle(&[run(3.0), run(5.0), run(4.0)], p99), Some(4.0));
        assert_eq!(middle(&[run(3.0), run(0.0), run(4.0)], p99), None);
        assert_eq!(middle(&[], p99), None);
    }

    #[test]
    fn a_rate_is_held_until_two_consecutive_windows_are_bad() {
        assert_eq!(rate(&[100.0, 200.0, 1000.0]), Some(300));
        assert_eq!(rate(&[100.0, 2000.0, 300.0, 1100.0]), Some(400));
        assert_eq!(rate(&[100.0, 2000.0, 3000.0, 100.0]), Some(100));
        // If less than half of the requests were answered, there is no median.
        assert_eq!(rate(&[100.0, 200.0, 2000.0, 0.0, 0.0]), Some(200));
        assert_eq!(rate(&[100.0, 0.0, 300.0]), Some(300));
        assert_eq!(rate(&[2000.0, 2000.0]), None);
        assert_eq!(rate(&[]), None);
    }
}
