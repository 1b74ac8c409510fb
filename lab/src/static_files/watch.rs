//! The memory and CPU time of a server over time, while a load runs.

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::process::{Process, run_pinned};

/// Shortest interval at which a server is observed, in seconds.
const INTERVAL_MIN: f64 = 0.1;

/// Number of times that a server is observed during a load, at most.
const SAMPLES: f64 = 100.0;

/// Memory and CPU time of a server at one moment of a load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time in seconds since the load began.
    pub at: f64,
    /// Resident memory in bytes, of all processes of the server.
    pub resident: u64,
    /// Resident memory in bytes that is not backed by files, of all processes of the server.
    pub anonymous: u64,
    /// CPU time since the sample before, as a share of one core; 0 in the first sample.
    pub cpu: f64,
}

/// Runs a load of about this many seconds on another thread, and observes the server until the load ends, from the
/// load's core. Returns the result of the load and the samples.
///
/// Errors: the load failed, or the server has ended.
pub(super) fn watched<T: Send>(
    process: &Process,
    seconds: f64,
    core: Option<usize>,
    load: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<(T, Vec<Sample>)> {
    let interval = Duration::from_secs_f64((seconds / SAMPLES).max(INTERVAL_MIN));
    thread::scope(|scope| {
        let load = scope.spawn(load);
        let samples = run_pinned(core, || observe(process, interval, || load.is_finished()));
        let result = load.join();
        let result = result.map_err(|_| anyhow::anyhow!("the load panicked"))??;
        anyhow::Ok((result, samples?))
    })
}

fn observe(
    process: &Process,
    interval: Duration,
    is_over: impl Fn() -> bool,
) -> anyhow::Result<Vec<Sample>> {
    let began = Instant::now();
    let mut before = (began, process.cpu()?);
    let mut samples = Vec::new();
    while !is_over() {
        let memory = process.memory()?;
        let (now, cpu) = (Instant::now(), process.cpu()?);
        let passed = (now - before.0).as_secs_f64();
        let used = cpu.saturating_sub(before.1).as_secs_f64();
        samples.push(Sample {
            at: (now - began).as_secs_f64(),
            resident: memory.rss,
            anonymous: memory.anonymous,
            cpu: if samples.is_empty() {
                0.0
            } else {
                used / passed
            },
        });
        before = (now, cpu);
        thread::sleep(interval);
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Launch;

    /// Whether this process has a thread that observes and may run only on core 0.
    fn is_observed_from_core_0() -> bool {
        let threads = std::fs::read_dir("/proc/self/task").expect("threads");
        let status = |thread: std::fs::DirEntry| {
            std::fs::read_to_string(thread.path().join("status")).unwrap_or_default()
        };
        threads.flatten().map(status).any(|status| {
            status.contains("Name:\tlab-pinned\n") && status.contains("Cpus_allowed_list:\t0\n")
        })
    }

    #[test]
    fn memory_and_cpu_time_are_observed_while_the_load_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "echo ready; while :; do i=$((i+1)); done";
        let launch = Launch::new("shell", "sh", folder.path()).args(["-c", script]);
        let mut shell = launch.start().expect("sh is installed");
        let ready = shell.wait_line("ready", Duration::from_secs(60));
        ready.expect("a line");
        let load = || {
            let deadline = Instant::now() + Duration::from_secs(60);
            while !is_observed_from_core_0() {
                assert!(Instant::now() < deadline, "no observer on core 0");
                thread::yield_now();
            }
            thread::sleep(Duration::from_secs(2));
            Ok(7)
        };
        let began = Instant::now();
        let (result, samples) = watched(&shell, 0.4, Some(0), load).expect("a result");
        assert_eq!(result, 7);
        // At most one each 100 ms, and one at the beginning and at the end. A busy machine may delay many.
        let most = began.elapsed().as_millis() as usize / 100 + 2;
        assert!((2..=most).contains(&samples.len()), "{samples:?}");
        assert_eq!(samples[0].cpu, 0.0);
        assert!(samples[1..].iter().any(|one| one.cpu > 0.0), "{samples:?}");
        assert!(samples.iter().all(|one| one.resident > one.anonymous));
        assert!(samples.is_sorted_by(|one, next| one.at < next.at));

        let failing = || -> anyhow::Result<()> { anyhow::bail!("no load") };
        assert!(watched(&shell, 0.4, None, failing).is_err());
    }
}
