//! Options of an upstream and its servers (`[upstream.NAME]`).

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::condition::Order;
use super::eject::Eject;
use super::health_options::Health;
use super::hedge_budget::HedgeOptions;
use super::host_name;
use super::retry::RetryOptions;
use super::sticky::Sticky;
use crate::balance;
use crate::handler::template::Template;
use crate::http::key::without_default_port;
use crate::http::{Scheme, Version};
use crate::resolve::Name;
use crate::sign;
use crate::sys::Address;
use crate::sys::connect::TcpOptions;
use crate::tls;

/// Options of `[upstream.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The cookie by which clients stick to a server.
    pub sticky: Option<Sticky>,
    /// Health checks of the servers.
    pub health: Option<Health>,
    /// Ejection of servers that fail. `None`: servers are never ejected.
    pub eject: Option<Eject>,
    /// Time in which the share of a server that returns grows to its full share. Zero: at once.
    pub slow_start: Duration,
    /// The servers, at least one.
    pub servers: Vec<Server>,
    /// Policy that chooses the server of a request.
    pub balance: balance::Options,
    /// Text whose hash is the key of `balance::Kind::Hash`. `None`, or an empty text: the URL.
    pub hash: Option<Template>,
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
    /// Minimum rate of content with Content-Length, in bytes per second: it may fall behind by the bytes
    /// of `read_timeout` at this rate. 0: none.
    pub min_rate: u64,
    /// Longest time between two writes of a request.
    pub send_timeout: Duration,
    /// Most connections per worker and server, busy ones included. 0: no limit.
    pub max_connections: usize,
    /// Most requests per worker that may wait for a connection when `max_connections` is reached.
    /// Further ones are refused (503).
    pub queue: usize,
    /// Conditions under which a failed request is sent to another server.
    pub retry: RetryOptions,
    /// Name servers that resolve the names of the servers. If there are none, the system's are used.
    pub resolver: Vec<SocketAddr>,
    /// TLS with the servers whose scheme is `https`.
    pub tls: tls::ClientOptions,
    /// Longest time that a request waits for a connection. `None`: `connect_timeout`.
    pub queue_timeout: Option<Duration>,
    /// Options of TCP sockets.
    pub tcp: TcpOptions,
    /// Version of HTTP/1 in which requests are sent, unless it is HTTP/2.
    pub http: Version,
    /// Use of HTTP/2.
    pub http2: Http2,
    /// Conditions under which a fetch with a late response is sent to a second server, too. `None`:
    /// never.
    pub hedge: Option<HedgeOptions>,
    /// Largest response head in bytes; a larger one is refused (502).
    pub max_response_headers: usize,
    /// Host header sent to the servers. `None`: the client's.
    pub host: Option<String>,
    /// Whether requests have Via (RFC 9110 7.6.3).
    pub via: bool,
    /// Whether requests have X-Real-IP with the client's address.
    pub x_real_ip: bool,
    /// The credentials with which requests are signed.
    pub sign: Option<sign::Options>,
}

/// Use of HTTP/2 with the servers of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Http2 {
    /// Only servers whose URL says so (`h2c://`) get HTTP/2.
    Never,
    /// A server with TLS chooses, and one whose URL says so gets HTTP/2.
    #[default]
    Negotiated,
    /// All servers get HTTP/2: in clear text by prior knowledge (RFC 9113 3.3).
    Always,
}

impl Http2 {
    /// Returns the protocols that are offered in TLS (ALPN), by preference.
    pub fn alpn(self) -> &'static [&'static str] {
        match self {
            Http2::Never => &["http/1.1"],
            Http2::Negotiated => &["h2", "http/1.1"],
            Http2::Always => &["h2"],
        }
    }
}

