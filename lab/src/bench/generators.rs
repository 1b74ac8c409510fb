//! Rows of the bench about the load generator `sluice bench`: its rate and CPU time beside those of wrk and h2load, and
//! the latencies that it reports of a server that stalls. The server is nginx with a file of 5 KB. The generators take
//! turns on the load's core.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;
use serde_json::Value;

use super::contest::{Contender, nginx};
use super::table::{Row, Unit};
use super::{Bench, median, pages};
use crate::load::h2load::H2Load;
use crate::process::{Identity, Launch, Process, children_cpu};
use crate::rivals::{NginxMode, NginxOptions};

/// Length of the file in bytes.
const LENGTH: usize = 5 << 10;
const CONNECTIONS: usize = 64;
/// Connections with HTTP/2, and concurrent requests on each.
const HTTP2_CONNECTIONS: usize = 16;
const STREAMS: usize = 10;
/// Time that a generator may take beyond its duration.
const PATIENCE: Duration = Duration::from_secs(60);

/// Rate of the load on the stalling server in requests per second.
const STALLED_RATE: u32 = 1000;
/// Seconds of that load, and after how many of them the server stalls.
const STALLED_SECONDS: f64 = 5.0;
const BEFORE_STALL: Duration = Duration::from_secs(2);
const STALL: Duration = Duration::from_secs(1);

/// Result of one run of a generator.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Responses per second.
    rate: f64,
    /// CPU time of the generator per response in microseconds.
    cpu_us: f64,
}

impl Run {
    /// Runs a generator, which returns its number of responses and its seconds.
    fn of(generator: impl FnOnce() -> anyhow::Result<(f64, f64)>) -> anyhow::Result<Run> {
        let before = children_cpu();
        let (responses, seconds) = generator()?;
        let used = children_cpu().saturating_sub(before);
        anyhow::ensure!(responses > 0.0, "the generator got no response");
        Ok(Run {
            rate: responses / seconds,
            cpu_us: used.as_secs_f64() * 1e6 / responses,
        })
    }
}

pub(super) fn wrk(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let options = [format!("--connections={CONNECTIONS}")];
    compare(bench, "wrk", false, &options, |url| {
        run_wrk(bench, url, CONNECTIONS)
    })
}

pub(super) fn h2load(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let options = [
        format!("--connections={HTTP2_CONNECTIONS}"),
        "--http2".to_owned(),
        format!("--streams={STREAMS}"),
    ];
    compare(bench, "h2load", true, &options, |server| {
        let load = H2Load {
            connections: HTTP2_CONNECTIONS,
            streams: STREAMS,
            seconds: Some(bench.options.seconds_per_run),
            core: Some(bench.options.load_core),
            ..H2Load::new(server.server.address(), "/0")
        };
        let result = load.run(bench.folder.path())?;
        anyhow::ensure!(result.failed == 0, "{} requests failed", result.failed);
        Ok((result.requests as f64, result.seconds))
    })
}

/// Runs the other generator and `sluice bench` in turns against nginx. Returns a row with the ratio of their CPU times
/// and one with the ratio of their rates, each the median of the rounds' ratios.
fn compare(
    bench: &Bench<'_>,
    other: &str,
    http2: bool,
    options: &[String],
    run_other: impl Fn(&Contender) -> anyhow::Result<(f64, f64)>,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = [
        Row::new(&format!("sluice bench / {other}: CPU"), Unit::Factor),
        Row::new(&format!("sluice bench / {other}: rate"), Unit::Factor),
    ];
    if let Some(binary) = &bench.options.sluice_binary {
        let server = start_server(bench, http2)?;
        let mut runs = Vec::new();
        // The first round warms up the server and the generators.
        for _ in 0..=bench.options.rounds.max(1) {
            let theirs = Run::of(|| run_other(&server))?;
            let ours = Run::of(|| {
                let seconds = bench.options.seconds_per_run;
                let result = run_own(bench, binary, &server, seconds, options)?;
                Ok((number(&result, "requests")?, seconds))
            })?;
            eprintln!("  {other}: {theirs:?}, sluice bench: {ours:?}");
            runs.push((ours, theirs));
        }
        let [cpu, rate] = &mut rows;
        fill(cpu, other, &runs[1..], "µs", |run| run.cpu_us);
        fill(rate, other, &runs[1..], "requests/s", |run| run.rate);
    }
    let [cpu, rate] = rows;
    Ok(vec![cpu.goal_most(1.0), rate.goal_least(0.97)])
}

