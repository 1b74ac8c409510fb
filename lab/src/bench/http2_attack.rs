//! Rows of the bench for an ordinary client with HTTP/2 among hostile ones: its latency alone and beside each attack,
//! and the growth of the server's memory.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

use super::contest::Contender;
use super::handshake_attack::{MOST_STOLEN, yield_to_the_ordinary_client};
use super::http2::Servers;
use super::memory::settled;
use super::table::{Row, Unit};
use super::{Bench, median};
use crate::client;
use crate::hostile_http2::{Attack, Crowd, Tally};
use crate::load::h2load::{H2Load, H2Result, Response};
use crate::process::{pin_to_core, run_pinned, stolen};

const LENGTH: u64 = 5 << 10;
/// Number of connections of an attack.
const ATTACKERS: usize = 1000;
/// Seconds for which the ordinary client runs alone, for comparison.
const ALONE_SECONDS: f64 = 5.0;
/// Length of the periods of which the 99th percentile of the latency is taken.
const PERIOD: Duration = Duration::from_secs(1);
/// The ordinary client's connections, and the requests per second on each of them.
const CONNECTIONS: usize = 16;
const RATE: f64 = 12.5;
/// Streams that the ordinary client may have at the same time, so that a late response delays no request.
const STREAMS: usize = 100;
/// Share of the requests that must have a response. Otherwise the latency counts as infinite.
const ANSWERED: f64 = 0.98;
/// Most growth of the server's memory in MB.
const GROWTH_MB: f64 = 32.0;
/// Largest ratio of the latency beside an attack to the latency alone.
const SLOWDOWN: f64 = 2.0;

/// The measurements of one attack on one server.
struct Outcome {
    alone_us: f64,
    beside_us: f64,
    growth_mb: f64,
    failed: u64,
    cpu: Duration,
    tally: Tally,
}

/// Time in microseconds since 1970, the time that the hypervisor had taken until then, and the server's memory.
#[derive(Clone, Copy)]
struct Sample {
    at_us: u64,
    stolen: Duration,
    rss: u64,
}

/// Measures each attack with servers that are started for it.
pub(super) fn attack(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for attack in Attack::ALL {
        let mut servers = Servers::start(bench, None, LENGTH)?;
        // nginx's configurations differ only in the way to its files, so the first one is measured.
        let mut measured_nginx = false;
        let is_first = |one: &Contender| {
            one.column.is_sluice() || !std::mem::replace(&mut measured_nginx, true)
        };
        servers.contenders.retain(is_first);
        let name = format!("HTTP/2 attack, {}", attack.name());
        let mut slowdown = Row::new(&format!("{name}: p99 beside / alone"), Unit::Factor);
        let mut memory = Row::new(&format!("{name}: growth of memory"), Unit::Megabytes);
        for one in &servers.contenders {
            let outcome = measure(bench, attack, one)?;
            let summary = outcome.summary(one.label);
            eprintln!("  {}, {summary}", attack.name());
            let factor = Some(outcome.beside_us / outcome.alone_us);
            let growth = Some(outcome.growth_mb);
            match one.column.is_sluice() {
                true => (slowdown.sluice, memory.sluice) = (factor, growth),
                false => (slowdown.nginx, memory.nginx) = (factor, growth),
            }
            slowdown = slowdown.note(&summary);
        }
        rows.push(slowdown.goal_most(SLOWDOWN));
        rows.push(memory.goal_most(GROWTH_MB));
    }
    Ok(rows)
}

impl Outcome {
    fn summary(&self, label: &str) -> String {
        format!(
            "{label}: p99 alone {:.0} µs, beside {:.0} µs, {} failed requests, {:.2} s of CPU; {} connections of \
             attackers, {} closed, {} bursts",
            self.alone_us,
            self.beside_us,
            self.failed,
            self.cpu.as_secs_f64(),
            self.tally.opened,
            self.tally.closed,
            self.tally.bursts,
        )
    }
}

