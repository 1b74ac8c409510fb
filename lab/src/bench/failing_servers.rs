//! Rows of the bench for one failing server of three: the errors that clients see, and the time until their latency is
//! normal again.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;

use super::contest::{self, Contender, Server};
use super::sluice::{Sluice, SluiceOptions};
use super::table::{Row, Unit};
use super::{Bench, median};
use crate::client;
use crate::load::{LoadPlan, LoadResult, Window};
use crate::process::free_port;
use crate::rivals::{NginxMode, NginxOptions};
use crate::roles::{self, Conduct, OriginPlan, RoleServer};

const BODY: u64 = 5 << 10;
const RATE: f64 = 2000.0;
const CONNECTIONS: usize = 64;
const SERVERS: usize = 3;
/// Seconds before the server fails.
const BEFORE: f64 = 5.0;
/// Length in seconds of the periods of which the 99th percentile of the latency is taken.
const PERIOD: f64 = 0.5;
/// Longest time in seconds until the latency is normal again.
const RECOVERY: f64 = 2.0;
/// The latency is normal again once it was normal for this number of periods in a row (2 s). Single periods later are
/// counted on their own, since at 2,000 requests per second a pause of the machine of 10 ms is enough for one.
const NORMAL_PERIODS: usize = 4;
/// The latency is normal up to this multiple of its median before the failure, up to its largest value before the
/// failure, and in any case up to `NORMAL_US`.
const NORMAL_FACTOR: f64 = 2.0;
const NORMAL_US: f64 = 5_000.0;
/// Largest share of a period that the hypervisor may take from this machine. Otherwise the period does not count.
const MOST_STOLEN: f64 = 0.02;
/// Number of objects, so that every request of the cached runs is a miss.
const OBJECTS: u64 = 10_000_000;
/// Most lines of a server's output that are printed.
const LINES_MAX: usize = 60;
/// Most connections that fill the queue of a server that no longer accepts any.
const QUEUE_MAX: usize = 6000;

/// The ways in which a server fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The process is killed, so connections are reset and refused.
    Killed,
    /// The process is stopped. The kernel still accepts connections for it.
    Paused,
    /// The process is stopped and its queue is full, so the kernel drops attempts to connect.
    BlackHoled,
    /// The server behaves like this.
    Conduct(Conduct),
}

/// The results of one run.
struct Outcome {
    errors: u64,
    recovery: Recovery,
    /// State and failures of the failing server in the status, and number of log messages that name it.
    named: String,
}

/// How the latency became normal again after the failure.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Recovery {
    /// Seconds from the failure until the latency was normal for `NORMAL_PERIODS`.
    seconds: f64,
    /// Number of unusual periods after that.
    later: usize,
    /// Largest 99th percentile of those in microseconds, or 0.
    later_most_us: f64,
}

pub(super) fn killed(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    rows(bench, "killed", Failure::Killed)
}

pub(super) fn paused(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    rows(bench, "paused", Failure::Paused)
}

pub(super) fn black_holed(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    rows(bench, "black-holed", Failure::BlackHoled)
}

pub(super) fn answering_500(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    rows(bench, "answering 500", Failure::Conduct(Conduct::Error))
}

pub(super) fn resetting(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    rows(bench, "resetting", Failure::Conduct(Conduct::Reset))
}

pub(super) fn cutting(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    rows(bench, "cutting bodies", Failure::Conduct(Conduct::Cut))
}

pub(super) fn dripping(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let failure = Failure::Conduct(Conduct::Drip);
    rows(bench, "sending a byte a second", failure)
}

pub(super) fn dripping_bodies(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let failure = Failure::Conduct(Conduct::DripBody);
    rows(bench, "sending a byte a second after the head", failure)
}

/// Measures a way to fail, without and with a cache.
fn rows(bench: &Bench<'_>, name: &str, failure: Failure) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for cached in [false, true] {
        rows.extend(rows_of(bench, name, failure, cached)?);
    }
    Ok(rows)
}

fn rows_of(
    bench: &Bench<'_>,
    name: &str,
    failure: Failure,
    cached: bool,
) -> anyhow::Result<[Row; 2]> {
    let kind = if cached { "cached" } else { "uncached" };
    let name = format!("one of three servers {name}, {kind}");
    let mut errors = Row::new(&format!("{name}: errors"), Unit::Count);
    let mut recovery = Row::new(&format!("{name}: recovery"), Unit::Seconds);
    if bench.nginx && !cached {
        let outcome = run(bench, failure, |servers| nginx(bench, servers).map(Some))?;
        errors.nginx = outcome.as_ref().map(|one| one.errors as f64);
        if let Some(Outcome { recovery: one, .. }) = outcome {
            recovery.nginx = Some(one.seconds);
            recovery = recovery.note(&later("nginx", one));
        }
    }
    let outcome = run(bench, failure, |servers| sluice(bench, servers, cached))?;
    if let Some(outcome) = outcome {
        errors.sluice = Some(outcome.errors as f64);
        errors = errors.note(&outcome.named);
        recovery.sluice = Some(outcome.recovery.seconds);
        recovery = recovery.note(&later("Sluice", outcome.recovery));
    }
    Ok([errors.goal_most(0.0), recovery.goal_most(RECOVERY)])
}

