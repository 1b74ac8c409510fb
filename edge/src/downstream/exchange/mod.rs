//! One request from its head to the end of its response, in any protocol: handler, response,
//! content, request body, record, timeouts.
//!
//! An exchange is a state machine without a socket. A protocol starts it with a request, feeds it
//! the request's body, takes response heads and content from it, and sends these in the protocol's
//! own form. A connection may run many exchanges: each reports its own deadline, and the
//! connection waits for the soonest.

mod content;
mod file_reader;
mod guard;
mod intake;
mod pace;
mod record;
mod request_memory;
mod tally;
mod transfer_timeouts;

use std::rc::Rc;
use std::task::{Context, Poll};

use crate::handler::{
    Answer, Body, Fault, Head, Interim, Peer, Pending, Request, Response, UpstreamTimings,
};
use crate::http::{FieldBlock, Method, RequestId, Status};
use crate::reason::Reason;

use super::Refusal;
use super::worker::{Serving, Worker};

pub use content::{Content, Extent, Part};
pub use guard::guarded;
pub use intake::{Intake, check_declared};
pub use record::{Record, RefusedRequest};
use request_memory::RequestMemory;
pub use request_memory::UnreadMemory;
pub use transfer_timeouts::{Expired, TransferTimeouts};

/// A request from its head to the end of its response.
pub struct Exchange {
    /// The data for the counters and the access log.
    pub record: Record,
    /// The request body on its way to the handler, unless it is empty or arrived with the head.
    pub intake: Option<Intake>,
    /// The timeouts of sending the request body and of receiving the response, both for the client.
    pub timeouts: TransferTimeouts,
    /// The future of a response that the handler has not returned yet.
    pending: Option<Pending>,
    /// The memory that the request has taken since it had to wait.
    memory: Option<RequestMemory>,
    content: Content,
    /// Whether the request's method is HEAD.
    head: bool,
    /// Whether the client asks for a tunnel.
    wants_tunnel: bool,
    /// Whether the client knows 1xx responses.
    knows_interim: bool,
    /// Whether the transport sends parts of files without reading them into memory.
    sends_files: bool,
}

/// The next head to send.
pub enum ResponseHead {
    /// A 1xx head. Another head follows.
    Interim(Status, FieldBlock),
    /// The final response: its head, and the content that follows.
    Final(Response),
}

impl Exchange {
    /// Creates the exchange of a valid request.
    #[inline]
    pub fn new(
        worker: &Rc<Worker>,
        serving: Rc<Serving>,
        peer: Peer,
        head: &Head,
        sends_files: bool,
    ) -> Exchange {
        let record = Record::new(worker, serving, peer, head);
        let mut exchange = Exchange::of(record, sends_files);
        exchange.head = head.method == Method::Head;
        exchange.wants_tunnel = head.wants_tunnel;
        exchange.knows_interim = head.version.has_interim();
        exchange
    }

    /// Creates the exchange of a request that is refused, and its error response.
    pub fn refused(
        worker: &Rc<Worker>,
        serving: Rc<Serving>,
        peer: Peer,
        request: RefusedRequest<'_>,
        refusal: Refusal,
    ) -> (Exchange, Response) {
        worker.counters.requests_refused.add(1);
        let mut record = Record::of_refused(worker, serving, peer, request);
        record.reason = Some(refusal.reason);
        let mut response = refusal.response();
        let exchange = Exchange::of(record, false);
        exchange.make_final(&mut response);
        (exchange, response)
    }

    /// Counts and logs a request that is refused without a response.
    pub fn refused_silently(
        worker: &Rc<Worker>,
        serving: Rc<Serving>,
        peer: Peer,
        request: RefusedRequest<'_>,
        reason: Reason,
    ) {
        worker.counters.requests_refused.add(1);
        let mut record = Record::of_refused(worker, serving, peer, request);
        record.reason = Some(reason);
        // No response was cut short.
        record.complete = true;
        record.close();
    }

    #[inline]
    fn of(record: Record, sends_files: bool) -> Exchange {
        Exchange {
            record,
            intake: None,
            timeouts: TransferTimeouts::default(),
            pending: None,
            memory: None,
            content: Content::none(),
            head: false,
            wants_tunnel: false,
            knows_interim: false,
            sends_files,
        }
    }

    /// Passes the request to the handler. Returns `None` if the response is not available yet: see
    /// `poll_response`.
    #[inline]
    pub fn start(&mut self, head: Head, body: Body, peer: Peer) -> Option<Response> {
        self.record.count_request();
        let memory = request_memory::needed(&head);
        let request = Request {
            head,
            body,
            peer,
            interim: None,
        };
        let handler = &self.record.serving.handler;
        let pending = &mut self.pending;
        // A response is large. The closure moves it into this variable, so that the result of `guarded`, which is
        // copied, contains at most a fault.
        let mut response = None;
        let called = guarded(self.record.counters(), || {
            match handler.handle(request) {
                Answer::Ready(result) => response = Some(result?),
                Answer::Later(later) => *pending = Some(later),
            }
            Ok(())
        });
        if let Err(fault) = called.flatten() {
            response = Some(fault.response());
        }
        self.record.handler_called(response.as_ref());
        if self.pending.is_some() {
            self.record.begin_waiting();
            let limit = self.record.serving.options.request_memory;
            self.memory = RequestMemory::charge(self.record.worker(), peer.client, memory, limit);
            if self.memory.is_none() {
                // The future has not been polled, so the request has not been sent anywhere.
                self.pending = None;
                response = Some(Fault::from(Reason::RequestMemory).response());
            }
        }
        if let Some(response) = &mut response {
            self.make_final(response);
        }
        response
    }

