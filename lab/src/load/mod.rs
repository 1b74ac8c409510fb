//! The load generator: one thread on bare epoll, cheap enough to saturate a server on another core.
//!
//! In a closed loop, each connection sends its next request when its response is complete. In an open loop, requests
//! have a scheduled time, and latency counts from that time. A server that stalls therefore can't hide the time for
//! which clients would have waited (coordinated omission).

mod chunks;
mod engine;
pub mod h2load;
mod head;
mod schedule;
mod slot;
mod tls;
mod windows;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub use engine::run;
pub use tls::LoadTls;
pub use windows::Window;

/// Definition of a load: the requests to send, their rate, and the expected responses.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadPlan {
    /// Address of the server.
    pub target: SocketAddr,
    /// Request targets, which are used in turn.
    pub paths: Vec<String>,
    /// Numbers that replace `{n}` in the targets one after another: the first number, and how many numbers there are.
    pub numbers: Option<(u64, u64)>,
    /// Value of the Host header of all requests.
    pub host: String,
    /// Headers in addition to Host.
    pub headers: Vec<(String, String)>,
    /// Number of concurrent connections.
    pub connections: usize,
    /// Whether connections are reused. If not, each request has its own connection and sends `Connection: close`.
    pub keepalive: bool,
    /// Number of requests after which the load ends.
    pub requests: Option<u64>,
    /// Seconds after which the load ends.
    pub seconds: Option<f64>,
    /// Requests per second of an open loop; `None`: closed loop.
    pub rate: Option<f64>,
    /// Rate in requests per second to which the rate of an open loop rises linearly within `seconds`.
    pub rising_to: Option<f64>,
    /// Length in seconds of the periods for which an open loop reports separate results (windows).
    pub window_seconds: Option<f64>,
    /// Median latency in microseconds at which the server counts as saturated. An open loop ends after a window above
    /// it.
    pub saturated_us: Option<f64>,
    /// Expected status of each response.
    pub expect_status: u16,
    /// Expected body length in bytes of each response; `None`: any length.
    pub expect_length: Option<u64>,
    /// Whether each byte is compared with version 0 of the offset body (see [`crate::offset`]). If not, bodies are only
    /// counted, and the kernel discards them.
    pub verify: bool,
    /// Number of source addresses in 127/8 that connections use in turn, for loads with many short connections. 0: the
    /// kernel chooses the address.
    pub sources: u32,
    /// Seconds within which a response must be complete. Otherwise the request counts as an error.
    pub timeout_seconds: f64,
    /// Number of consecutive errors after which the load is aborted; `None`: errors are only counted.
    pub consecutive_errors_max: Option<u64>,
    /// Latency in microseconds above which an expected response counts as slow.
    pub slow_us: Option<u64>,
    /// CPU core to which the load generator's thread is pinned.
    pub core: Option<usize>,
    /// TLS of the connections; `None`: clear text.
    pub tls: Option<LoadTls>,
}

impl LoadPlan {
    /// Creates a closed loop with one keepalive connection and one request for `path`. Callers change the fields that
    /// they need.
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
            consecutive_errors_max: Some(1000),
            slow_us: None,
            core: None,
            tls: None,
        }
    }
}

/// Runs a load on a thread of its own, because pinning a thread to a core can't be undone.
///
/// Errors: as for [`run`].
pub fn run_apart(plan: LoadPlan) -> anyhow::Result<LoadResult> {
    let result = std::thread::scope(|scope| scope.spawn(|| run(plan)).join());
    result.map_err(|_| anyhow::anyhow!("the load panicked"))?
}

/// Result of running a load.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LoadResult {
    /// Number of good responses: those with the expected status, length and content.
    pub requests: u64,
    /// Numbers of unexpected responses, and of requests without a response.
    pub errors: Errors,
    /// Number of body bytes in good responses.
    pub bytes: u64,
    /// Time in seconds from the first request to the last response.
    pub seconds: f64,
    /// Number of connections that were made.
    pub connects: u64,
    /// Latencies of good responses, measured up to the last byte from sending the request, or in an open loop from the
    /// request's scheduled time.
    pub latency: Latency,
    /// Number of good responses slower than [`LoadPlan::slow_us`].
    pub slow: u64,
    /// Number of responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Numbers of good responses on the connection with the fewest and on the one with the most.
    pub per_connection: (u64, u64),
    /// CPU time in seconds that the load generator used.
    pub cpu_seconds: f64,
    /// Results for each window, if [`LoadPlan::window_seconds`] is set.
    pub windows: Vec<Window>,
}

impl LoadResult {
    /// Returns the number of good responses per second.
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds.max(1e-9)
    }
}

/// Numbers of failed requests by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// Number of requests for which no connection could be made.
    pub connect: u64,
    /// Number of requests whose connection ended before the response was complete.
    pub closed: u64,
    /// Number of requests whose response was not complete within the timeout.
    pub timeout: u64,
    /// Number of responses with another status than expected.
    pub status: u64,
    /// Number of responses with another body length than expected.
    pub length: u64,
    /// Number of responses that were not valid HTTP/1.1, or had neither Content-Length nor a chunked body.
    pub malformed: u64,
    /// Number of responses whose bytes differed from the offset body (see [`crate::offset`]).
    pub content: u64,
}

impl Errors {
    /// Returns the sum of all errors.
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

/// Distribution of latencies in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Smallest latency.
    pub min_us: f64,
    /// Mean latency.
    pub mean_us: f64,
    /// Standard deviation of the latency.
    pub deviation_us: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 90th percentile of the latency.
    pub p90_us: f64,
    /// 95th percentile of the latency.
    pub p95_us: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
    /// 99.9th percentile of the latency.
    pub p999_us: f64,
    /// Largest latency.
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
