//! Exchanges with origin servers: connect, pool, send, receive.
//!
//! `exchange` is the spine: the pool gives a connection (`pool`, `link`), `request` builds what the
//! origin gets, `outgoing` sends it with its content (`upload`), `incoming` reads the answer,
//! `response` checks its head, `download` carries its content on. `io` is the socket, `relay` and
//! `deadline` its waker and timer.
//!
//! What httparse lets pass of a broken head: lines that end in a bare LF (RFC 9112 2.2 allows
//! that to a recipient), empty lines before the status line, and obs-text in the reason phrase.
//! None of it goes on, since every head is built anew; obs-fold, space before a colon, lines
//! without a colon, control characters, HTTP/0.9 and more than 100 field lines are refused. A body
//! that an HTTP/1.0 origin ends by closing looks whole however early it ends (RFC 9112 8), unless
//! the connection was reset.

mod deadline;
mod download;
mod exchange;
mod hop;
mod incoming;
mod io;
mod link;
mod outgoing;
mod pool;
mod relay;
mod request;
mod response;
mod shared;
mod upload;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub use self::shared::{ServerStatus, Shared};

use self::exchange::Asking;
use self::link::Link;
use self::pool::Pool;
use self::shared::Numbers;
use self::upload::Upload;
use crate::balance;
use crate::handler::{Answer, Handler, Pending, Request, Response, UpstreamTimings};
use crate::http::fields::is_field_value;
use crate::http::{Method, Version};
use crate::sys::Clock;
use crate::telemetry::Counters;

/// Largest read at once; what big bodies arrive in. A connection keeps such a buffer for as long
/// as its origin sends that fast.
const READ_BUFFER: usize = 128 << 10;

/// Emptied head buffers kept for the next requests, and the largest that is worth keeping.
const SPARE_HEADS_MAX: usize = 16;
const SPARE_HEAD_BYTES_MAX: usize = 4 << 10;

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
    /// Requests that may wait for a connection when `max_connections` is reached, per worker; more are refused (503).
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

impl Server {
    /// Host and port.
    fn address(&self) -> String {
        match self.host.contains(':') && !self.host.starts_with('[') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// One worker's way to an upstream: a handler that asks the origin. Cheap to clone.
///
/// Has to live within a `LocalRuntime` or `LocalSet`: idle connections are looked after by a task.
#[derive(Clone)]
pub struct Upstream(Rc<Inner>);

struct Inner {
    options: Options,
    limits: Limits,
    clock: Clock,
    counters: Arc<Counters>,
    numbers: Arc<[Numbers]>,
    pool: Rc<Pool>,
    host: Option<String>,
    fallback_host: String,
    spare_heads: RefCell<Vec<Vec<u8>>>,
}

/// `Options` as the parts need them.
#[derive(Clone)]
struct Limits {
    head: usize,
    connect: Duration,
    read: Duration,
    send: Duration,
    connections: usize,
    queue: usize,
    keepalive: usize,
    keepalive_requests: u64,
    keepalive_timeout_us: u64,
}

impl Limits {
    fn new(options: &Options) -> Limits {
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

    /// Whether a connection is to be closed after so many requests.
    fn is_last(&self, uses: u64) -> bool {
        let limit = self.keepalive_requests;
        self.keepalive == 0 || self.keepalive_timeout_us == 0 || (limit > 0 && uses >= limit)
    }
}

impl Upstream {
    /// For one worker, whose counters these are. `shared` is the same for all workers, made from
    /// the same options. A `host` that no field value may hold is ignored.
    pub fn new(
        options: Options,
        clock: Clock,
        counters: Arc<Counters>,
        shared: &Shared,
    ) -> Upstream {
        let limits = Limits::new(&options);
        let numbers = shared.worker();
        let pool = Pool::new(
            &options,
            limits.clone(),
            clock.clone(),
            counters.clone(),
            numbers.clone(),
            shared.health(),
        );
        let value = |text: &String| is_field_value(text.as_bytes());
        let first = options.servers.first().map(Server::address);
        Upstream(Rc::new(Inner {
            host: options.host.clone().filter(value),
            fallback_host: first.filter(value).unwrap_or_default(),
            spare_heads: RefCell::default(),
            options,
            limits,
            clock,
            counters,
            numbers,
            pool,
        }))
    }
}

impl Handler for Upstream {
    fn handle(&self, mut request: Request) -> Answer {
        if request.head.method == Method::Connect {
            // Tunnels to anywhere are not what an edge is for (RFC 9110 9.3.6).
            let refusal = Response::text(501, "CONNECT is not supported\n");
            return Answer::Ready(Ok(refusal));
        }
        // HTTP/1.0 knows no 1xx (RFC 9110 15.2).
        let interim = (request.head.version >= Version::Http11).then(|| request.interim());
        let asking = Asking {
            upstream: self.0.clone(),
            head: request.head,
            peer: request.peer,
            upload: Upload::new(request.body),
            interim: interim.clone(),
            record: Rc::<UpstreamTimings>::default(),
        };
        Answer::Later(Pending {
            response: Box::pin(asking.run()),
            interim,
        })
    }
}

impl Inner {
    /// An empty buffer, with memory from an earlier exchange where there is some.
    fn spare_head(&self) -> Vec<u8> {
        self.spare_heads.borrow_mut().pop().unwrap_or_default()
    }

    fn keep_head(&self, mut head: Vec<u8>) {
        let mut spare = self.spare_heads.borrow_mut();
        if spare.len() < SPARE_HEADS_MAX && (1..=SPARE_HEAD_BYTES_MAX).contains(&head.capacity()) {
            head.clear();
            spare.push(head);
        }
    }

    fn count_request(&self, link: &Link) {
        self.counters.upstream_requests.add(1);
        self.numbers[link.seat.server].requests.add(1);
        if link.uses > 0 {
            self.counters.upstream_reuses.add(1);
        }
    }

    fn count_connect(&self, server: usize) {
        self.counters.upstream_connects.add(1);
        self.numbers[server].connects.add(1);
    }

    fn count_failure(&self, server: usize) {
        self.counters.upstream_failures.add(1);
        self.numbers[server].failures.add(1);
    }
}