/// One origin server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Scheme by which the server is contacted.
    pub scheme: Scheme,
    /// Whether the server is known to speak HTTP/2 in clear text (`h2c://`).
    pub h2c: bool,
    /// Host name or address; `localhost` for a Unix socket.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Whether `host` is the name of a service, whose SRV records (RFC 2782) have the hosts and ports
    /// of the servers, in place of `port`.
    pub srv: bool,
    /// Path of the Unix socket at which the server listens, in place of host and port.
    pub unix: Option<PathBuf>,
    /// Share of the requests relative to the other servers' weights, at least 1.
    pub weight: u32,
    /// Whether the server is used only while all others fail or are full.
    pub backup: bool,
    /// Whether the server gets no requests until an operator orders otherwise.
    pub down: bool,
    /// Most connections per worker, in place of the upstream's limit. 0: no limit.
    pub max_connections: Option<usize>,
}

impl Options {
    /// Returns the default options with these servers.
    pub fn new(servers: Vec<Server>) -> Options {
        Options {
            sticky: None,
            health: None,
            eject: Some(Eject::default()),
            slow_start: Duration::ZERO,
            servers,
            balance: balance::Options::default(),
            hash: None,
            keepalive: 64,
            keepalive_requests: 1000,
            keepalive_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(60),
            min_rate: 128,
            send_timeout: Duration::from_secs(60),
            max_connections: 0,
            queue: 1024,
            retry: RetryOptions::default(),
            resolver: Vec::new(),
            tls: tls::ClientOptions {
                protocols: protocols(Http2::default()),
                ..tls::ClientOptions::default()
            },
            queue_timeout: None,
            tcp: TcpOptions::default(),
            http: Version::Http11,
            http2: Http2::default(),
            hedge: None,
            max_response_headers: 64 << 10,
            host: None,
            via: true,
            x_real_ip: false,
            sign: None,
        }
    }
}

fn protocols(http2: Http2) -> Vec<String> {
    let offered = http2.alpn().iter();
    offered.map(|name| (*name).to_owned()).collect()
}

impl Options {
    /// Sets the use of HTTP/2.
    pub fn set_http2(&mut self, http2: Http2) {
        self.http2 = http2;
        self.tls.protocols = protocols(http2);
    }

    /// Whether a server has TLS.
    pub fn uses_tls(&self) -> bool {
        let mut servers = self.servers.iter();
        servers.any(|server| server.scheme == Scheme::Https)
    }

    /// Whether URLs with this scheme and authority are those of the upstream's servers: the authority
    /// is that of a server, or the configured Host.
    pub(super) fn is_named(&self, scheme: Scheme, authority: &str) -> bool {
        let host = self.host.as_deref();
        let host = host.map(|host| without_default_port(scheme, host));
        self.servers.iter().any(|server| {
            // A Unix socket has no name.
            let is_own = || server.unix.is_none() && server.authority() == authority;
            server.scheme == scheme && (host == Some(authority) || is_own())
        })
    }

    /// Whether an authority may have the name of a server, or that of the configured Host, in any
    /// spelling and with any port.
    pub(super) fn may_name(&self, authority: &str) -> bool {
        let name = name_of(authority);
        let is_own = |other: &str| host_name::may_mean(name, other);
        let host = self.host.as_deref().map(name_of);
        host.is_some_and(is_own)
            || self
                .servers
                .iter()
                .any(|server| server.unix.is_none() && is_own(server.domain()))
    }

    /// Returns the name for which a server's certificate has to be valid, if `tls` has no other one:
    /// the configured Host, which servers expect as SNI, or the server's own name.
    pub(super) fn tls_name<'a>(&'a self, server: &'a Server) -> &'a str {
        self.host.as_deref().map_or(server.domain(), name_of)
    }
}

/// Returns the name in an authority, without port and brackets.
pub(super) fn name_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

impl Server {
    /// Returns the authority: the address without the scheme's default port (RFC 9110 4.2.3).
    pub(super) fn authority(&self) -> String {
        match self.srv {
            true => self.domain().to_owned(),
            false => without_default_port(self.scheme, &self.host_and_port()).to_owned(),
        }
    }