/// Writes the median of the ratios to a row, and the medians of the figures with their unit to its remark.
fn fill(row: &mut Row, other: &str, runs: &[(Run, Run)], unit: &str, pick: fn(&Run) -> f64) {
    let of = |value: &dyn Fn(&(Run, Run)) -> f64| median(runs.iter().map(value).collect());
    row.sluice = of(&|(ours, theirs)| pick(ours) / pick(theirs));
    let ours = of(&|(ours, _)| pick(ours)).unwrap_or_default();
    let theirs = of(&|(_, theirs)| pick(theirs)).unwrap_or_default();
    row.note = format!("{other} {theirs:.2} {unit}, sluice bench {ours:.2} {unit}");
}

/// Measures which 99.9th percentile is reported of a server that stalls for a second.
pub(super) fn stalls(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let mut row = Row::new(
        "sluice bench --rate, server stalls for 1 s: p99.9",
        Unit::Seconds,
    );
    if let Some(binary) = &bench.options.sluice_binary {
        let server = start_server(bench, false)?;
        let percentile = |options: &[String]| -> anyhow::Result<f64> {
            let result = std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(BEFORE_STALL);
                    let process = server.server.process();
                    signal_all(process, Signal::STOP);
                    std::thread::sleep(STALL);
                    signal_all(process, Signal::CONT);
                });
                run_own(bench, binary, &server, STALLED_SECONDS, options)
            })?;
            let latency = result.get("latency").context("no latency")?;
            Ok(number(latency, "p999_us")? / 1e6)
        };
        row.sluice = Some(percentile(&[format!("--rate={STALLED_RATE}")])?);
        let closed = percentile(&["--connections=1".to_owned()])?;
        row.note = format!(
            "a closed loop on one connection reports {:.0} µs",
            closed * 1e6
        );
    }
    Ok(vec![row.goal_least(0.9)])
}

/// Sends a signal to a process and its descendants.
fn signal_all(process: &Process, signal: Signal) {
    let tree = process.tree().unwrap_or_default();
    let running = tree.into_iter().filter_map(Identity::of);
    running.for_each(|one| one.signal(signal));
}

/// Starts nginx on the servers' core.
fn start_server(bench: &Bench<'_>, http2: bool) -> anyhow::Result<Contender> {
    anyhow::ensure!(bench.nginx, "nginx is not installed");
    let root = bench.folder.path().join("generators");
    pages::offset_files(&root, 1, LENGTH)?;
    let mut options = NginxOptions::new(NginxMode::Static(root), None);
    options.sendfile = false;
    options.http2 = http2;
    nginx(bench, &options)
}

/// Runs `sluice bench` on one thread. Returns its result.
fn run_own(
    bench: &Bench<'_>,
    binary: &Path,
    server: &Contender,
    seconds: f64,
    options: &[String],
) -> anyhow::Result<Value> {
    let fixed = [
        "bench".to_owned(),
        format!("http://{}/0", server.server.address()),
        "--threads=1".to_owned(),
        format!("--duration={:.0}ms", seconds * 1000.0),
        "--json".to_owned(),
    ];
    let arguments = fixed.iter().chain(options).cloned();
    let printed = run(bench, "sluice-bench", binary, arguments, seconds)?;
    let result: Value = serde_json::from_str(&printed).context("result of sluice bench")?;
    let errors = result.get("errors").and_then(Value::as_object);
    let failed = errors.context("no errors")?.values();
    anyhow::ensure!(
        failed.filter_map(Value::as_f64).sum::<f64>() == 0.0,
        "requests of sluice bench failed: {printed}"
    );
    Ok(result)
}

