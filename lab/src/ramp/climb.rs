//! The loads of the ramp experiment: finding the maximum rate, the ramps, and the runs at half of the held rate.

use std::thread;

use anyhow::Context as _;

use super::{GOOD_US, Options, Ramp};
use crate::bench::contest::{SOURCES, Server};
use crate::bench::{Files, median, pages, statics};
use crate::load::{self, LoadPlan, LoadResult, Window};
use crate::rivals::Nginx;
use crate::{LOAD_CORE, SERVER_CORE};

const FILES: u64 = 1000;
const LENGTH: u64 = 5 << 10;

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
const BUSY: f64 = 0.9;

/// Results of one server: medians over all rounds.
pub(super) struct ServerResult {
    pub(super) held: f64,
    /// Latency at half of the held rate, in microseconds.
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

pub(super) struct Results {
    pub(super) rates: (f64, f64),
    pub(super) sluice: ServerResult,
    pub(super) nginx: Option<ServerResult>,
    /// Sluice's 99th percentile at half of nginx's held rate.
    pub(super) same_p99_us: Option<f64>,
    pub(super) ramps: Vec<Ramp>,
    pub(super) notes: Vec<String>,
}

struct Contender {
    name: String,
    server: Server,
    /// Maximum throughput in responses per second, from a closed loop.
    most: f64,
}

pub(super) fn measure(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Results> {
    anyhow::ensure!(
        thread::available_parallelism()?.get() > LOAD_CORE,
        "needs two cores: one for the server, one for the load"
    );
    let folder = tempfile::Builder::new().prefix("lab-ramp-").tempdir()?;
    pages::offset_files(folder.path(), FILES, LENGTH as usize)?;
    let contenders = contenders(options, folder.path(), progress)?;
    let most = contenders.iter().map(|one| one.most).fold(0.0, f64::max);
    let rates = (FROM * most, TO * most);
    progress(&format!(
        "ramps from {:.0} to {:.0} requests/s in {} s",
        rates.0, rates.1, options.seconds
    ));
    let mut ramps = Vec::new();
    for _ in 0..options.rounds {
        for one in &contenders {
            let ramp = one.ramp(options, rates)?;
            progress(&format!("{}: held {:.0} requests/s", ramp.name, ramp.held));
            ramps.push(ramp);
        }
    }
    let held = |one: &Contender| {
        let of = ramps.iter().filter(|ramp| ramp.name == one.name);
        median(of.map(|ramp| ramp.held).collect()).context("a ramp")
    };
    let held: Vec<f64> = contenders.iter().map(held).collect::<Result<_, _>>()?;
    let mut notes = remarks(&ramps);
    // Sluice is first. An additional last run of each round is Sluice at the rival's rate.
    let mut runs: Vec<(usize, f64)> = held.iter().copied().enumerate().collect();
    runs.extend(held.get(1).map(|rival| (0, *rival)));
    // A server that held no rate is measured at half of the first rate of the ramp.
    let runs = runs.into_iter().map(|(place, held)| {
        let rate = held.max(rates.0) / 2.0;
        (&contenders[place], rate)
    });
    let halves = run_at_half_rate(options, &runs.collect::<Vec<_>>(), progress)?;
    let failed: u64 = halves.iter().flatten().map(|run| run.errors.total()).sum();
    if failed > 0 {
        notes.push(format!("{failed} requests failed at half of the rate"));
    }
    let of = |place: usize, pick: fn(&LoadResult) -> f64| {
        let runs = halves.get(place).into_iter().flatten();
        median(runs.map(pick).collect())
    };
    let result_of = |place: usize| {
        Some(ServerResult {
            held: *held.get(place)?,
            p50_us: of(place, |run| run.latency.p50_us)?,
            p99_us: of(place, |run| run.latency.p99_us)?,
        })
    };
    Ok(Results {
        rates,
        sluice: result_of(0).context("Sluice")?,
        nginx: result_of(1),
        same_p99_us: of(2, |run| run.latency.p99_us),
        ramps,
        notes,
    })
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
                one.name, result.latency.p50_us, result.latency.p99_us, result.latency.max_us
            ));
            results.push(result);
        }
    }
    Ok(halves)
}

