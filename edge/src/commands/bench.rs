//! `sluice bench`: a load generator for any HTTP server.

mod failure;
mod given;
mod handshake;
mod html;
mod options;
mod plan;
mod points;
mod replay;
mod report;
mod url;
mod values;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use sluice_lab::load::{Live, LoadResult, Recent, run_on_threads};
use sluice_lab::process;

use anyhow::Context;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::output::{harmless, misused, say};
use super::signals::at_first_signal;
use crate::config::show_size;
use crate::sys::{Clock, disk};
pub use given::Bench;
use options::BenchArgs;
use plan::Load;
use points::Points;
use replay::Log;
use report::{Report, Server, show, us_per_response};

/// Interval between lines of progress.
const SECOND: Duration = Duration::from_secs(1);

/// An event that the command waits for.
enum Event {
    /// The load has ended by itself.
    Ended,
    /// A signal ends the load.
    Signal,
}

/// Runs the load. The exit status is 1 if every request failed.
pub fn run(bench: Bench) -> anyhow::Result<()> {
    let Bench { args, given } = bench;
    let load = plan::load(&args)?;
    if let Some(file) = &args.report {
        check_writable(file)?;
    }
    let before = args.pid.map(cpu_before).transpose()?;
    let mut watch = Watch::new(&args);
    let date = UNIX_EPOCH + Duration::from_millis(Clock::system().unix_ms());
    let date = humantime::format_rfc3339_seconds(date).to_string();
    if let Some(remark) = load.log.as_ref().and_then(Log::remark) {
        // Writing fails if standard error is closed. The load goes on without a display.
        let _ = writeln!(std::io::stderr(), "{remark}");
    }
    let (is_interrupted, result) = run_load(&load, args.cores, &mut watch)?;
    let server = match (args.pid, before) {
        (Some(pid), Some(cpu)) => watch.server(pid, cpu, &result),
        _ => None,
    };
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        date,
        command: given.command(&args.urls),
        options: given,
        url: harmless(&args.urls[0]),
        other_urls: args.urls.len() - 1,
        connections: load.plan.connections,
        streams: load.plan.streams,
        threads: load.threads,
        requests_per_s: result.rate(),
        connections_per_s: result.per_second(result.connects),
        bytes_per_s: result.byte_rate(),
        log: load.log,
        is_interrupted,
        server,
        result,
    };
    match args.json {
        true => say(&format!("{}\n", serde_json::to_string_pretty(&report)?))?,
        false => say(&report.render())?,
    }
    if let Some(file) = &args.report {
        let page = html::render(&report, watch.points.all());
        let written = disk::write_text(file, &page);
        written.with_context(|| format!("the report {} can't be written", file.display()))?;
    }
    match report.has_failed() {
        true => Err(failure::error(&load.plan, &report.result)),
        false => Ok(()),
    }
}

/// Runs the load until it ends or a signal ends it. Returns whether a signal did, and the result.
fn run_load(load: &Load, cores: bool, watch: &mut Watch) -> anyhow::Result<(bool, LoadResult)> {
    let live = Live::new()?;
    let (sender, events) = channel();
    let signals = sender.clone();
    // Sending fails only if the command has ended.
    at_first_signal(Duration::ZERO, move || drop(signals.send(Event::Signal)))?;
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let result = run_on_threads(&load.plan, load.threads, cores, &live);
            // Sending fails only if the other side has ended already.
            let _ = sender.send(Event::Ended);
            result
        });
        let is_interrupted = watch.show_until_end(&events, &live);
        let joined = running.join();
        let result = joined.unwrap_or_else(|_| Err(anyhow::anyhow!("the load panicked")))?;
        Ok((is_interrupted, result))
    })
}

/// Checks before the load that the report can be written after it.
fn check_writable(file: &Path) -> anyhow::Result<()> {
    disk::access::append(&disk::access::link_target(file)).map_err(|error| {
        let option = format!("--report {}", file.display());
        let help = "name a file in a folder that you may write";
        misused(
            harmless(&option),
            format!("this file can't be written: {error}"),
            help,
        )
    })
}

