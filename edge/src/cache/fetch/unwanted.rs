//! Early ends of a fetch: no request waits for it any more, or a reader has another one launched in
//! its place.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{self, Poll};

use super::flight::Flight;
use crate::fill::Kind;
use crate::handler::{Fault, Response, UpstreamTimings};
use crate::reason::Reason;
use crate::store::{Phase, Readers};

impl Flight {
    /// Waits for the response, which `upstream` describes. The flight ends early if no reader wants
    /// its bytes, and either the fetch is not worth going on (`is_unwanted`) or requests that are
    /// wanted wait for a connection: the first flight of an object fails with `FetchAbandoned`. A
    /// further one returns `None`, so that a reader that comes at this moment has the bytes fetched
    /// again. Also returns `None` if a reader has requested the end of the flight.
    pub(in crate::cache) async fn while_wanted(
        &self,
        upstream: Option<&UpstreamTimings>,
        response: impl Future<Output = Result<Response, Fault>>,
    ) -> Option<Result<Response, Fault>> {
        let yielding = Yielding(upstream); // dropped after the response, which may be in a queue
        let mut response = pin!(response);
        let mut watch = self.landing.watch_readers();
        let mut contended = pin!(others_wait(upstream));
        poll_fn(|cx| {
            if let Poll::Ready(response) = response.as_mut().poll(cx) {
                return Poll::Ready(Some(response));
            }
            if self.poll_stop(cx).is_ready() {
                return Poll::Ready(None);
            }
            let readers = watch.poll(cx);
            yielding.set(readers != Readers::OfFlight);
            let is_contended = contended.as_mut().poll(cx).is_ready();
            if is_contended {
                // A future that has returned must not be polled again.
                contended.set(others_wait(upstream));
            }
            let ends = readers != Readers::OfFlight
                && (is_contended || self.is_unwanted(readers, upstream));
            match ends {
                true => Poll::Ready(self.abandon()),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// The result of a flight that ends early because no reader wants its bytes.
    fn abandon(&self) -> Option<Result<Response, Fault>> {
        if self.is_first() {
            return Some(Err(Reason::FetchAbandoned.into()));
        }
        self.context.worker.counters.flights_failed.add(1);
        None
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

    /// Whether a fetch that no reader wants should end although no other request needs its
    /// connection: the client's budget is used up, or no server has the first request for the object
    /// yet. A further fetch may be for bytes that no reader was to want so soon.
    fn is_unwanted(&self, readers: Readers, upstream: Option<&UpstreamTimings>) -> bool {
        let context = &self.context;
        let is_sent = upstream.is_none_or(|timings| timings.server.get().is_some());
        let now_us = context.worker.clock.monotonic_us();
        let budget = context.options.client_budget;
        readers == Readers::None
            && ((self.is_first() && !is_sent) || self.charge.is_used_up(budget, now_us))
    }
}

/// Lets a request yield to others in queues for a connection, until this value is dropped: the
/// response has arrived then, and later connections are for its readers.
struct Yielding<'a>(Option<&'a UpstreamTimings>);

impl Yielding<'_> {
    fn set(&self, yields: bool) {
        if let Some(timings) = self.0 {
            timings.queue_entries.set_yields(yields);
        }
    }
}

impl Drop for Yielding<'_> {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// Waits until requests that do not yield wait for a connection to the upstream.
async fn others_wait(upstream: Option<&UpstreamTimings>) {
    match upstream.and_then(|upstream| upstream.queue.as_ref()) {
        Some(queue) => queue.not_empty().await,
        None => std::future::pending().await,
    }
}