/// Starts Sluice, and nginx with sendfile on or off, whichever is faster.
fn contenders(
    options: &Options,
    root: &std::path::Path,
    progress: &dyn Fn(&str),
) -> anyhow::Result<Vec<Contender>> {
    let mut sluice = statics::sluice_files(&options.program, Files::new(root));
    sluice.core = Some(SERVER_CORE);
    let sluice = crate::bench::Sluice::start(&sluice)?;
    let start = |name: &str, server: Server| {
        let mut one = Contender {
            name: name.to_owned(),
            server,
            most: 0.0,
        };
        // The result of the first run is discarded, because no file has been opened before it.
        one.probe(options.probe_seconds)?;
        one.most = one.probe(options.probe_seconds)?;
        progress(&format!("{name}: {:.0} requests/s maximum", one.most));
        anyhow::Ok(one)
    };
    let mut all = vec![start("Sluice", Server::Sluice(Box::new(sluice)))?];
    if options.nginx {
        let mut rivals = Vec::new();
        for (sendfile, name) in [(true, "nginx, sendfile on"), (false, "nginx, sendfile off")] {
            let mut nginx = statics::nginx_files(root);
            nginx.sendfile = sendfile;
            nginx.core = Some(SERVER_CORE);
            rivals.push(start(name, Server::Nginx(Nginx::start(&nginx)?))?);
        }
        rivals.sort_by(|one, other| other.most.total_cmp(&one.most));
        all.extend(rivals.into_iter().next());
    }
    Ok(all)
}

impl Contender {
    fn plan(&self) -> LoadPlan {
        LoadPlan {
            numbers: Some((0, FILES)),
            connections: CONNECTIONS,
            keepalive: false,
            sources: SOURCES,
            expect_length: Some(LENGTH),
            core: Some(LOAD_CORE),
            ..LoadPlan::new(self.server.address(), "/{n}")
        }
    }

    fn probe(&self, seconds: f64) -> anyhow::Result<f64> {
        let result = load::run_apart(LoadPlan {
            connections: 64,
            seconds: Some(seconds),
            ..self.plan()
        })?;
        anyhow::ensure!(
            result.errors.total() == 0,
            "{}: {:?}",
            self.name,
            result.errors
        );
        Ok(result.rate())
    }

    fn ramp(&self, options: &Options, (from, to): (f64, f64)) -> anyhow::Result<Ramp> {
        let result = load::run_apart(LoadPlan {
            rate: Some(from),
            rising_to: Some(to),
            seconds: Some(options.seconds),
            window_seconds: Some(options.seconds / WINDOWS),
            saturated_us: Some(SATURATED_US),
            ..self.plan()
        })?;
        let good = held(&result.windows);
        let seconds = options.seconds / WINDOWS;
        let rate = good.map_or(0.0, |window| window.offered as f64 / seconds);
        Ok(Ramp {
            name: self.name.clone(),
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

/// Returns the last window with a good median before two consecutive windows without one. A single bad window may be
/// caused by the machine.
fn held(windows: &[Window]) -> Option<&Window> {
    let good = |window: &Window| window.p50_us.is_some_and(|median| median <= GOOD_US);
    let end = windows
        .windows(2)
        .position(|pair| !good(&pair[0]) && !good(&pair[1]))
        .unwrap_or(windows.len());
    windows[..end].iter().rev().find(|window| good(window))
}

fn remarks(ramps: &[Ramp]) -> Vec<String> {
    let mut notes = Vec::new();
    let limited: Vec<&str> = ramps
        .iter()
        .filter(|ramp| ramp.limited)
        .map(|ramp| ramp.name.as_str())
        .collect();
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
            p99_us: None,
            busy: 0.1,
            stolen: 0.0,
        };
        medians.iter().enumerate().map(window).collect()
    }

    fn rate(medians: &[f64]) -> Option<u64> {
        held(&windows(medians)).map(|window| window.offered)
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