/// Runs wrk on one thread. Returns its number of responses and its seconds.
fn run_wrk(
    bench: &Bench<'_>,
    server: &Contender,
    connections: usize,
) -> anyhow::Result<(f64, f64)> {
    let seconds = bench.options.seconds_per_run;
    let arguments = [
        "--threads=1".to_owned(),
        format!("--connections={connections}"),
        // wrk takes whole seconds.
        format!("--duration={}s", seconds.ceil()),
        format!("http://{}/0", server.server.address()),
    ];
    let printed = run(bench, "wrk", Path::new("wrk"), arguments, seconds)
        .context("on Debian: apt-get install wrk")?;
    parse_wrk(&printed).with_context(|| format!("result of wrk: {printed}"))
}

/// Runs a generator on the load's core. Returns what it prints.
fn run(
    bench: &Bench<'_>,
    name: &str,
    program: &Path,
    arguments: impl IntoIterator<Item = String>,
    seconds: f64,
) -> anyhow::Result<String> {
    let mut process = Launch::new(name, program, bench.folder.path())
        .args(arguments)
        .core(Some(bench.options.load_core))
        .start()?;
    let status = process.wait_exit(Duration::from_secs_f64(seconds) + PATIENCE)?;
    let printed = process.stdout();
    anyhow::ensure!(
        status.success(),
        "{name} failed ({status}): {printed}{}",
        process.stderr()
    );
    Ok(printed)
}

/// Returns the number of responses and the seconds of wrk's result; `None` if a request failed or the result is
/// malformed.
fn parse_wrk(printed: &str) -> Option<(f64, f64)> {
    let fails = |line: &str| line.contains("Socket errors") || line.contains("Non-2xx");
    if printed.lines().any(fails) {
        return None;
    }
    //   152 requests in 3.10s, 779.19KB read
    // Requests/sec:     49.03
    let summary = printed
        .lines()
        .find(|line| line.contains(" requests in "))?;
    let (count, _) = summary.trim().split_once(" requests in ")?;
    let count: f64 = count.parse().ok()?;
    // The time is rounded to 0.01 minutes if the load takes about a minute or more, so it is computed from the rate.
    let mut lines = printed.lines();
    let rate = lines.find_map(|line| line.strip_prefix("Requests/sec:"))?;
    let rate: f64 = rate.trim().parse().ok()?;
    (rate > 0.0).then(|| (count, count / rate))
}

fn number(value: &Value, name: &str) -> anyhow::Result<f64> {
    let found = value.get(name).and_then(Value::as_f64);
    found.with_context(|| format!("no number {name:?} in the result"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_wrk_is_parsed() {
        let printed = "  2 threads and 4 connections\n  152 requests in 3.10s, 779.19KB read\nRequests/sec:     49.03\n";
        let (count, seconds) = parse_wrk(printed).expect("a result");
        assert_eq!(count, 152.0);
        assert!((seconds - 3.1).abs() < 0.001, "{seconds}");
        // A minute is shown as such.
        let long = "  300120 requests in 1.00m, 1.50GB read\nRequests/sec:   4998.67\n";
        let (count, seconds) = parse_wrk(long).expect("a result");
        assert_eq!(count, 300_120.0);
        assert!((seconds - 60.04).abs() < 0.001, "{seconds}");
        for failing in [
            "  Socket errors: connect 1, read 0, write 0, timeout 0\n",
            "  Non-2xx or 3xx responses: 3\n",
        ] {
            assert_eq!(parse_wrk(&format!("{printed}{failing}")), None);
        }
        assert_eq!(parse_wrk("unable to connect"), None);
        let none = "  0 requests in 3.00s, 0.00B read\nRequests/sec:      0.00\n";
        assert_eq!(parse_wrk(none), None);
    }

    #[test]
    fn the_remark_has_the_figures_with_their_unit() {
        let run = |rate: f64, cpu_us: f64| Run { rate, cpu_us };
        let runs = [(run(90_000.0, 11.2), run(80_000.0, 12.34))];
        let mut row = Row::new("sluice bench / wrk: CPU", Unit::Factor);
        fill(&mut row, "wrk", &runs, "µs", |run| run.cpu_us);
        assert_eq!(row.note, "wrk 12.34 µs, sluice bench 11.20 µs");
    }
}