    /// Returns the host name without the labels of a service, such as `_http._tcp`.
    fn domain(&self) -> &str {
        let mut name = &*self.host;
        while self.srv
            && let Some((label, rest)) = name.split_once('.')
            && label.starts_with('_')
        {
            name = rest;
        }
        name
    }

    /// Returns the name whose servers have to be looked up; `None` for an address, a Unix socket and
    /// `localhost`, which is this machine without a look-up (RFC 6761 6.3).
    pub(super) fn name(&self) -> Option<Name> {
        let is_local = self.host == "localhost" || self.host.ends_with(".localhost");
        match self.literal() {
            Some(_) => None,
            None if self.srv => Some(Name::Service(self.host.clone())),
            None if is_local => None,
            None => Some(Name::Host(self.host.clone(), self.port)),
        }
    }

    /// Returns the state of the server as long as no operator orders another one.
    pub(super) fn configured(&self) -> Order {
        match self.down {
            true => Order::Down,
            false => Order::Up,
        }
    }

    /// Whether the name of the server is looked up.
    pub fn is_looked_up(&self) -> bool {
        self.name().is_some()
    }

    /// Returns the server's address, if the configuration names it by its address.
    pub(super) fn literal(&self) -> Option<Address> {
        if self.unix.is_some() {
            return Some(Address::Unix);
        }
        let ip = self.host.trim_start_matches('[').trim_end_matches(']');
        let ip: IpAddr = ip.parse().ok()?;
        Some((ip, self.port).into())
    }

    /// Returns host and port, or the path of the Unix socket as configured.
    pub fn address(&self) -> String {
        match &self.unix {
            Some(path) => format!("unix:{}", path.display()),
            None if self.srv => self.host.clone(),
            None => self.host_and_port(),
        }
    }

    /// Returns the URL as configured, with the port.
    pub fn url(&self) -> String {
        match &self.unix {
            Some(_) => self.address(),
            None if self.srv => format!("srv+{}://{}", self.url_scheme(), self.host),
            None => format!("{}://{}", self.url_scheme(), self.host_and_port()),
        }
    }

    /// Returns the scheme as configured.
    fn url_scheme(&self) -> &'static str {
        match self.h2c {
            true => "h2c",
            false => self.scheme.as_str(),
        }
    }

    /// Returns host and port, with brackets around an IPv6 address.
    fn host_and_port(&self) -> String {
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
    pub(super) min_rate: u64,
    pub(super) send: Duration,
    pub(super) max_connections: usize,
    pub(super) queue: usize,
    pub(super) queue_timeout: Duration,
    pub(super) tcp: TcpOptions,
    /// Port to which connections are opened, in place of the server's.
    pub(super) port: Option<u16>,
    /// Whether connections are opened only to a server's own address, and never to one of the other
    /// family that its name has.
    pub(super) own_address: bool,
    pub(super) http: Version,
    pub(super) http2: Http2,
    pub(super) slow_start: Duration,
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
            min_rate: options.min_rate,
            send: options.send_timeout,
            max_connections: options.max_connections,
            queue: options.queue,
            queue_timeout: options.queue_timeout.unwrap_or(options.connect_timeout),
            tcp: options.tcp.clone(),
            port: None,
            own_address: false,
            http: options.http,
            http2: options.http2,
            slow_start: options.slow_start,
            keepalive: options.keepalive,
            keepalive_requests: options.keepalive_requests,
            keepalive_timeout_us: u64::try_from(options.keepalive_timeout.as_micros())
                .unwrap_or(u64::MAX),
        }
    }

    /// Whether a connection that has carried `uses` requests is closed instead of being kept.
    pub(super) fn is_last(&self, uses: u64) -> bool {
        let limit = self.keepalive_requests;
        // A server of HTTP/1.0 would close the connection (RFC 9112 9.3).
        self.http == Version::Http10
            || self.keepalive == 0
            || self.keepalive_timeout_us == 0
            || (limit > 0 && uses >= limit)
    }
}
