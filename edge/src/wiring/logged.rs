//! A handler that marks the requests of a route that does not log all of its requests.

use std::rc::Rc;

use crate::handler::{Answer, Handler, Request};
use crate::telemetry::{AccessLog, Selection};

/// Wraps all handlers of the route, so that its log rule also applies to refused requests.
pub(super) struct Logged {
    pub(super) log: Rc<AccessLog>,
    pub(super) selection: Rc<Selection>,
    pub(super) inner: Rc<dyn Handler>,
}

impl Handler for Logged {
    fn handle(&self, request: Request) -> Answer {
        self.log.select(self.selection.clone());
        self.inner.handle(request)
    }
}
