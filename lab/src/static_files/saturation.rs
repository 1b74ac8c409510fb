//! Saturation: a closed loop of many clients, over connections that stay open or with a connection for each request.

use serde::{Deserialize, Serialize};

use crate::load::{self, Errors, Latency, LoadPlan};
use crate::ramp::climb::Contender;
use crate::spread::Spread;

/// Number of concurrent requests. Each connection has an address of its own. Apache has a thread for each.
pub(super) const CONNECTIONS: usize = 256;

/// A server's throughput and its CPU time per request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Saturation {
    /// Requests per second; `None` if nothing was measured.
    pub rate: Option<Spread>,
    /// CPU time of the server per request, in microseconds; `None` if nothing was measured.
    pub cpu_us: Option<Spread>,
    /// The measured rounds.
    pub runs: Vec<SaturationRun>,
}

/// One round of [`Saturation`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SaturationRun {
    /// Requests per second.
    pub rate: f64,
    /// CPU time of the server per request, in microseconds.
    pub cpu_us: f64,
    /// Share of its core that the server used.
    pub server_busy: f64,
    /// Share of its core that the load generator used. Near 1, the load generator may be the limit, and not the server.
    pub load_busy: f64,
    /// Number of good responses.
    pub requests: u64,
    /// Failed requests.
    pub errors: Errors,
    /// Latencies of the good responses. In a closed loop, they depend on the number of clients.
    pub latency: Latency,
}

impl Saturation {
    pub(super) fn of(runs: Vec<SaturationRun>) -> Saturation {
        let spread = |pick: fn(&SaturationRun) -> f64| Spread::of(runs.iter().map(pick).collect());
        Saturation {
            rate: spread(|run| run.rate),
            cpu_us: spread(|run| run.cpu_us),
            runs,
        }
    }

    /// Whether the load generator's core was nearly saturated in one of the rounds, at this share.
    pub(super) fn is_limited(&self, busy: f64) -> bool {
        self.runs.iter().any(|run| run.load_busy > busy)
    }

    /// Whether both server and load generator used less than this share of their cores in one of the rounds. One of them
    /// would be saturated if no other process had used their cores.
    pub(super) fn is_disturbed(&self, busy: f64) -> bool {
        let mut shares = self
            .runs
            .iter()
            .map(|run| run.server_busy.max(run.load_busy));
        shares.any(|share| share < busy)
    }

    /// Returns the number of failed requests in all rounds.
    pub(super) fn errors(&self) -> u64 {
        self.runs.iter().map(|run| run.errors.total()).sum()
    }
}

/// Saturates the server for this many seconds.
///
/// Errors: the server has ended, or answers no request.
pub(super) fn measure(
    one: &Contender,
    keepalive: bool,
    seconds: f64,
) -> anyhow::Result<SaturationRun> {
    let plan = LoadPlan {
        connections: CONNECTIONS,
        keepalive,
        seconds: Some(seconds),
        ..one.plan()
    };
    let process = one.server.process();
    let before = process.cpu()?;
    let result = load::run_apart(plan)?;
    let used = process.cpu()?.saturating_sub(before).as_secs_f64();
    anyhow::ensure!(
        result.requests > 0,
        "no request was answered; errors: {}",
        result.errors
    );
    Ok(SaturationRun {
        rate: result.rate(),
        cpu_us: used * 1e6 / result.requests as f64,
        server_busy: used / result.seconds.max(1e-9),
        load_busy: result.cpu_seconds / result.seconds.max(1e-9),
        requests: result.requests,
        errors: result.errors,
        latency: result.latency,
    })
}
