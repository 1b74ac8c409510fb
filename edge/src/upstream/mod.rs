//! Upstreams: forwarding requests to origin servers.
//!
//! `forward` handles one request: `pool` gives it room on a connection (`lease`) or a `permit` to
//! open one, and `idle` sweeps idle connections; `multiplexing` is about connections that carry several
//! exchanges at a time, and `openings` are those that are being opened. `outbound` is the request and `inbound` the response
//! in the form that every protocol shares; `via`, `forwarded`, `hop`, `route_headers` and `upgrade` decide about their headers,
//! `path_map` and `write_back` about paths and the origin's own URLs. `connection` selects
//! the protocol of a connection, `http1` or `http2`, which sends the request and reads the
//! response; `small_pieces` joins content that arrives in small pieces. `receive` makes the response of the handler. `upload` holds the content of the request,
//! `download` the content of the response.
//! `transport` is the byte stream to a server, a `socket` or an `encrypted` one; `waker` and
//! `deadline` are its waker and timer.
//! `redirect` follows redirects by a route's `redirect_rule`, and `redirect_names` keeps the URLs to which they led.
//! `retry` decides whether a failed request is sent to another server, `resume` continues content
//! that broke off, `hedge` sends late requests to a second server within a `hedge_budget`.
//! `failure_log` reports failing servers in the error log. `balancing` is a worker's
//! balancer of the servers, `condition` the orders and the health of a server, `ejection` takes
//! failing servers out of use, `sticky` names servers in cookies. `monitor` is the thread that checks
//! the health of servers, and `check` one such check. `choice` chooses the server of a request by its
//! `criteria`. `probe` finds out when an unreachable server accepts connections again, as often as
//! `connect_attempts` permits.
//! `server_protocol` is the protocol that a server has turned out to speak.
//! `names` are the names of servers that are resolved again and again, `changes` notifies workers.
//! `recording` notes which exchange uses which connection.
//! `state` is what all workers share about the servers, `slots` one worker's copy of it, `worker`
//! what belongs to one worker.

mod balancing;
mod changes;
mod check;
mod choice;
mod condition;
mod connect_attempts;
mod connection;
mod criteria;
mod deadline;
mod download;
mod eject;
mod ejection;
mod encrypted;
mod error_detail;
mod failure_log;
mod fair_queue;
mod forward;
mod forwarded;
mod header_lines;
mod health_options;
mod hedge;
mod hedge_budget;
mod hop;
mod host_name;
mod http1;
mod http2;
mod idle;
mod inbound;
mod lease;
mod monitor;
mod multiplexing;
mod names;
mod openings;
mod options;
mod other_family;
mod outbound;
mod pace;
mod path_map;
mod permit;
mod pool;
mod probe;
mod probe_waiters;
mod queue_entry;
mod receive;
mod recording;
mod redirect;
mod redirect_names;
mod redirect_rule;
mod resume;
mod retry;
mod route_headers;
mod route_options;
mod sample;
mod server_name;
mod server_protocol;
mod server_state;
mod server_tally;
mod slots;
mod small_pieces;
mod socket;
mod state;
mod sticky;
mod transport;
mod tunnel;
mod upgrade;
mod upload;
mod upstream_tls;
mod via;
mod waker;
mod worker;
mod write_back;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;

pub use self::condition::Order;
pub use self::eject::Eject;
pub use self::health_options::Health;
pub use self::hedge_budget::HedgeOptions;
pub use self::monitor::Monitor;
pub use self::options::{Http2, Options, Server};
pub use self::path_map::PathMap;
pub use self::redirect_rule::Redirects;
pub use self::retry::{RetryCauses, RetryOptions};
pub use self::route_headers::RouteHeaders;
pub use self::route_options::RouteOptions;
pub use self::server_name::{is_named, unknown};
pub use self::server_state::Explanation;
pub use self::state::UpstreamState;
pub use self::sticky::Sticky;

use self::forward::Forward;
use self::upload::Upload;
use self::worker::UpstreamWorker;
use crate::handler::{Answer, Fault, Handler, Head, Pending, Request, Response, UpstreamTimings};
use crate::http::{Method, RequestId};
use crate::reason::Reason;
use crate::sys::Clock;
use crate::telemetry::Counters;

/// An upstream as one worker sees it: a handler that forwards requests to its servers. Cheap to
/// clone.
///
/// Must be used within a `LocalRuntime` or `LocalSet`, since it spawns a local task that closes
/// idle connections.
#[derive(Clone)]
pub struct Upstream {
    worker: Rc<UpstreamWorker>,
    route: Rc<RouteHeaders>,
    options: Rc<RouteOptions>,
}

