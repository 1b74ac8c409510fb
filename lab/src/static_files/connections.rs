//! Many connections: the memory of a server while thousands of connections open and stay, with a request now and then
//! on each.

use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::watch::{Sample, watched};
use crate::bench::contest::Server;
use crate::bench::settled;
use crate::load::{self, Errors, Latency, LoadPlan, Window};
use crate::ramp::climb::{self, FILES};
use crate::ramp::servers::Candidate;
use crate::spread::Spread;

/// Requests on each connection: the first one when the connection opens, the other one when all are open.
const REQUESTS_EACH: f64 = 2.0;

/// Number of windows of the latencies over time.
const WINDOWS: f64 = 20.0;

/// Number of connections of the load before the memory at rest is measured.
const WARM_CONNECTIONS: usize = 16;

/// A server's memory with many open connections, and its latency then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    /// Resident memory in bytes before the connections opened; `None` if nothing was measured.
    pub rest_bytes: Option<Spread>,
    /// Most resident memory in bytes while all connections were open, in rounds without failed requests; `None` if there
    /// are none. After a failed request, fewer connections are open.
    pub open_bytes: Option<Spread>,
    /// Growth of the resident memory per connection in bytes, in rounds without failed requests; `None` if there are none.
    pub bytes_each: Option<Spread>,
    /// Median latency in microseconds, in rounds with good responses; `None` if there are none.
    pub p50_us: Option<Spread>,
    /// 99th percentile of the latency in microseconds, in rounds with good responses; `None` if there are none.
    pub p99_us: Option<Spread>,
    /// The measured rounds.
    pub runs: Vec<ConnectionsRun>,
}

/// One round of [`Connections`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionsRun {
    /// Requests per second on all connections together.
    pub rate: f64,
    /// Resident memory in bytes before the connections opened, after all files had been requested.
    pub rest_bytes: u64,
    /// Most resident memory in bytes in the second half, while all connections without failed requests were open.
    pub open_bytes: u64,
    /// Growth of the resident memory in bytes, divided by the number of all connections.
    pub bytes_each: f64,
    /// CPU time of the server per request, in microseconds.
    pub cpu_us: f64,
    /// Number of good responses.
    pub requests: u64,
    /// Failed requests.
    pub errors: Errors,
    /// Numbers of good responses on the connection with the fewest and on the one with the most.
    pub per_connection: (u64, u64),
    /// Latencies of all good responses. The first ones on each connection include the time to connect.
    pub latency: Latency,
    /// Latencies over time.
    pub windows: Vec<Window>,
    /// Memory and CPU time of the server over time.
    pub samples: Vec<Sample>,
}

impl Connections {
    pub(super) fn of(runs: Vec<ConnectionsRun>) -> Connections {
        let spread = |pick: fn(&ConnectionsRun) -> f64| Spread::of(runs.iter().map(pick).collect());
        let complete = |pick: fn(&ConnectionsRun) -> f64| {
            let complete = runs.iter().filter(|run| run.errors.total() == 0);
            Spread::of(complete.map(pick).collect())
        };
        let latency = |pick: fn(&Latency) -> f64| {
            let latencies = runs.iter().map(|run| &run.latency);
            let known = latencies.filter(|latency| !latency.is_empty());
            Spread::of(known.map(pick).collect())
        };
        Connections {
            rest_bytes: spread(|run| run.rest_bytes as f64),
            open_bytes: complete(|run| run.open_bytes as f64),
            bytes_each: complete(|run| run.bytes_each),
            p50_us: latency(|latency| latency.p50_us),
            p99_us: latency(|latency| latency.p99_us),
            runs,
        }
    }

    /// Returns the number of failed requests in all rounds.
    pub(super) fn errors(&self) -> u64 {
        self.runs.iter().map(|run| run.errors.total()).sum()
    }
}

/// Starts a server of its own, since a server that had many connections before keeps some of their memory. Opens this
/// many connections within the first half of `seconds`, and keeps them for the second half.
pub(super) fn measure(
    candidate: &Candidate,
    root: &Path,
    connections: usize,
    seconds: f64,
) -> anyhow::Result<ConnectionsRun> {
    let server = candidate.start(root)?;
    let rest_bytes = memory_at_rest(&server)?;
    let rate = REQUESTS_EACH * connections as f64 / seconds;
    let plan = LoadPlan {
        connections,
        keepalive: true,
        rotate: true,
        rate: Some(rate),
        seconds: Some(seconds),
        window_seconds: Some(seconds / WINDOWS),
        consecutive_errors_max: None,
        ..climb::plan(&server)
    };
    let process = server.process();
    let before = process.cpu()?;
    let (result, samples) = watched(process, seconds, plan.core, || load::run_apart(plan))?;
    let used = process.cpu()?.saturating_sub(before).as_secs_f64();
    anyhow::ensure!(
        result.requests > 0,
        "no request was answered; errors: {}",
        result.errors
    );
    let open_bytes = most_resident(&samples, seconds / 2.0).context("the load ended too early")?;
    Ok(ConnectionsRun {
        rate,
        rest_bytes,
        open_bytes,
        bytes_each: open_bytes.saturating_sub(rest_bytes) as f64 / connections as f64,
        cpu_us: used * 1e6 / result.requests as f64,
        requests: result.requests,
        errors: result.errors,
        per_connection: result.per_connection,
        latency: result.latency,
        windows: result.windows,
        samples,
    })
}

/// Requests all files, and returns the resident memory in bytes after that.
fn memory_at_rest(server: &Server) -> anyhow::Result<u64> {
    let warm = load::run_apart(LoadPlan {
        connections: WARM_CONNECTIONS,
        keepalive: true,
        requests: Some(2 * FILES),
        ..climb::plan(server)
    })?;
    anyhow::ensure!(warm.errors.total() == 0, "errors: {}", warm.errors);
    settled(server.process())
}

/// Returns the most resident memory in bytes of the samples from `begin` seconds on; `None` if there are none.
fn most_resident(samples: &[Sample], begin: f64) -> Option<u64> {
    let open = samples.iter().filter(|sample| sample.at >= begin);
    open.map(|sample| sample.resident).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_counts_once_all_connections_are_open() {
        let sample = |at: f64, resident| Sample {
            at,
            resident,
            anonymous: 0,
            cpu: 0.0,
        };
        let samples = [
            sample(0.0, 90),
            sample(1.0, 50),
            sample(2.0, 60),
            sample(3.0, 55),
        ];
        assert_eq!(most_resident(&samples, 1.0), Some(60));
        assert_eq!(most_resident(&samples, 4.0), None);
    }
}
