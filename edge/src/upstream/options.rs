//! `[upstream.NAME]`: the options of an upstream and its servers.

use std::time::Duration;

use crate::balance;
use crate::http::Scheme;

/// `[upstream.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The servers, at least one.
    pub servers: Vec<Server>,
    /// How a server is chosen for a request.
    pub balance: balance::Kind,
    /// Idle connections kept per worker and server. 0: a new connection for each request.
    pub keepalive: usize,
    /// Requests on one connection before it is closed. 0: no limit.
    pub keepalive_requests: u64,
    /// Longest time that an idle connection is kept.
    pub keepalive_timeout: Duration,
    /// Longest time to open a connection.
    pub connect_timeout: Duration,
    /// Longest time between two reads of a response, and from the sent request to the head.
    pub read_timeout: Duration,
    /// Longest time between two writes of a request.
    pub send_timeout: Duration,
    /// Connections per worker and server, busy ones included. 0: no limit.
    pub connections: usize,
    /// Requests that may wait for a connection when `max_connections` is reached, per worker; more are refused (503).
    pub queue: usize,
    /// Further servers tried when connecting fails.
    pub retries: u32,
    /// Largest response head in bytes; a larger one is refused (502).
    pub head: usize,
    /// The Host sent: the client's (`None`) or this.
    pub host: Option<String>,
}

/// One origin server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// `http`: in clear text. The configuration refuses `https` as long as there is no TLS.
    pub scheme: Scheme,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Share of requests, at least 1.
    pub weight: u32,
    /// Only used when all others failed.
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

impl Server {
    /// Host and port.
    pub(super) fn address(&self) -> String {
        match self.host.contains(':') && !self.host.starts_with('[') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// The limits among `Options`, for the pool and its connections.
#[derive(Clone)]
pub(super) struct Limits {
    pub(super) head: usize,
    pub(super) connect: Duration,
    pub(super) read: Duration,
    pub(super) send: Duration,
    pub(super) connections: usize,
    pub(super) queue: usize,
    pub(super) keepalive: usize,
    pub(super) keepalive_requests: u64,
    pub(super) keepalive_timeout_us: u64,
}

impl Limits {
    pub(super) fn new(options: &Options) -> Limits {
        Limits {
            head: options.head,
            connect: options.connect_timeout,
            read: options.read_timeout,
            send: options.send_timeout,
            connections: options.connections,
            queue: options.queue,
            keepalive: options.keepalive,
            keepalive_requests: options.keepalive_requests,
            keepalive_timeout_us: u64::try_from(options.keepalive_timeout.as_micros())
                .unwrap_or(u64::MAX),
        }
    }

    /// Whether a connection is closed after this many requests.
    pub(super) fn is_last(&self, uses: u64) -> bool {
        let limit = self.keepalive_requests;
        self.keepalive == 0 || self.keepalive_timeout_us == 0 || (limit > 0 && uses >= limit)
    }
}
