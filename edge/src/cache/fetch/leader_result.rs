//! What a flight leaves for the request that launched it.

use std::cell::RefCell;
use std::rc::Rc;

use crate::handler::{Response, UpstreamTimings};
use crate::http::{Fields, Outcome};

/// What a flight leaves for the request that launched it. Both are on the same worker.
#[derive(Clone)]
pub(in crate::cache) struct LeaderResult(Rc<Left>);

struct Left {
    /// Whether the request may have a response that can't be shared.
    may_take: bool,
    response: RefCell<Option<Response>>,
    exchange: RefCell<Option<Rc<UpstreamTimings>>>,
    withheld: RefCell<Fields>,
}

impl LeaderResult {
    /// With nothing left yet.
    pub(in crate::cache) fn new(may_take: bool) -> LeaderResult {
        LeaderResult(Rc::new(Left {
            may_take,
            response: RefCell::default(),
            exchange: RefCell::default(),
            withheld: RefCell::default(),
        }))
    }

    /// Leaves a response that can't be shared, if it may be taken and someone is there to take it.
    pub(in crate::cache) fn put(self, response: Response) {
        if self.0.may_take && Rc::strong_count(&self.0) > 1 {
            *self.0.response.borrow_mut() = Some(response);
        }
    }

    /// Leaves the record of the exchange.
    pub(in crate::cache) fn note(&self, response: &Response) {
        self.0.exchange.borrow_mut().clone_from(&response.upstream);
    }

    /// Leaves field lines that are for the client of this request alone, if it may have them.
    pub(in crate::cache) fn withhold(&self, lines: Fields) {
        if self.0.may_take {
            *self.0.withheld.borrow_mut() = lines;
        }
    }

    /// Adds what was left to the response that the request gets: those lines, the exchange for the
    /// log, and what the origin answered.
    pub(in crate::cache) fn complete(&self, mut response: Response) -> Response {
        for (name, value) in self.0.withheld.take().iter() {
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

    /// Takes the response.
    pub(in crate::cache) fn take(&self) -> Option<Response> {
        self.0.response.borrow_mut().take()
    }

    /// The exchange with the origin, for the log.
    pub(in crate::cache) fn exchange(&self) -> Option<Rc<UpstreamTimings>> {
        self.0.exchange.borrow().clone()
    }
}
