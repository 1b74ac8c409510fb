//! A preview of a gate: makes the same checks as the gate, reports each, and counts nothing.

use std::rc::Rc;
use std::sync::Arc;

use super::checks::{CHECKS, Check};
use super::shared::Shared;
use super::table::BucketKind;
use crate::handler::{Answer, Handler, Request};
use crate::http::ClientId;
use crate::reason::Reason;
use crate::sys::Clock;

/// Receives the result of each check: `None` for a check that is not made, because one before it refused the request or
/// because the request skips all checks.
pub type Report = dyn Fn(Check, Option<Result<(), Reason>>);

/// A handler that checks requests as a [`super::Gate`] does. It only looks at the buckets of clients.
pub struct Preview {
    shared: Arc<Shared>,
    clock: Clock,
    inner: Rc<dyn Handler>,
    report: Rc<Report>,
}

impl Preview {
    /// Creates a preview that passes admitted requests to `inner`.
    pub fn new(
        shared: Arc<Shared>,
        clock: Clock,
        inner: Rc<dyn Handler>,
        report: Rc<Report>,
    ) -> Preview {
        Preview {
            shared,
            clock,
            inner,
            report,
        }
    }

    fn report(&self, check: Check, result: Option<Result<(), Reason>>) {
        if self.shared.makes(check) {
            (self.report)(check, result);
        }
    }
}

impl Handler for Preview {
    fn handle(&self, mut request: Request) -> Answer {
        if self.shared.skips(&mut request) {
            CHECKS
                .into_iter()
                .for_each(|check| self.report(check, None));
            return self.inner.handle(request);
        }
        let client = ClientId::of(request.peer.client);
        let mut checks = CHECKS.into_iter();
        for check in checks.by_ref() {
            let now = self.clock.monotonic_us().saturating_mul(1000);
            let checked = self
                .shared
                .check(check, &mut request, &self.clock, |table, rate| {
                    let mut full_at = table.look(client, BucketKind::Requests);
                    rate.take(&mut full_at, now, 1, 0)
                });
            let Err(refused) = checked else {
                self.report(check, Some(Ok(())));
                continue;
            };
            self.report(check, Some(Err(refused.reason())));
            checks.for_each(|check| self.report(check, None));
            return refused.answer(&self.shared);
        }
        self.inner.handle(request)
    }
}
