//! A route whose requests are not all logged: says so before anything answers.

use std::rc::Rc;

use crate::handler::{Answer, Handler, Request};
use crate::telemetry::{AccessLog, Selection};

/// Around all that answers on the route, so that whatever refuses a request is logged by its rule, too.
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