/// Returns the CPU time that a server's process has used before the load.
fn cpu_before(pid: u32) -> anyhow::Result<Duration> {
    let used = process::usage(pid).map(|(cpu, _)| cpu);
    used.map_err(|error| {
        let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let exists = id.is_some_and(|id| test_kill_process(id) != Err(Errno::SRCH));
        let help = match exists {
            true => "run this command as the user of that process or as root, or leave --pid out",
            false => "`pgrep nginx` shows the ids of the processes of nginx",
        };
        misused(format!("--pid {pid}"), error.to_string(), help)
    })
}

/// The display of a running load, and the measurement of the server's memory.
struct Watch {
    pid: Option<u32>,
    /// Whether each line of progress replaces the one before.
    is_terminal: bool,
    is_shown: bool,
    seconds: u64,
    /// CPU time of the server in seconds, as last read.
    cpu_seconds: Option<f64>,
    memory_max: u64,
    points: Points,
}

impl Watch {
    fn new(args: &BenchArgs) -> Watch {
        let is_terminal = std::io::stderr().is_terminal();
        Watch {
            pid: args.pid,
            is_terminal,
            is_shown: is_terminal || !args.json,
            seconds: 0,
            cpu_seconds: None,
            memory_max: 0,
            points: Points::new(),
        }
    }

    /// Shows a line per second until the load ends. Returns whether a signal ended it.
    fn show_until_end(&mut self, events: &Receiver<Event>, live: &Live) -> bool {
        let mut is_interrupted = false;
        loop {
            match events.recv_timeout(SECOND) {
                Ok(Event::Signal) => {
                    is_interrupted = true;
                    live.stop();
                }
                Err(RecvTimeoutError::Timeout) => self.second(&live.take()),
                Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if self.is_terminal && self.seconds > 0 {
            // Removes the line of progress. Writing fails if standard error is closed.
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        is_interrupted
    }

    fn second(&mut self, recent: &Recent) {
        self.seconds += 1;
        self.sample();
        self.points.add(self.seconds, recent);
        if self.is_shown {
            let line = progress(self.seconds, recent);
            let (begin, end) = match self.is_terminal {
                true => ("\r", "\x1b[K"),
                false => ("", "\n"),
            };
            // Writing fails if standard error is closed. The load goes on without a display.
            let _ = write!(std::io::stderr(), "{begin}{line}{end}");
        }
    }

    /// Reads CPU time and memory of the server. A server that has ended keeps its last values.
    fn sample(&mut self) {
        if let Some(Ok((cpu, memory))) = self.pid.map(process::usage) {
            self.cpu_seconds = Some(cpu.as_secs_f64());
            self.memory_max = self.memory_max.max(memory.rss);
        }
    }

    /// Returns the usage of the server since it had used `before` of CPU time.
    fn server(&mut self, pid: u32, before: Duration, result: &LoadResult) -> Option<Server> {
        self.sample();
        let cpu_seconds = (self.cpu_seconds? - before.as_secs_f64()).max(0.0);
        Some(Server {
            pid,
            cpu_seconds,
            cpu_us_per_request: us_per_response(cpu_seconds, result),
            memory_max_bytes: self.memory_max,
        })
    }
}

fn progress(seconds: u64, recent: &Recent) -> String {
    let latency = &recent.latency;
    let time = |us| match recent.requests {
        0 => "-".to_owned(),
        _ => show(us),
    };
    format!(
        "{seconds} s: {:.0} requests/s, {}/s, p50 {}, p99 {}, max {}, {} errors",
        recent.per_second(recent.requests),
        show_size(recent.per_second(recent.bytes) as u64),
        time(latency.p50_us),
        time(latency.p99_us),
        time(latency.max_us),
        recent.errors
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_lab::load::Latency;

    #[test]
    fn a_second_without_good_responses_has_no_latencies() {
        let mut recent = Recent {
            seconds: 1.0,
            requests: 0,
            errors: 3,
            bytes: 0,
            connects: 0,
            latency: Latency::default(),
        };
        let line = progress(1, &recent);
        assert!(line.contains("p50 -, p99 -, max -, 3 errors"), "{line}");
        recent.requests = 1;
        let line = progress(1, &recent);
        assert!(line.contains("p50 0µs"), "{line}");
    }
}