/// Returns a note about the unusual periods after the recovery.
fn later(name: &str, recovery: Recovery) -> String {
    match recovery.later {
        0 => format!("{name}: no unusual period later"),
        count => format!(
            "{name}: {count} unusual periods later, up to {:.0} ms",
            recovery.later_most_us / 1000.0
        ),
    }
}

/// Starts nginx in front of these servers. As Sluice, it tries another server after an error, a timeout and a 500.
fn nginx(bench: &Bench<'_>, servers: &[SocketAddr]) -> anyhow::Result<Contender> {
    let mut options = NginxOptions::new(NginxMode::Proxy, Some(servers[0]))
        .directive("proxy_next_upstream", "error timeout http_500")
        .directive("proxy_connect_timeout", "1s")
        .directive("proxy_read_timeout", "1s");
    options.more_origins = servers[1..].to_vec();
    contest::nginx(bench, &options)
}

fn sluice(
    bench: &Bench<'_>,
    servers: &[SocketAddr],
    cached: bool,
) -> anyhow::Result<Option<Contender>> {
    let on = "{ on = [\"connect\", \"tls\", \"reset\", \"timeout\", 500] }";
    let settings = [
        ("read_timeout", "\"1s\""),
        ("connect_timeout", "\"1s\""),
        ("retry", on),
    ];
    contest::sluice(bench, |binary| SluiceOptions {
        more_origins: servers[1..].to_vec(),
        memory: cached.then(|| "64MiB".to_owned()),
        fill: "auto".to_owned(),
        upstream: settings
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        ..SluiceOptions::new(binary, servers[0])
    })
}

/// Runs the load against a server that `start` starts in front of three origins, of which one fails. Returns `None` if
/// there is no such server.
fn run(
    bench: &Bench<'_>,
    failure: Failure,
    start: impl FnOnce(&[SocketAddr]) -> anyhow::Result<Option<Contender>>,
) -> anyhow::Result<Option<Outcome>> {
    let origins: Vec<RoleServer> = (0..SERVERS)
        .map(|_| origin(bench))
        .collect::<anyhow::Result<_>>()?;
    let addresses: Vec<SocketAddr> = origins.iter().map(|one| one.address).collect();
    let Some(one) = start(&addresses)? else {
        return Ok(None);
    };
    let plan = plan(bench, one.server.address());
    let folder = bench.folder.path();
    let load: anyhow::Result<LoadResult> = std::thread::scope(|scope| {
        let load = scope.spawn(|| roles::run_load(&plan, folder));
        std::thread::sleep(Duration::from_secs_f64(BEFORE));
        let failed = fail(failure, &origins[0]);
        let load = load.join();
        let held = failed?;
        drop(held);
        load.map_err(|_| anyhow::anyhow!("the load panicked"))?
    });
    // A stopped process can't end in order.
    origins[0].process.signal(Signal::KILL).ok();
    let load = load?;
    eprintln!("  {}: {:?}", one.label, load.errors);
    let outcome = Outcome {
        errors: load.errors.total(),
        recovery: recovery(&load.windows),
        named: match &one.server {
            Server::Sluice(sluice) => named(sluice, &addresses[0].to_string())?,
            _ => String::new(),
        },
    };
    if outcome.errors > 0 || outcome.recovery.seconds > RECOVERY {
        explain(&one, &load);
    }
    Ok(Some(outcome))
}

/// Returns how the status names the server at this address, and how many messages of the log do.
fn named(sluice: &Sluice, address: &str) -> anyhow::Result<String> {
    let status = sluice.status()?;
    let mut servers = status["upstreams"]["origin"]["servers"]
        .as_array()
        .into_iter()
        .flatten();
    let server = servers.find(|server| server["address"] == address);
    let server = server.context("status: the failing server")?;
    let output = [sluice.process().stdout(), sluice.process().stderr()].concat();
    let messages = output.lines().filter(|line| line.contains(address)).count();
    Ok(format!(
        "status: {}, {}; {messages} messages in the log",
        server["state"], server["failures_by_reason"]
    ))
}

/// Prints the unusual periods, and what the server wrote.
fn explain(one: &Contender, load: &LoadResult) {
    let most = usual_most(&load.windows);
    eprintln!("    usual up to {most:.0} µs");
    for window in &load.windows {
        if window.p99_us.is_none_or(|p99| p99 > most) {
            eprintln!("    {window:?}");
        }
    }
    if let Server::Sluice(sluice) = &one.server {
        let output = [sluice.process().stdout(), sluice.process().stderr()].concat();
        for line in output.lines().take(LINES_MAX) {
            eprintln!("    {line}");
        }
    }
}

fn origin(bench: &Bench<'_>) -> anyhow::Result<RoleServer> {
    let plan = OriginPlan {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)),
        core: Some(bench.options.load_core),
        ..OriginPlan::default()
    };
    roles::start_origin(&plan, bench.folder.path())
}

