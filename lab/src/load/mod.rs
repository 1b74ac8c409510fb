//! The load generator: one thread on bare epoll, cheap enough to saturate a server on another core.
//!
//! Closed loop: each connection sends its next request when the answer is whole. Open loop: requests have a time at
//! which they ought to be sent, and their latency counts from that time, so that a stalling server can't hide how long
//! its clients would have waited (coordinated omission).

mod chunks;
mod engine;
mod head;
mod schedule;
mod slot;
mod windows;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub use engine::run;
pub use windows::Window;

/// What load to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadPlan {
    /// The server.
    pub target: SocketAddr,
    /// Request targets, asked for in turn.
    pub paths: Vec<String>,
    /// Numbers that stand, one after the other, for `{n}` in the targets: the first, and how many there are.
    pub numbers: Option<(u64, u64)>,
    /// Value of Host.
    pub host: String,
    /// Further request fields.
    pub headers: Vec<(String, String)>,
    /// Connections at once.
    pub connections: usize,
    /// Whether a connection is used for many requests; if not, each request has its own and says `Connection: close`.
    pub keepalive: bool,
    /// Ends after so many requests.
    pub requests: Option<u64>,
    /// Ends after so many seconds.
    pub seconds: Option<f64>,
    /// Open loop at so many requests a second; closed loop without.
    pub rate: Option<f64>,
    /// What the rate of an open loop rises to, evenly, in its `seconds`.
    pub rising_to: Option<f64>,
    /// Has the answers of an open loop told apart by windows of so many seconds.
    pub window_seconds: Option<f64>,
    /// Ends an open loop when half of the requests that were due in a window took longer.
    pub saturated_us: Option<f64>,
    /// Status that each answer must have.
    pub expect_status: u16,
    /// Body length that each answer must have.
    pub expect_length: Option<u64>,
    /// Checks each byte to be that of the plain offset body; without, bodies are counted and dropped inside the kernel.
    pub verify: bool,
    /// How many source addresses in 127/8 take turns, for loads with many short connections. 0: the kernel chooses.
    pub sources: u32,
    /// An answer that takes longer counts as an error.
    pub timeout_seconds: f64,
    /// Good answers that take longer are counted.
    pub slow_us: Option<u64>,
    /// The core to run on.
    pub core: Option<usize>,
}

impl LoadPlan {
    /// A closed loop of one keepalive connection and one request for `path`, to be changed from there.
    pub fn new(target: SocketAddr, path: &str) -> LoadPlan {
        LoadPlan {
            target,
            paths: vec![path.to_owned()],
            numbers: None,
            host: target.to_string(),
            headers: Vec::new(),
            connections: 1,
            keepalive: true,
            requests: None,
            seconds: None,
            rate: None,
            rising_to: None,
            window_seconds: None,
            saturated_us: None,
            expect_status: 200,
            expect_length: None,
            verify: false,
            sources: 0,
            timeout_seconds: 10.0,
            slow_us: None,
            core: None,
        }
    }
}

/// Makes the load on a thread of its own, since one that is pinned stays so.
///
/// Errors: as for [`run`].
pub fn run_apart(plan: LoadPlan) -> anyhow::Result<LoadResult> {
    let result = std::thread::scope(|scope| scope.spawn(|| run(plan)).join());
    result.map_err(|_| anyhow::anyhow!("the load panicked"))?
}

/// What came of a load.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LoadResult {
    /// Answers that were as expected.
    pub requests: u64,
    /// Answers that were not, and requests without an answer.
    pub errors: Errors,
    /// Body bytes of good answers.
    pub bytes: u64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Connections that were made.
    pub connects: u64,
    /// Times from when a request was sent (open loop: ought to be sent) to its last byte.
    pub latency: Latency,
    /// Good answers that took longer than [`LoadPlan::slow_us`].
    pub slow: u64,
    /// How many answers had which status.
    pub statuses: BTreeMap<u16, u64>,
    /// Good answers on the connection that got fewest and on the one that got most.
    pub per_connection: (u64, u64),
    /// Seconds of CPU time that the load generator took.
    pub cpu_seconds: f64,
    /// What it was like at each time, if that was wanted.
    pub windows: Vec<Window>,
}

impl LoadResult {
    /// Good answers a second.
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds.max(1e-9)
    }
}

/// Requests that failed, by how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// No connection.
    pub connect: u64,
    /// The connection ended before the answer was whole.
    pub closed: u64,
    /// No whole answer in time.
    pub timeout: u64,
    /// Another status than expected.
    pub status: u64,
    /// Another length than expected.
    pub length: u64,
    /// No HTTP/1.1 head with Content-Length or a chunked body, or no such body.
    pub malformed: u64,
    /// Bytes that were not those of the offset body.
    pub content: u64,
}

impl Errors {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.connect
            + self.closed
            + self.timeout
            + self.status
            + self.length
            + self.malformed
            + self.content
    }
}

/// Percentiles of latency, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Least.
    pub min_us: f64,
    /// Mean.
    pub mean_us: f64,
    /// Standard deviation.
    pub deviation_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Greatest.
    pub max_us: f64,
}

impl Latency {
    fn of(nanoseconds: &Histogram<u64>) -> Latency {
        if nanoseconds.is_empty() {
            return Latency::default();
        }
        let at = |quantile| nanoseconds.value_at_quantile(quantile) as f64 / 1000.0;
        Latency {
            min_us: nanoseconds.min() as f64 / 1000.0,
            mean_us: nanoseconds.mean() / 1000.0,
            deviation_us: nanoseconds.stdev() / 1000.0,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: nanoseconds.max() as f64 / 1000.0,
        }
    }
}

#[cfg(test)]
mod tests;
