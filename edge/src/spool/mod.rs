//! Buffers for bodies, so that slow clients hold no connections to origins.
//!
//! `Buffering` wraps an upstream. With `request_buffering`, a request is forwarded once its whole body has arrived
//! (`request`). With `response_buffering`, a response is read as fast as the origin sends it (`response`). `buffer` holds
//! the bytes of one body: the first ones in a temporary file if there are many (`spill`, `folder`), the others in memory
//! (`chunks`). `quota` limits what all bodies and those of each client use, and `shared` has the limits and numbers of all
//! workers.

mod buffer;
mod chunks;
mod folder;
mod options;
mod quota;
mod request;
mod response;
mod shared;
mod spill;

#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;

use crate::handler::{Answer, Body, Fault, Handler, Pending, Request, Response, UpstreamTimings};
use crate::http::ClientId;
use crate::reason::Reason;
use crate::telemetry::Counters;

pub use folder::Folder;
pub use options::{DiskOptions, Options};
pub use shared::Buffers;

use buffer::Buffer;
use spill::Disk;

/// Choice of the bodies of a route that are buffered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffered {
    /// Whether a request waits until its whole body has arrived.
    pub requests: bool,
    /// Whether a response is read as fast as the origin sends it, however slowly the client reads.
    pub responses: bool,
}

/// A handler that buffers bodies on their way to another handler and back.
pub struct Buffering(Rc<Parts>);

struct Parts {
    inner: Rc<dyn Handler>,
    buffered: Buffered,
    buffers: Arc<Buffers>,
    /// The files in which long bodies go on.
    disk: Option<Disk>,
    counters: Arc<Counters>,
}

impl Buffering {
    /// Creates a handler that buffers the bodies of requests to `inner`, and those of its responses. `disk` is the folder
    /// in which long bodies go on, and its options.
    pub fn new(
        inner: Rc<dyn Handler>,
        buffered: Buffered,
        buffers: Arc<Buffers>,
        disk: Option<(Arc<Folder>, DiskOptions)>,
        counters: Arc<Counters>,
    ) -> Buffering {
        let disk = disk.map(|(folder, options)| Disk {
            folder,
            options: options.into(),
            buffers: buffers.clone(),
        });
        Buffering(Rc::new(Parts {
            inner,
            buffered,
            buffers,
            disk,
            counters,
        }))
    }
}

impl Handler for Buffering {
    fn handle(&self, mut request: Request) -> Answer {
        let parts = self.0.clone();
        let client = ClientId::of(request.peer.client);
        let is_stream = matches!(request.body, Body::Stream(_));
        // A request for a tunnel has to reach the origin at once.
        if !parts.buffered.requests || !is_stream || request.head.wants_tunnel {
            let answer = parts.inner.handle(request);
            return match parts.buffered.responses {
                true => {
                    answer.map(move |result| result.map(|response| parts.ahead(response, client)))
                }
                false => answer,
            };
        }
        let interim = request.interim();
        let timings = Rc::<UpstreamTimings>::default();
        let upstream = Some(timings.clone());
        let response = Box::pin(async move { parts.gathered(request, client, &timings).await });
        Answer::Later(Pending {
            response,
            interim,
            upstream,
        })
    }
}

impl Parts {
    /// Waits for the whole body of a request, then passes the request on.
    async fn gathered(
        &self,
        mut request: Request,
        client: ClientId,
        timings: &UpstreamTimings,
    ) -> Result<Response, Fault> {
        let body = std::mem::take(&mut request.body);
        let gathered = request::gather(body, self.buffer(client)).await;
        request.body = gathered.inspect_err(|fault| {
            if matches!(fault.reason, Reason::BuffersFull | Reason::BufferDiskFull) {
                self.counters.requests_over_buffers.add(1);
            }
        })?;
        self.counters.requests_buffered.add(1);
        let answer = self.inner.handle(request);
        let own = answer.upstream();
        let result = answer.wait().await;
        if let Some(own) = own {
            timings.take_over(&own);
        }
        let ahead = |response| match self.buffered.responses {
            true => self.ahead(response, client),
            false => response,
        };
        result.map(ahead)
    }

    /// Has the content of a response read ahead of the client, if it is not there yet.
    fn ahead(&self, mut response: Response, client: ClientId) -> Response {
        if let Body::Stream(_) = response.body
            && response.tunnel.is_none()
        {
            let body = std::mem::take(&mut response.body);
            response.body = response::read_ahead(body, self.buffer(client));
            self.counters.responses_buffered.add(1);
        }
        response
    }

    fn buffer(&self, client: ClientId) -> Buffer {
        let memory = self.buffers.memory_of(client);
        let memory_max = self.buffers.memory.of_client();
        Buffer::new(memory, memory_max, self.disk.clone(), client)
    }
}
