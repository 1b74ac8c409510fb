//! Upstreams: forwarding requests to origin servers.
//!
//! `forward` handles one request: `pool` gives it room on a connection (`lease`) or a `permit` to
//! open one, `http1` sends the request and reads the response. `upload` holds the content of the
//! request, `download` the content of the response. `transport` is the byte stream to a server,
//! `waker` and `deadline` are its waker and timer. `state` is what all workers share about the
//! servers, `worker` what belongs to one worker.

mod deadline;
mod download;
mod forward;
mod hop;
mod http1;
mod lease;
mod options;
mod permit;
mod pool;
mod state;
mod transport;
mod tunnel;
mod upload;
mod waker;
mod worker;

#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;

pub use self::options::{Options, Server};
pub use self::state::UpstreamState;

use self::forward::Forward;
use self::upload::Upload;
use self::worker::UpstreamWorker;
use crate::handler::{Answer, Handler, Pending, Request, Response, UpstreamTimings};
use crate::http::{Method, Version};
use crate::sys::Clock;
use crate::telemetry::Counters;

/// An upstream as one worker sees it: a handler that forwards requests to its servers. Cheap to
/// clone.
///
/// Must be used within a `LocalRuntime` or `LocalSet`, since it spawns a local task that closes
/// idle connections.
#[derive(Clone)]
pub struct Upstream(Rc<UpstreamWorker>);

impl Upstream {
    /// Creates an upstream for one worker, which owns `counters`. All workers pass the same
    /// `state`, made from the same options. A `host` that is no valid field value is ignored.
    pub fn new(
        options: Options,
        clock: Clock,
        counters: Arc<Counters>,
        state: &UpstreamState,
    ) -> Upstream {
        Upstream(Rc::new(UpstreamWorker::new(
            options, clock, counters, state,
        )))
    }
}

impl Handler for Upstream {
    fn handle(&self, mut request: Request) -> Answer {
        if request.head.method == Method::Connect {
            // CONNECT is for forward proxies, and Sluice is none (RFC 9110 9.3.6).
            let refusal = Response::text(501, "CONNECT is not supported\n");
            return Answer::Ready(Ok(refusal));
        }
        // 1xx responses must not be sent to HTTP/1.0 clients (RFC 9110 15.2).
        let interim = (request.head.version >= Version::Http11).then(|| request.interim());
        let forward = Forward {
            upstream: self.0.clone(),
            head: request.head,
            peer: request.peer,
            upload: Upload::new(request.body),
            interim: interim.clone(),
            record: Rc::<UpstreamTimings>::default(),
        };
        Answer::Later(Pending {
            response: Box::pin(forward.run()),
            interim,
        })
    }
}
