//! Listeners and connections: what clients speak, framed and checked.

mod addresses;
mod connection_balance;
mod deadlines;
pub mod http1;
mod listener;
mod pool;
pub mod proxy_protocol;
mod refusal;
mod trust;
mod worker;

pub use connection_balance::ConnectionBalance;
pub use listener::ConnectionSetup;
pub use proxy_protocol::{ProxyProtocol, Versions};
pub use refusal::Refusal;
pub use trust::{ClientField, Trust};
pub use worker::{Serving, Worker, WorkerContext};

use std::time::Duration;

/// `[limits]`: what a client may take. Sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Longest request line; beyond it 414.
    pub request_line: usize,
    /// Longest head without the request line; beyond it 431. At most 256 lines.
    pub headers: usize,
    /// Longest request body; beyond it 413. 0: no limit.
    pub body: u64,
    /// From a request's first byte to its complete head; beyond it 408.
    pub header_timeout: Duration,
    /// Between two reads of a request body; beyond it 408.
    pub body_timeout: Duration,
    /// Between two successful writes of a response; beyond it the connection is cut.
    pub send_timeout: Duration,
    /// How long an idle connection is kept. Zero: none is.
    pub keepalive_timeout: Duration,
    /// Whether `Keep-Alive: timeout=` tells the client.
    pub keepalive_header: bool,
    /// Requests answered on one connection. 0: no limit.
    pub keepalive_requests: u64,
    /// Open client connections in all. 0: derived from the limit of file descriptors.
    pub connections: usize,
    /// Of those, from one client: an IPv4 address, or the first 64 bits of an IPv6 address.
    /// Further ones are closed at once. 0: no limit.
    pub connections_per_ip: usize,
    /// Bytes a second that a body upload or a response's reader must keep up on average, once
    /// `min_rate_grace` has passed; slower ones are cut. 0: no minimum.
    pub min_rate: u64,
    /// How long a transfer may be slower than `min_rate`.
    pub min_rate_grace: Duration,
    /// How long requests may go on after SIGTERM or SIGQUIT.
    pub drain: Duration,
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
            connections: 0,
            connections_per_ip: 0,
            min_rate: 128,
            min_rate_grace: Duration::from_secs(10),
            drain: Duration::from_secs(30),
        }
    }
}

#[cfg(test)]
mod tests;
