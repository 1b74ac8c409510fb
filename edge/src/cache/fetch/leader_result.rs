//! The data that a flight returns to the request that launched it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use crate::handler::{Fault, Interim, Response, UpstreamTimings};
use crate::http::{FieldBlock, Fields, Outcome, Status};

/// Maximum number of fetches with short bodies that are remembered per request; the oldest one is
/// dropped for a new one.
const SHORT_BODIES_MAX: usize = 16;

/// The data that a flight returns to the request that launched it. Flight and request run on the
/// same worker.
#[derive(Clone)]
pub(in crate::cache) struct LeaderResult {
    parts: Rc<Parts>,
}

#[derive(Default)]
struct Parts {
    /// Whether a partial response was much shorter than requested.
    short_part: Cell<bool>,
    /// The missing bytes of each fetch whose body ended early.
    short_bodies: RefCell<Vec<Range<u64>>>,
    /// The queue of 1xx heads of the request.
    interim: Option<Interim>,
    response: RefCell<Option<Response>>,
    exchange: RefCell<Option<Rc<UpstreamTimings>>>,
    withheld: RefCell<Fields>,
    /// The failure of a fetch, which the request must not repeat.
    fault: Cell<Option<Fault>>,
    /// Whether the origin refused a fetch for something of this request's client.
    refused: Cell<bool>,
}

impl LeaderResult {
    /// Creates the result for a request with this queue of 1xx heads.
    pub(in crate::cache) fn new(interim: Option<Interim>) -> LeaderResult {
        LeaderResult {
            parts: Rc::new(Parts {
                interim,
                ..Parts::default()
            }),
        }
    }

    /// Hands over a response that can't be shared, if the request still waits.
    pub(in crate::cache) fn put(&self, response: Response) {
        if Rc::strong_count(&self.parts) > 1 {
            *self.parts.response.borrow_mut() = Some(response);
        }
    }

    /// Hands over a 1xx head that is for this request's client only.
    pub(in crate::cache) fn forward_interim(&self, status: Status, fields: FieldBlock) {
        if let Some(interim) = &self.parts.interim {
            interim.push(status, fields);
        }
    }

    /// Notes that a partial response was much shorter than requested.
    pub(in crate::cache) fn note_short_part(&self) {
        self.parts.short_part.set(true);
    }

    /// Whether a partial response was much shorter than requested.
    pub(in crate::cache) fn had_short_part(&self) -> bool {
        self.parts.short_part.get()
    }

    /// Notes that the body of a fetch ended before these bytes.
    pub(in crate::cache) fn note_short_body(&self, missing: Range<u64>) {
        let mut short = self.parts.short_bodies.borrow_mut();
        if short.len() >= SHORT_BODIES_MAX {
            short.remove(0);
        }
        short.push(missing);
    }

    /// Returns the number of fetches whose bodies ended before the byte `at`, and forgets them.
    pub(in crate::cache) fn take_short_bodies(&self, at: u64) -> u32 {
        let mut short = self.parts.short_bodies.borrow_mut();
        let before = short.len();
        short.retain(|missing| !missing.contains(&at));
        (before - short.len()) as u32
    }

    /// Hands over the failure of a fetch, which the request must not repeat.
    pub(in crate::cache) fn put_fault(&self, fault: Fault) {
        self.parts.fault.set(Some(fault));
    }

    /// Takes the failure of a fetch, which the request must not repeat.
    pub(in crate::cache) fn take_fault(&self) -> Option<Fault> {
        self.parts.fault.take()
    }

    /// Notes that the origin refused a fetch for something of this request's client.
    pub(in crate::cache) fn refuse(&self) {
        self.parts.refused.set(true);
    }

    /// Whether the origin refused a fetch for something of this request's client.
    pub(in crate::cache) fn is_refused(&self) -> bool {
        self.parts.refused.get()
    }

    /// Hands over the timings of the exchange.
    pub(in crate::cache) fn note(&self, response: &Response) {
        self.parts
            .exchange
            .borrow_mut()
            .clone_from(&response.upstream);
    }

    /// Hands over the timings of an exchange that failed.
    pub(in crate::cache) fn note_failed(&self, exchange: Option<Rc<UpstreamTimings>>) {
        *self.parts.exchange.borrow_mut() = exchange;
    }

    /// Writes the timings of the exchange that failed to the request's own.
    pub(in crate::cache) fn write_failed(&self, own: &UpstreamTimings) {
        if let Some(exchange) = &*self.parts.exchange.borrow() {
            own.take_over(exchange);
        }
    }

    /// Hands over header fields that are for this request's client only.
    pub(in crate::cache) fn withhold(&self, lines: Fields) {
        *self.parts.withheld.borrow_mut() = lines;
    }

    /// Completes the request's response: adds the handed-over header fields, the timings for the
    /// log and the origin's status.
    pub(in crate::cache) fn complete(&self, mut response: Response) -> Response {
        for (name, value) in self.parts.withheld.take().iter() {
            response.fields.append_bytes(name, value);
        }
        response.upstream = response.upstream.or_else(|| self.exchange());
        let answered = response.upstream.as_ref().and_then(|e| e.status.get());
        if let Some(status) = &mut response.cache
            && matches!(status.outcome, Outcome::Fwd(_))
        {
            status.fwd_status = status.fwd_status.or(answered);
        }
        response
    }

    /// Takes the response that can't be shared.
    pub(in crate::cache) fn take(&self) -> Option<Response> {
        self.parts.response.borrow_mut().take()
    }

    /// The timings of the exchange with the origin, for the log.
    pub(in crate::cache) fn exchange(&self) -> Option<Rc<UpstreamTimings>> {
        self.parts.exchange.borrow().clone()
    }
}
