//! Exchanges with origin servers: connect, pool, send, receive.

use std::time::Duration;

use crate::balance;

/// `[upstream.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The servers, at least one.
    pub servers: Vec<Server>,
    /// Which one is asked next.
    pub balance: balance::Kind,
    /// Idle connections kept per worker and server. 0: a new connection for each request.
    pub keepalive: usize,
    /// Requests on one connection before it is closed. 0: no limit.
    pub keepalive_requests: u64,
    /// How long an idle connection is kept.
    pub keepalive_timeout: Duration,
    /// For connecting.
    pub connect_timeout: Duration,
    /// Between two reads of a response, and from the sent request to the head.
    pub read_timeout: Duration,
    /// Between two writes of a request.
    pub send_timeout: Duration,
    /// Connections per worker and server, busy ones included. 0: no limit.
    pub connections: usize,
    /// Requests that may wait for a connection when `connections` is reached, per worker; more are refused (503).
    pub queue: usize,
    /// Further servers tried when connecting fails.
    pub retries: u32,
    /// Largest response head in bytes; beyond it 502.
    pub head: usize,
    /// The Host sent: the client's (`None`) or this.
    pub host: Option<String>,
}

/// One origin server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Share of requests, at least 1.
    pub weight: u32,
    /// Only asked when all others failed.
    pub backup: bool,
}

impl Options {
    /// The defaults for these servers.
    pub fn new(servers: Vec<Server>) -> Options {
        Options {
            servers,
            balance: balance::Kind::default(),
            keepalive: 64,
            keepalive_requests: 1000,
            keepalive_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(60),
            send_timeout: Duration::from_secs(60),
            connections: 0,
            queue: 1024,
            retries: 1,
            head: 64 << 10,
            host: None,
        }
    }
}
