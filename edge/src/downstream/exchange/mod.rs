//! One request's life, whatever protocol carries it: handler, response, content, request body, record, timeouts.
//!
//! An exchange is a state machine without a socket. A protocol starts it with a request, feeds it the request's
//! body, asks it for response heads and content, and sends these in its own framing. A connection may run many
//! exchanges: each reports its own deadline, and the connection waits for the soonest.

mod content;
mod file_reader;
mod guard;
mod intake;
mod pace;
mod record;
mod transfer_timeouts;

use std::rc::Rc;
use std::task::{Context, Poll};

use crate::handler::{Answer, Body, Fault, Head, Peer, Pending, Request, Response};
use crate::http::{Fields, Method, Status};
use crate::reason::Reason;

use super::Refusal;
use super::worker::{Serving, Worker};

pub use content::{Content, Extent, Part};
pub use guard::guarded;
pub use intake::{Intake, check_declared};
pub use record::{Record, RefusedRequest};
pub use transfer_timeouts::{Expired, TransferTimeouts};

/// A request from its head to the end of its response.
pub struct Exchange {
    /// The data for the counters and the access log.
    pub record: Record,
    /// The request body on its way to the handler, unless it is empty or arrived with the head.
    pub intake: Option<Intake>,
    /// How long the client may take.
    pub timeouts: TransferTimeouts,
    /// The response that the handler has not given yet.
    pending: Option<Pending>,
    content: Content,
    /// Whether the request's method is HEAD.
    head: bool,
    /// Whether the request asks for another protocol.
    upgrade: bool,
    /// Whether the transport sends parts of files by itself.
    sends_files: bool,
}

/// The next head to send.
pub enum ResponseHead {
    /// A 1xx head; another head follows.
    Interim(Status, Fields),
    /// The final response: its head, and the content that follows.
    Final(Response),
}

impl Exchange {
    /// The exchange of a correct request.
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
        exchange.upgrade = head.upgrade;
        exchange
    }

    /// The exchange of a request that is refused, and the response that says so.
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
        (Exchange::of(record, false), refusal.response())
    }

    #[inline]
    fn of(record: Record, sends_files: bool) -> Exchange {
        Exchange {
            record,
            intake: None,
            timeouts: TransferTimeouts::default(),
            pending: None,
            content: Content::none(),
            head: false,
            upgrade: false,
            sends_files,
        }
    }

    /// Hands the request to its handler. `None` if the response comes later: see `poll_response`.
    #[inline]
    pub fn start(&mut self, head: Head, body: Body, peer: Peer) -> Option<Response> {
        self.record.count_request();
        let request = Request {
            head,
            body,
            peer,
            interim: None,
        };
        let handler = &self.record.serving.handler;
        let pending = &mut self.pending;
        // A response is large: the closure moves it here, and the guard's result has only a fault.
        let mut response = None;
        let called = guarded(self.record.counters(), || {
            match handler.handle(request) {
                Answer::Ready(result) => response = Some(result?),
                Answer::Later(later) => *pending = Some(later),
            }
            Ok(())
        });
        self.record.handler_called();
        if let Err(fault) = called.flatten() {
            response = Some(fault.response());
        }
        if let Some(response) = &mut response {
            self.make_final(response);
        }
        response
    }

    /// Waits for the next head. `interim`: 1xx heads are given, too; otherwise they stay queued. A fault of the
    /// request body ends the waiting.
    #[inline]
    pub fn poll_response(&mut self, cx: &mut Context<'_>, interim: bool) -> Poll<ResponseHead> {
        let Some(pending) = &mut self.pending else {
            return Poll::Pending;
        };
        // As in `start`.
        let mut response = None;
        let polled = match self.intake.as_ref().and_then(Intake::fault) {
            Some(fault) => Err(fault),
            None => {
                if let (Some(queue), true) = (&pending.interim, interim)
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
            response = Some(fault.response());
        }
        let Some(mut response) = response else {
            return Poll::Pending;
        };
        self.pending = None;
        self.make_final(&mut response);
        Poll::Ready(ResponseHead::Final(response))
    }

    /// Replaces a handler's response whose status is not a final one.
    #[inline]
    fn make_final(&self, response: &mut Response) {
        if !self.is_final(response) {
            *response = Fault::from(Reason::UnexpectedStatus).response();
        }
    }

    /// A 1xx is no final response, except for a 101 that the client asked for and that has a tunnel.
    #[inline]
    fn is_final(&self, response: &Response) -> bool {
        match response.status {
            101 => self.upgrade && response.upgrade.is_some(),
            status => (200..=999).contains(&status),
        }
    }

    /// How much content a response has, as the protocol has to declare it.
    #[inline]
    pub fn extent(&self, response: &Response) -> Extent {
        Extent::of(response, self.head)
    }

    /// Records a final response whose head is about to be sent, and takes its content: see `poll_content`.
    #[inline]
    pub fn respond(&mut self, response: &mut Response, extent: Extent) {
        self.record.responded(response);
        self.content = Content::new(std::mem::take(&mut response.body), extent, self.sends_files);
    }

    /// The next part of the content. A fault means that the content is cut short here, which the protocol has to
    /// make visible to the client.
    #[inline]
    pub fn poll_content(&mut self, cx: &mut Context<'_>) -> Poll<Result<Part, Fault>> {
        self.content.poll(cx, self.record.counters())
    }

    /// Gives the last bytes of a part of a file back to the content, to be given again. Returns false if the
    /// content does not take them.
    pub fn take_back(&mut self, bytes: u64) -> bool {
        self.content.take_back(bytes)
    }

    /// Whether all bytes of a declared length have been given: a fault is then invisible in the bytes themselves.
    pub fn is_all_given(&self) -> bool {
        self.content.is_all_given()
    }

    /// Records how much content has been sent: all that was given except `unsent` bytes.
    #[inline]
    pub fn record_sent(&mut self, unsent: u64) {
        self.record.body_bytes = self.content.given().saturating_sub(unsent);
    }

    /// Records that the response was sent completely, counts it and logs it.
    #[inline]
    pub fn complete(&mut self) {
        self.record.complete = true;
        self.record.close();
    }
}
