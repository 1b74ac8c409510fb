//! The load generator: one thread on bare epoll, cheap enough to saturate a server on another core.
//!
//! In a closed loop, each connection sends its next request when its response is complete. In an open loop, requests
//! have a scheduled time, and latency counts from that time. A server that stalls therefore can't hide the time for
//! which clients would have waited (coordinated omission).
//!
//! One event loop (`engine`) drives connections of HTTP/1.1 (`http1`) and of HTTP/2 (`http2`). Both take requests from
//! the same schedule and count into the same histograms (`state`), so that their results can be compared.

mod chunks;
mod counts;
mod engine;
mod free;
pub mod h2load;
mod handshake;
mod head;
mod http1;
mod http2;
mod latency;
mod range;
mod response;
mod schedule;
mod slot;
mod socket;
mod state;
mod targets;
mod threads;
mod timer;
mod tls;
mod trust;
mod windows;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub use counts::{Live, Recent};
pub use engine::run;
pub use handshake::{HandshakeError, HandshakeFailure};
pub use latency::Latency;
pub(crate) use latency::or_null::serialize as serialize_latency;
pub use targets::{Choice, Replayed};
pub use threads::run_on_threads;
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
    /// Choice of the requests.
    #[serde(default)]
    pub choice: Choice,
    /// Value of the Host header of all requests.
    pub host: String,
    /// Headers in addition to Host.
    pub headers: Vec<(String, String)>,
    /// Number of concurrent connections.
    pub connections: usize,
    /// Whether connections are reused. If not, each request has its own connection and sends `Connection: close`.
    pub keepalive: bool,
    /// Whether the connection that has been idle for the longest time sends the next request, so that an open loop uses
    /// all connections. If not, the connection that became idle last does, and others may never be opened.
    #[serde(default)]
    pub rotate: bool,
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
    /// Expected status of each response; `None`: 200, and 206 for ranges.
    #[serde(default)]
    pub expect_status: Option<u16>,
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
    /// Most concurrent streams on each connection of HTTP/2; `None`: HTTP/1.1. In clear text, the server has to expect
    /// HTTP/2 (prior knowledge).
    #[serde(default)]
    pub streams: Option<usize>,
}

impl LoadPlan {
    /// Creates a closed loop with one keepalive connection and one request for `path`. Callers change the fields that
    /// they need.
    pub fn new(target: SocketAddr, path: &str) -> LoadPlan {
        LoadPlan {
            target,
            paths: vec![path.to_owned()],
            numbers: None,
            choice: Choice::InTurn,
            host: target.to_string(),
            headers: Vec::new(),
            connections: 1,
            keepalive: true,
            rotate: false,
            requests: None,
            seconds: None,
            rate: None,
            rising_to: None,
            window_seconds: None,
            saturated_us: None,
            expect_status: None,
            expect_length: None,
            verify: false,
            sources: 0,
            timeout_seconds: 10.0,
            consecutive_errors_max: Some(1000),
            slow_us: None,
            core: None,
            tls: None,
            streams: None,
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
    /// Number of good responses: those with the expected status, length and content. Late ones are included.
    pub requests: u64,
    /// Numbers of unexpected responses, and of requests without a response.
    pub errors: Errors,
    /// Number of body bytes in good responses.
    pub bytes: u64,
    /// Time in seconds to which rates refer, from the start of the load to its end: its planned duration, or the time
    /// after which it was interrupted or the server was found to be saturated. If all requests ended before that, or no
    /// duration was planned, the time up to the last response.
    pub seconds: f64,
    /// Number of good responses that were complete after the end of the load.
    #[serde(default)]
    pub late: u64,
    /// Number of body bytes in late responses.
    #[serde(default)]
    pub late_bytes: u64,
    /// Number of requests that had begun and had neither a response nor an error when the load was interrupted.
    #[serde(default)]
    pub unfinished: u64,
    /// Number of requests of an open loop that were due before the load was interrupted or the server was found to be
    /// saturated, but were never begun.
    #[serde(default)]
    pub unsent: u64,
    /// Number of times that a request was sent again, because the server had closed an idle connection, refused the
    /// stream, or no longer answered on the connection.
    #[serde(default)]
    pub sent_again: u64,
    /// The system's error for the first connection that could not be made, or was not made in time.
    #[serde(default)]
    pub first_connect_error: Option<ConnectError>,
    /// Number of connections that were made.
    pub connects: u64,
    /// Latencies of good responses, measured up to the last byte from sending the request, or in an open loop from the
    /// request's scheduled time. In JSON, `null` if there are none.
    #[serde(with = "latency::or_null")]
    pub latency: Latency,
    /// Times from the start of a connection to the time at which it can send, without the handshake
    /// of TLS. In JSON, `null` if no connection was made.
    #[serde(default, with = "latency::or_null")]
    pub connect: Latency,
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
    /// Seconds from the start of the load to the beginning of the first window whose median latency was above
    /// [`LoadPlan::saturated_us`].
    #[serde(default)]
    pub saturated_seconds: Option<f64>,
    /// Number of requests per second that were due in the window before that one; `None` if that was the first window, or
    /// the server was not saturated.
    #[serde(default)]
    pub saturated_rate: Option<f64>,
}

impl LoadResult {
    /// Returns the number of good responses per second up to the end of the load.
    pub fn rate(&self) -> f64 {
        self.per_second(self.requests - self.late.min(self.requests))
    }

    /// Returns the number of body bytes per second in good responses up to the end of the load.
    pub fn byte_rate(&self) -> f64 {
        self.per_second(self.bytes - self.late_bytes.min(self.bytes))
    }

    /// Returns a number that was counted during the load, as a rate per second.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.seconds.max(1e-9)
    }
}

/// Reason why a connection could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectError {
    /// Number of the system's error.
    pub errno: i32,
    /// Text of the error.
    pub text: String,
}