fn plan(bench: &Bench<'_>, address: SocketAddr) -> LoadPlan {
    LoadPlan {
        connections: CONNECTIONS,
        rate: Some(RATE),
        seconds: Some(BEFORE + bench.options.failing_seconds),
        window_seconds: Some(PERIOD),
        numbers: Some((0, OBJECTS)),
        expect_length: Some(BODY),
        verify: true,
        consecutive_errors_max: None,
        core: Some(bench.options.load_core),
        ..LoadPlan::new(address, &format!("/offset/{BODY}?{{n}}"))
    }
}

/// Makes the origin fail. Returns the connections that fill its queue.
fn fail(failure: Failure, origin: &RoleServer) -> anyhow::Result<Vec<TcpStream>> {
    let mut queue = Vec::new();
    match failure {
        Failure::Killed => origin.process.signal(Signal::KILL)?,
        Failure::Paused => origin.process.signal(Signal::STOP)?,
        Failure::BlackHoled => {
            origin.process.signal(Signal::STOP)?;
            let short = Duration::from_millis(100);
            while let Ok(waiting) = TcpStream::connect_timeout(&origin.address, short) {
                queue.push(waiting);
                anyhow::ensure!(queue.len() < QUEUE_MAX, "the server's queue has no end");
            }
        }
        Failure::Conduct(conduct) => {
            client::get(origin.address, &conduct.path(), &[])?;
        }
    }
    Ok(queue)
}

/// Returns how the latency became normal again. It never did within the run if no periods in a row show that.
fn recovery(windows: &[Window]) -> Recovery {
    let most = usual_most(windows);
    let after: Vec<&Window> = counted(windows)
        .filter(|one| one.begin + PERIOD > BEFORE)
        .collect();
    let unusual = |one: &Window| one.p99_us.is_none_or(|p99| p99 > most);
    let normal = |one: &[&Window]| !one.iter().any(|one| unusual(one));
    let first = after.windows(NORMAL_PERIODS).position(normal);
    let first = first.unwrap_or(after.len());
    let later = after[first..].iter().filter(|one| unusual(one));
    let end = |one: &Window| (one.begin + PERIOD - BEFORE).max(0.0);
    Recovery {
        seconds: first.checked_sub(1).map_or(0.0, |last| end(after[last])),
        later: later.clone().count(),
        later_most_us: later.filter_map(|one| one.p99_us).fold(0.0, f64::max),
    }
}

/// Returns the largest 99th percentile in microseconds that is not unusual. If other programs disturb the measurement,
/// some periods before the failure show that.
fn usual_most(windows: &[Window]) -> f64 {
    // The first period has the first connections in it.
    let before = counted(windows).filter(|one| one.begin >= PERIOD && one.begin + PERIOD <= BEFORE);
    let before: Vec<f64> = before.filter_map(|one| one.p99_us).collect();
    let disturbed = before.iter().copied().fold(NORMAL_US, f64::max);
    let usual = median(before).unwrap_or(0.0);
    (usual * NORMAL_FACTOR).max(disturbed)
}

fn counted(windows: &[Window]) -> impl DoubleEndedIterator<Item = &Window> {
    windows.iter().filter(|one| one.stolen <= MOST_STOLEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(begin: f64, p99_us: Option<f64>) -> Window {
        Window {
            begin,
            offered: 1000,
            answered: 1000,
            p50_us: p99_us,
            p99_us,
            busy: 0.1,
            ..Window::default()
        }
    }

    #[test]
    fn recovery_ends_before_the_first_normal_periods_in_a_row() {
        let quiet = |begin: f64| window(begin, Some(1000.0));
        let mut windows: Vec<Window> = (0..70).map(|n| quiet(f64::from(n) * PERIOD)).collect();
        let recovered = |seconds, later, later_most_us| Recovery {
            seconds,
            later,
            later_most_us,
        };
        assert_eq!(recovery(&windows), recovered(0.0, 0, 0.0));
        windows[10] = window(5.0, Some(900_000.0));
        windows[12] = window(6.0, None);
        assert_eq!(recovery(&windows), recovered(1.5, 0, 0.0));
        windows[30] = Window {
            stolen: 0.5,
            ..window(15.0, None)
        };
        assert_eq!(
            recovery(&windows).later,
            0,
            "a disturbed period does not count"
        );
        windows[40] = window(20.0, Some(6000.0));
        assert_eq!(recovery(&windows), recovered(1.5, 1, 6000.0));
        for one in &mut windows[10..] {
            one.p99_us = None;
        }
        assert_eq!(recovery(&windows), recovered(30.0, 0, 0.0), "never");
    }

    #[test]
    fn latency_as_before_the_failure_is_normal() {
        let quiet = |begin: f64| window(begin, Some(1000.0));
        let mut windows: Vec<Window> = (0..70).map(|n| quiet(f64::from(n) * PERIOD)).collect();
        windows[4] = window(2.0, Some(1_000_000.0));
        windows[12] = window(6.0, Some(1_000_000.0));
        assert_eq!(recovery(&windows).seconds, 0.0);
    }
}
