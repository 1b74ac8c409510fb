//! Serving clients: accepting connections, transports, protocols, and exchanges.

mod accept;
mod client_totals;
mod connection;
mod connection_balance;
mod connection_setup;
mod content_receipt;
mod deadlines;
mod exchange;
mod first_bytes;
mod handshakes;
pub mod http1;
mod http2;
mod input;
mod lingering;
mod outbox;
mod preface;
mod protocol;
mod protocol_list;
mod proxy_preamble;
pub mod proxy_protocol;
mod quick_durations;
mod refusal;
#[cfg(any(test, feature = "test-rigs"))]
pub mod tls_exercise;
mod tls_handshake;
mod transport;
mod trust;
mod turn;
mod worker;

pub use connection_balance::ConnectionBalance;
pub use connection_setup::ConnectionSetup;
pub use protocol_list::{Protocol, Protocols};
pub use proxy_protocol::{ProxyProtocol, Versions};
pub use refusal::Refusal;
pub use trust::{ClientIpHeader, Trust};
pub use worker::{Serving, Worker, WorkerContext};

use std::time::Duration;

/// Limits for clients (`[limits]`). Sizes are in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Longest request line. Longer ones get 414.
    pub request_line: usize,
    /// Longest head without the request line, in HTTP/2 the largest header list (RFC 9113 6.5.2). Longer ones get 431. A
    /// head has at most 256 lines.
    pub headers: usize,
    /// Longest request body. Longer ones get 413. 0: no limit.
    pub body: u64,
    /// Longest time from a request's first byte to its complete head. Slower requests get 408.
    pub header_timeout: Duration,
    /// Longest time between two reads of a request body. Slower requests get 408.
    pub body_timeout: Duration,
    /// Longest time between two successful writes of a response. Slower connections are reset.
    pub send_timeout: Duration,
    /// Longest time that an idle connection is kept. Zero: connections are closed after each
    /// response.
    pub keepalive_timeout: Duration,
    /// Whether responses report `keepalive_timeout` in `Keep-Alive: timeout=`.
    pub keepalive_header: bool,
    /// Most requests on one connection. 0: no limit.
    pub keepalive_requests: u64,
    /// Most requests at a time on one connection of HTTP/2.
    pub max_streams: u32,
    /// Most open client connections in total. 0: derived from the limit of file descriptors.
    pub connections: usize,
    /// Most open connections of one client: an IPv4 address, or the first 64 bits of an IPv6
    /// address. Further connections are closed at once. 0: no limit.
    pub connections_per_ip: usize,
    /// Longest time for a TLS handshake. Slower ones are cut.
    pub handshake_timeout: Duration,
    /// Most unfinished TLS handshakes per worker. For a further one, the oldest is cut. 0: no limit.
    pub handshakes: usize,
    /// Most unfinished TLS handshakes per worker of one client, as for `connections_per_ip`. Further connections are
    /// closed at once. 0: no limit.
    pub handshakes_per_ip: usize,
    /// Most memory, in bytes, of requests that wait for their responses. One client gets half of it.
    /// Further requests that have to wait get 503. 0: no limit.
    pub request_memory: u64,
    /// Minimum average rate, in bytes per second, of a request body and of a response once
    /// `min_rate_grace` has passed. Slower transfers are cut. 0: no minimum.
    pub min_rate: u64,
    /// Tolerated shortfall, in seconds of `min_rate`.
    pub min_rate_grace: Duration,
    /// Longest time without a byte in either direction of a tunnel (Upgrade).
    pub tunnel_timeout: Duration,
    /// Longest time that requests may continue after SIGTERM or SIGQUIT.
    pub shutdown_timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            request_line: 8 << 10,
            headers: 32 << 10,
            body: 2 << 20,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            send_timeout: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(15),
            keepalive_header: false,
            keepalive_requests: 0,
            max_streams: 128,
            connections: 0,
            connections_per_ip: 0,
            handshake_timeout: Duration::from_secs(10),
            handshakes: 2048,
            handshakes_per_ip: 256,
            request_memory: 1 << 30,
            min_rate: 128,
            min_rate_grace: Duration::from_secs(10),
            tunnel_timeout: Duration::from_secs(600),
            shutdown_timeout: Duration::from_secs(30),
        }
    }
}

#[cfg(test)]
mod tests;
