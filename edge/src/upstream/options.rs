//! Options of an upstream and its servers (`[upstream.NAME]`).

use std::net::IpAddr;
use std::time::Duration;

use crate::balance;
use crate::http::Scheme;
use crate::http::key::without_default_port;
use crate::sys::Address;

/// Options of `[upstream.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The servers, at least one.
    pub servers: Vec<Server>,
    /// Policy that chooses the server of a request.
    pub balance: balance::Kind,
    /// Most idle connections kept per worker and server. 0: a new connection for each request.
    pub keepalive: usize,
    /// Most requests on one connection before it is closed. 0: no limit.
    pub keepalive_requests: u64,
    /// Longest time that an idle connection is kept.
    pub keepalive_timeout: Duration,
    /// Longest time to open a connection.
    pub connect_timeout: Duration,
    /// Longest time between two reads of a response, and between sending the request and receiving
    /// the head.
    pub read_timeout: Duration,
    /// Longest time between two writes of a request.
    pub send_timeout: Duration,
    /// Most connections per worker and server, busy ones included. 0: no limit.
    pub max_connections: usize,
    /// Most requests per worker that may wait for a connection when `max_connections` is reached.
    /// Further ones are refused (503).
    pub queue: usize,
    /// Number of servers tried until a connection to one can be opened, the first one included.
    pub tries: u32,
    /// Largest response head in bytes; a larger one is refused (502).
    pub max_response_headers: usize,
    /// Host header sent to the servers. `None`: the client's.
    pub host: Option<String>,
    /// Whether requests have Via (RFC 9110 7.6.3).
    pub via: bool,
    /// Whether requests have X-Real-IP with the client's address.
    pub x_real_ip: bool,
}

/// One origin server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Scheme by which the server is contacted. The configuration refuses `https` as long as TLS is
    /// not supported.
    pub scheme: Scheme,
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Share of the requests relative to the other servers' weights, at least 1.
    pub weight: u32,
    /// Whether the server is used only while all others fail.
    pub backup: bool,
}

impl Options {
    /// Returns the default options with these servers.
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
            max_connections: 0,
            queue: 1024,
            tries: 2,
            max_response_headers: 64 << 10,
            host: None,
            via: true,
            x_real_ip: false,
        }
    }
}

impl Server {
    /// Returns the authority: the address without the scheme's default port (RFC 9110 4.2.3).
    pub(super) fn authority(&self) -> String {
        without_default_port(self.scheme, &self.address()).to_owned()
    }

    /// Returns the server's address, if the configuration names it by its address.
    pub(super) fn literal(&self) -> Option<Address> {
        let ip = self.host.trim_start_matches('[').trim_end_matches(']');
        let ip: IpAddr = ip.parse().ok()?;
        Some((ip, self.port).into())
    }

    /// Returns host and port, with brackets around an IPv6 address.
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
    pub(super) max_connections: usize,
    pub(super) queue: usize,
    pub(super) keepalive: usize,
    pub(super) keepalive_requests: u64,
    pub(super) keepalive_timeout_us: u64,
}

impl Limits {
    pub(super) fn new(options: &Options) -> Limits {
        Limits {
            head: options.max_response_headers,
            connect: options.connect_timeout,
            read: options.read_timeout,
            send: options.send_timeout,
            max_connections: options.max_connections,
            queue: options.queue,
            keepalive: options.keepalive,
            keepalive_requests: options.keepalive_requests,
            keepalive_timeout_us: u64::try_from(options.keepalive_timeout.as_micros())
                .unwrap_or(u64::MAX),
        }
    }

    /// Whether a connection that has carried `uses` requests is closed instead of being kept.
    pub(super) fn is_last(&self, uses: u64) -> bool {
        let limit = self.keepalive_requests;
        self.keepalive == 0 || self.keepalive_timeout_us == 0 || (limit > 0 && uses >= limit)
    }
}