impl Upstream {
    /// Creates an upstream for one worker, which owns `counters`. All workers pass the same
    /// `state`, made from the same options. A `host` that is no valid field value is ignored.
    /// `memory_freed` is notified when idle connections have freed memory.
    pub fn new(
        options: Options,
        clock: Clock,
        counters: Arc<Counters>,
        state: &Arc<UpstreamState>,
        memory_freed: Rc<Notify>,
    ) -> Upstream {
        let worker = UpstreamWorker::new(options, clock, counters, state, memory_freed);
        Upstream {
            worker: Rc::new(worker),
            route: Rc::default(),
            options: Rc::default(),
        }
    }

    /// Returns the same upstream for the requests of a route whose configuration names these
    /// headers.
    pub fn with_route(&self, route: RouteHeaders) -> Upstream {
        // All routes that name none share one value.
        let route = match route.is_empty() {
            true => self.route.clone(),
            false => Rc::new(route),
        };
        Upstream {
            worker: self.worker.clone(),
            route,
            options: self.options.clone(),
        }
    }

    /// Returns the same upstream for the requests of a route with these options.
    pub fn with_options(self, options: RouteOptions) -> Upstream {
        Upstream {
            options: Rc::new(options),
            ..self
        }
    }
}

impl Redirects {
    /// Creates the rule of a route that follows up to `times` redirects for one request, to its own
    /// upstream and to those in `to`.
    pub fn new(times: u8, to: Vec<Upstream>) -> Redirects {
        let to = to.into_iter().map(|upstream| upstream.worker).collect();
        Redirects { times, to }
    }
}

impl Upstream {
    /// Returns the target for the servers, if it is not that of the request.
    fn target(&self, head: &Head) -> Option<String> {
        let path = self.options.path.as_ref();
        let mapped = path.map(|path| path.to_origin(&head.target));
        let signer = self.worker.signer.as_ref();
        if signer.is_none_or(|signer| signer.options().query) {
            return mapped;
        }
        let mut target = mapped.unwrap_or_else(|| head.target.clone());
        target.truncate(target.find('?').unwrap_or(target.len()));
        Some(target)
    }

    /// Whether the upstream signs requests, but not those with this method.
    fn refuses(&self, method: &Method) -> bool {
        let reads = matches!(method, Method::Get | Method::Head);
        let signer = self.worker.signer.as_ref();
        !reads && signer.is_some_and(|signer| !signer.options().writes)
    }

    /// Returns the id of the request as its origin receives it. A shared fetch gets an id of its own.
    fn request_id(&self, head: &Head) -> Option<RequestId> {
        let random = self.options.request_ids.as_ref()?;
        let own = || {
            let unix_ms = self.worker.clock.unix_ms();
            RequestId::new(unix_ms, [random.next_u64(), random.next_u64()])
        };
        Some(head.id.clone().unwrap_or_else(own))
    }
}

impl Handler for Upstream {
    fn handle(&self, mut request: Request) -> Answer {
        if request.head.method == Method::Connect {
            // CONNECT is for forward proxies, and Sluice is none (RFC 9110 9.3.6).
            let refusal = Response::text(501, "CONNECT is not supported\n");
            return Answer::Ready(Ok(refusal));
        }
        if self.refuses(&request.head.method) {
            return Answer::Ready(Ok(only_reads()));
        }
        request.head.id = self.request_id(&request.head);
        let interim = request.interim();
        let forward = Box::new(Forward {
            upstream: self.worker.clone(),
            route: self.route.clone(),
            target: self.target(&request.head),
            options: self.options.clone(),
            peer: request.peer,
            upload: Upload::new(request.body, &self.route),
            interim: interim.clone(),
            record: Rc::new(UpstreamTimings {
                request_id: RefCell::new(request.head.id.clone()),
                queue: Some(self.worker.pool.queue()),
                ..UpstreamTimings::default()
            }),
            head: request.head,
            visited: None,
        });
        let upstream = Some(forward.record.clone());
        Answer::Later(Pending {
            response: Box::pin(forward.run()),
            interim,
            upstream,
        })
    }
}

/// Returns the response to a request that could change an object in a store to which only reads are signed.
fn only_reads() -> Response {
    let mut response = Fault::from(Reason::MethodNotAllowed).response();
    response.fields.append("allow", "GET, HEAD");
    response
}
