//! Upstreams: forwarding requests to origin servers.
//!
//! `forward` handles one request: `pool` gives it room on a connection (`lease`) or a `permit` to
//! open one. `outbound` is the request and `inbound` the response in the form that every protocol
//! shares; `via`, `forwarded`, `hop`, `route_headers` and `upgrade` decide about their headers,
//! `path_map` and `write_back` about paths and the origin's own URLs. `connection` selects
//! the protocol of a connection, today always `http1`, which sends the request and reads the
//! response. `upload` holds the content of the request, `download` the content of the response.
//! `transport` is the byte stream to a server, `waker` and `deadline` are its waker and timer.
//! `failure_log` reports failing servers in the error log.
//! `state` is what all workers share about the servers, `worker` what belongs to one worker.

mod connection;
mod deadline;
mod download;
mod failure_log;
mod fair_queue;
mod forward;
mod forwarded;
mod header_lines;
mod hop;
mod http1;
mod inbound;
mod lease;
mod options;
mod outbound;
mod path_map;
mod permit;
mod pool;
mod route_headers;
mod route_options;
mod state;
mod transport;
mod tunnel;
mod upgrade;
mod upload;
mod via;
mod waker;
mod worker;
mod write_back;

#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;

pub use self::options::{Options, Server};
pub use self::path_map::PathMap;
pub use self::route_headers::RouteHeaders;
pub use self::route_options::RouteOptions;
pub use self::state::UpstreamState;

use self::forward::Forward;
use self::upload::Upload;
use self::worker::UpstreamWorker;
use crate::handler::{Answer, Handler, Head, Pending, Request, Response, UpstreamTimings};
use crate::http::Method;
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
    pub fn new(
        options: Options,
        clock: Clock,
        counters: Arc<Counters>,
        state: &UpstreamState,
    ) -> Upstream {
        Upstream {
            worker: Rc::new(UpstreamWorker::new(options, clock, counters, state)),
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

impl Upstream {
    /// Returns the target for the servers, if it is not that of the request.
    fn target(&self, head: &Head) -> Option<String> {
        let path = self.options.path.as_ref();
        path.map(|path| path.to_origin(&head.target))
    }
}

impl Handler for Upstream {
    fn handle(&self, mut request: Request) -> Answer {
        if request.head.method == Method::Connect {
            // CONNECT is for forward proxies, and Sluice is none (RFC 9110 9.3.6).
            let refusal = Response::text(501, "CONNECT is not supported\n");
            return Answer::Ready(Ok(refusal));
        }
        let interim = request.interim();
        let forward = Forward {
            upstream: self.worker.clone(),
            route: self.route.clone(),
            target: self.target(&request.head),
            options: self.options.clone(),
            head: request.head,
            peer: request.peer,
            upload: Upload::new(request.body, &self.route),
            interim: interim.clone(),
            record: Rc::new(UpstreamTimings {
                queue: Some(self.worker.pool.queue()),
                ..UpstreamTimings::default()
            }),
        };
        let upstream = Some(forward.record.clone());
        Answer::Later(Pending {
            response: Box::pin(forward.run()),
            interim,
            upstream,
        })
    }
}