impl ConnectError {
    fn of(error: Errno) -> ConnectError {
        let text = error.to_string();
        let end = text.find(" (os error").unwrap_or(text.len());
        ConnectError {
            errno: error.raw_os_error(),
            text: text[..end].to_owned(),
        }
    }
}

/// Numbers of failed requests by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// Number of requests for which no connection could be made.
    pub connect: u64,
    /// Number of requests whose connection had a failed handshake of TLS, or a server without HTTP/2 if that was
    /// required.
    #[serde(default)]
    pub tls: u64,
    /// Number of requests whose connection ended before the response was complete.
    pub closed: u64,
    /// Number of requests whose response was not complete within the timeout.
    pub timeout: u64,
    /// Number of responses with another status than expected.
    pub status: u64,
    /// Number of responses with 206 whose Content-Range was missing, invalid, or did not fit the requested range.
    #[serde(default)]
    pub range: u64,
    /// Number of responses with another body length than expected, or than their Content-Range has.
    pub length: u64,
    /// Number of requests whose response was not valid, or whose connection violated the protocol.
    pub malformed: u64,
    /// Number of responses whose bytes differed from the offset body (see [`crate::offset`]).
    pub content: u64,
}

impl Errors {
    /// Adds the numbers of `other`.
    fn add(&mut self, other: &Errors) {
        self.connect += other.connect;
        self.tls += other.tls;
        self.closed += other.closed;
        self.timeout += other.timeout;
        self.status += other.status;
        self.range += other.range;
        self.length += other.length;
        self.malformed += other.malformed;
        self.content += other.content;
    }

    /// Returns the name and the number of each kind.
    pub fn by_kind(&self) -> [(&'static str, u64); 9] {
        [
            ("connect", self.connect),
            ("tls", self.tls),
            ("closed", self.closed),
            ("timeout", self.timeout),
            ("status", self.status),
            ("range", self.range),
            ("length", self.length),
            ("malformed", self.malformed),
            ("content", self.content),
        ]
    }

    /// Returns the sum of all errors.
    pub fn total(&self) -> u64 {
        self.by_kind().iter().map(|(_, count)| count).sum()
    }
}

/// Formats the kinds that occurred, as in `closed: 2, timeout: 1`.
impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, count) in self.by_kind().iter().filter(|(_, count)| *count > 0) {
            write!(f, "{separator}{name}: {count}")?;
            separator = ", ";
        }
        match separator {
            "" => f.write_str("none"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