fn measure(bench: &Bench<'_>, attack: Attack, one: &Contender) -> anyhow::Result<Outcome> {
    let address = one.server.address();
    let path = format!("/offset/{LENGTH}");
    for _ in 0..100 {
        client::get(address, &path, &[])?;
    }
    let ordinary = |seconds: f64| H2Load {
        connections: CONNECTIONS,
        streams: STREAMS,
        rate: Some(RATE),
        seconds: Some(seconds),
        core: Some(bench.options.load_core),
        ..H2Load::new(address, &path)
    };
    let (alone, samples) = sampled(bench, one, &ordinary(ALONE_SECONDS))?;
    let alone_us = p99_us(&alone, &samples).context("no undisturbed second without an attack")?;
    let before = settled(one.server.process())?;
    let cpu = one.server.process().cpu()?;
    let stop = AtomicBool::new(false);
    let core = bench.options.load_core;
    let mut crowd = Crowd::new(address, attack, &path, ATTACKERS);
    let (load, tally) = std::thread::scope(|scope| {
        let attackers = scope.spawn(|| {
            let pinned = pin_to_core(core);
            yield_to_the_ordinary_client();
            pinned.map(|()| crowd.run(&stop))
        });
        let load = sampled(bench, one, &ordinary(bench.options.failing_seconds));
        stop.store(true, Ordering::Relaxed);
        (load, attackers.join())
    });
    let tally = tally.map_err(|_| anyhow::anyhow!("the attackers panicked"))??;
    let (load, samples) = load?;
    let most = samples.iter().map(|sample| sample.rss).max();
    Ok(Outcome {
        alone_us,
        beside_us: p99_us(&load, &samples).context("no undisturbed second beside the attack")?,
        growth_mb: most.unwrap_or(before).saturating_sub(before) as f64 / 1e6,
        failed: load.failed,
        cpu: one.server.process().cpu()?.saturating_sub(cpu),
        tally,
    })
}

/// Runs a load, and samples the machine and the server once in a period.
fn sampled(
    bench: &Bench<'_>,
    one: &Contender,
    load: &H2Load,
) -> anyhow::Result<(H2Result, Vec<Sample>)> {
    std::thread::scope(|scope| {
        let running = scope.spawn(|| load.run(bench.folder.path()));
        let samples = run_pinned(Some(bench.options.load_core), || {
            let mut samples = Vec::new();
            while !running.is_finished() {
                samples.push(Sample {
                    at_us: now_us(),
                    stolen: stolen().unwrap_or_default(),
                    rss: one.server.process().memory().map_or(0, |memory| memory.rss),
                });
                std::thread::sleep(PERIOD);
            }
            Ok(samples)
        });
        let result = running
            .join()
            .map_err(|_| anyhow::anyhow!("the load panicked"))??;
        Ok((result, samples?))
    })
}

fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}

/// Returns the median of the periods' 99th percentiles, without the periods that the hypervisor disturbed. If too many
/// responses are missing, the latency is infinite.
fn p99_us(load: &H2Result, samples: &[Sample]) -> Option<f64> {
    let expected = RATE * CONNECTIONS as f64 * load.seconds;
    if (load.responses.len() as f64) < expected * ANSWERED {
        return Some(f64::INFINITY);
    }
    let periods = samples.windows(2).filter_map(|period| {
        let [begin, end] = [period.first()?, period.last()?];
        let length = Duration::from_micros(end.at_us.saturating_sub(begin.at_us));
        let taken = end.stolen.saturating_sub(begin.stolen);
        let is_quiet = taken.as_secs_f64() <= length.as_secs_f64() * MOST_STOLEN;
        let percentile = || percentile(&load.responses, begin.at_us..end.at_us);
        is_quiet.then(percentile).flatten()
    });
    median(periods.collect())
}

/// Returns the 99th percentile of the latency of the requests that began in a period.
fn percentile(responses: &[Response], period: Range<u64>) -> Option<f64> {
    let began = responses
        .iter()
        .filter(|one| period.contains(&one.began_us));
    let mut took: Vec<u64> = began.map(|one| one.took_us).collect();
    took.sort_unstable();
    let rank = (took.len() * 99).div_ceil(100).checked_sub(1)?;
    Some(*took.get(rank)? as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: u64, stolen_ms: u64) -> Sample {
        Sample {
            at_us: second * 1_000_000,
            stolen: Duration::from_millis(stolen_ms),
            rss: 0,
        }
    }

    /// Returns 200 responses per second for two seconds, which take 1 ms in the first and 5 ms in the second.
    fn load() -> H2Result {
        let responses = (0..400).map(|number| Response {
            began_us: number * 5000,
            took_us: if number < 200 { 1000 } else { 5000 },
        });
        H2Result {
            seconds: 2.0,
            responses: responses.collect(),
            ..H2Result::default()
        }
    }

    #[test]
    fn disturbed_periods_do_not_count() {
        let quiet = [sample(0, 0), sample(1, 0), sample(2, 0)];
        assert_eq!(p99_us(&load(), &quiet), Some(3000.0));
        let disturbed = [sample(0, 0), sample(1, 0), sample(2, 500)];
        assert_eq!(p99_us(&load(), &disturbed), Some(1000.0));
    }

    #[test]
    fn missing_responses_are_infinitely_slow() {
        let mut load = load();
        load.responses.truncate(380);
        let quiet = [sample(0, 0), sample(1, 0)];
        assert_eq!(p99_us(&load, &quiet), Some(f64::INFINITY));
    }
}