    /// Waits for the next head. If `has_room` is false, 1xx heads stay queued until the final head
    /// follows. A fault of the request body ends the wait.
    #[inline]
    pub fn poll_response(&mut self, cx: &mut Context<'_>, has_room: bool) -> Poll<ResponseHead> {
        let Some(pending) = &mut self.pending else {
            return Poll::Pending;
        };
        let queue = pending.interim.as_ref().filter(|_| self.knows_interim);
        // The closure moves the large response into this variable, so that the result of `guarded`, which is copied,
        // contains at most a fault.
        let mut response = None;
        let polled = match self.intake.as_ref().and_then(Intake::fault) {
            Some(fault) => Err(fault),
            None => {
                if let (Some(queue), true) = (queue, has_room)
                    && let Poll::Ready((status, fields)) = queue.poll_next(cx)
                {
                    return Poll::Ready(ResponseHead::Interim(status, fields));
                }
                let called = guarded(self.record.counters(), || {
                    if let Poll::Ready(result) = pending.response.as_mut().poll(cx) {
                        response = Some(result?);
                    }
                    Ok(())
                });
                called.flatten()
            }
        };
        if let Err(fault) = polled {
            let mut failed = fault.response();
            failed.upstream = reached(pending.upstream.take());
            response = Some(failed);
        }
        let Some(mut response) = response else {
            return Poll::Pending;
        };
        if let Some((status, fields)) = queue.and_then(Interim::pop) {
            pending.response = Box::pin(std::future::ready(Ok(response)));
            return Poll::Ready(ResponseHead::Interim(status, fields));
        }
        self.pending = None;
        self.make_final(&mut response);
        Poll::Ready(ResponseHead::Final(response))
    }

    /// Replaces a response whose status is not final by an error response, and adds the id of the
    /// request.
    #[inline]
    fn make_final(&self, response: &mut Response) {
        if !self.is_final(response) {
            *response = Fault::from(Reason::UnexpectedStatus).response();
        }
        if let Some(id) = &self.record.request_id {
            response.fields.append(RequestId::HEADER, id.as_str());
        }
    }

    /// Whether this is a final response. A response below 200 is final only if it has the tunnel
    /// that the client asked for. The protocol checks the status of a response with a tunnel.
    #[inline]
    fn is_final(&self, response: &Response) -> bool {
        (200..=999).contains(&response.status) || (self.wants_tunnel && response.tunnel.is_some())
    }

    /// Returns the length of a response's content, which the protocol declares to the client.
    #[inline]
    pub fn extent(&self, response: &Response) -> Extent {
        Extent::of(response, self.head)
    }

    /// Records a final response whose head is about to be sent, and takes its body: see
    /// `poll_content`.
    #[inline]
    pub fn respond(&mut self, response: &mut Response, extent: Extent) {
        self.record.responded(response);
        if response.tunnel.is_some() {
            self.begin_tunnel();
        }
        self.content = Content::new(std::mem::take(&mut response.body), extent, self.sends_files);
    }

    /// Notes that the response is a tunnel, for which the memory of a waiting request is not counted.
    pub fn begin_tunnel(&mut self) {
        self.memory = None;
    }

    /// Returns the next part of the content. A fault means that the content is truncated here,
    /// which the protocol must make visible to the client.
    #[inline]
    pub fn poll_content(&mut self, cx: &mut Context<'_>) -> Poll<Result<Part, Fault>> {
        self.content.poll(cx, self.record.counters())
    }

    /// Returns the last `bytes` of a part of a file to the content, which provides them again
    /// later. Returns false if the content does not accept them.
    pub fn take_back(&mut self, bytes: u64) -> bool {
        self.content.take_back(bytes)
    }

    /// Whether all bytes of a declared length have been taken. If a fault follows, the number of bytes sent does not
    /// reveal it.
    pub fn is_all_given(&self) -> bool {
        self.content.is_all_given()
    }

    /// Records how much content has been sent: all that has been taken except `unsent` bytes.
    #[inline]
    pub fn record_sent(&mut self, unsent: u64) {
        let sent = self.content.given().saturating_sub(unsent);
        self.record.note_sent(sent);
    }

    /// Records that the response was sent completely, counts the request and logs it.
    #[inline]
    pub fn complete(&mut self) {
        self.record.complete = true;
        self.record.close();
    }
}

/// Returns the data of an exchange with an origin server, if the request got as far as a server.
fn reached(upstream: Option<Rc<UpstreamTimings>>) -> Option<Rc<UpstreamTimings>> {
    upstream.filter(|upstream| upstream.server.get().is_some())
}
