//! Early ends of a fetch: no request waits for it any more, or a reader has another one launched in
//! its place.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{self, Poll};

use super::flight::Flight;
use crate::fill::Kind;
use crate::handler::{Fault, Response, UpstreamTimings};
use crate::reason::Reason;
use crate::store::Phase;

impl Flight {
    /// Waits for the response, which `upstream` describes. Fails with `FetchAbandoned` when the
    /// object has no reader left and no head, and either the fetch is not worth going on
    /// (`is_unwanted`) or other requests need its connection. Returns `None` if a reader has
    /// requested the end of the flight.
    pub(in crate::cache) async fn while_wanted(
        &self,
        upstream: Option<&UpstreamTimings>,
        response: impl Future<Output = Result<Response, Fault>>,
    ) -> Option<Result<Response, Fault>> {
        let mut response = pin!(response);
        let mut unread = pin!(self.landing.object().unread());
        let mut contended = pin!(others_wait(upstream));
        poll_fn(|cx| {
            if let Poll::Ready(response) = response.as_mut().poll(cx) {
                return Poll::Ready(Some(response));
            }
            if self.poll_stop(cx).is_ready() {
                return Poll::Ready(None);
            }
            let is_unread = unread.as_mut().poll(cx).is_ready();
            match is_unread
                && self.is_first()
                && (self.is_unwanted(upstream) || contended.as_mut().poll(cx).is_ready())
            {
                true => Poll::Ready(Some(Err(Reason::FetchAbandoned.into()))),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// Waits until a reader has requested the end of this flight. Only with `fill = "lock"` do
    /// readers end an old flight.
    pub(super) fn poll_stop(&self, cx: &mut task::Context<'_>) -> Poll<()> {
        match self.context.options.fill.kind {
            Kind::Lock => self.landing.poll_stop(cx),
            _ => Poll::Pending,
        }
    }

    /// Whether the object has no head yet.
    fn is_first(&self) -> bool {
        matches!(self.landing.object().phase(), Phase::Awaiting)
    }

    /// Whether a first fetch without readers should end although no other request needs its
    /// connection: either no server has the request yet, or the client's budget is used up.
    fn is_unwanted(&self, upstream: Option<&UpstreamTimings>) -> bool {
        let context = &self.context;
        let is_sent = upstream.is_none_or(|timings| timings.server.get().is_some());
        let now_us = context.worker.clock.monotonic_us();
        let budget = context.options.client_budget;
        !is_sent || self.charge.is_used_up(budget, now_us)
    }
}

/// Waits until other requests wait for a connection to the upstream.
async fn others_wait(upstream: Option<&UpstreamTimings>) {
    match upstream.and_then(|upstream| upstream.queue.as_ref()) {
        Some(queue) => queue.not_empty().await,
        None => std::future::pending().await,
    }
}
