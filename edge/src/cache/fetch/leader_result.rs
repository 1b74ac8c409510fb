//! The data that a flight returns to the request that launched it.

use std::cell::RefCell;
use std::rc::Rc;

use crate::handler::{Response, UpstreamTimings};
use crate::http::{Fields, Outcome};

/// The data that a flight returns to the request that launched it. Flight and request run on the
/// same worker.
#[derive(Clone, Default)]
pub(in crate::cache) struct LeaderResult {
    /// Whether the request may have a response that can't be shared.
    may_take: bool,
    left: Rc<Left>,
}

#[derive(Default)]
struct Left {
    response: RefCell<Option<Response>>,
    exchange: RefCell<Option<Rc<UpstreamTimings>>>,
    withheld: RefCell<Fields>,
}

impl LeaderResult {
    /// Returns the flight's end of the result. `may_take`: whether the request may have a response
    /// that can't be shared.
    pub(in crate::cache) fn of_flight(&self, may_take: bool) -> LeaderResult {
        LeaderResult {
            may_take,
            left: self.left.clone(),
        }
    }

    /// Hands over a response that can't be shared, if the request may have it and still waits.
    pub(in crate::cache) fn put(self, response: Response) {
        if self.may_take && Rc::strong_count(&self.left) > 1 {
            *self.left.response.borrow_mut() = Some(response);
        }
    }

    /// Hands over the timings of the exchange.
    pub(in crate::cache) fn note(&self, response: &Response) {
        self.left
            .exchange
            .borrow_mut()
            .clone_from(&response.upstream);
    }

    /// Hands over header fields that are for this request's client only, if it may have them.
    pub(in crate::cache) fn withhold(&self, lines: Fields) {
        if self.may_take {
            *self.left.withheld.borrow_mut() = lines;
        }
    }

    /// Completes the request's response: adds the handed-over header fields, the timings for the
    /// log and the origin's status.
    pub(in crate::cache) fn complete(&self, mut response: Response) -> Response {
        for (name, value) in self.left.withheld.take().iter() {
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
        self.left.response.borrow_mut().take()
    }

    /// The timings of the exchange with the origin, for the log.
    pub(in crate::cache) fn exchange(&self) -> Option<Rc<UpstreamTimings>> {
        self.left.exchange.borrow().clone()
    }
}
