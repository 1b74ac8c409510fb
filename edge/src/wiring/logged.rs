//! A handler for routes that do not log all requests: attaches the route's log selection to each
//! request.

use std::rc::Rc;

use crate::handler::{Answer, Handler, Request};
use crate::telemetry::{AccessLog, Selection};

/// Wraps all other handlers of the route, so that its log rule also applies to requests that the
/// gate refuses.
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
