//! Carries out fetches that the operator orders, by the handlers that answer clients.

use std::rc::Rc;
use std::time::Duration;

use super::edge::Edge;
use super::fetches::{FETCHES_MAX, Fetch};
use super::handlers::Handlers;
use super::preview::request;
use crate::admin::{FetchOrder, Fetched, Fetching, Refusal};
use crate::handler::{Body, Handler, Request, Response};
use crate::reason::Reason;
use crate::telemetry::shown_url;

/// Longest time of a fetch. A longer one is ended; what it has stored stays.
const FETCH_MAX: Duration = Duration::from_secs(3600);

impl Edge {
    /// Begins to fetch a URL.
    ///
    /// # Errors
    ///
    /// The URL is invalid or not cached, or too many fetches are in progress. The refusal says why.
    pub(super) fn fetch(&self, order: FetchOrder) -> Result<Fetching, Refusal> {
        let refused = |status, why: String| Refusal { status, why };
        let snapshot = self.snapshots.borrow().clone();
        let (_, asked) =
            request::request(&order.question, &snapshot.plan).map_err(|why| refused(400, why))?;
        let request = asked.map_err(|refusal| {
            let why = format!("clients get {} {} for this", refusal.status, refusal.reason);
            refused(400, why)
        })?;
        if !matches!(request.body, Body::Empty) || request.head.wants_tunnel {
            let why = "a fetch has neither a body nor an upgrade: leave these headers out";
            return Err(refused(400, why.to_owned()));
        }
        let (authority, target) = (&request.head.authority, &request.head.target);
        let index = snapshot.router.find(authority, target).copied();
        let Some((_, route)) = index.and_then(|index| snapshot.plan.route(index)) else {
            let why = "no route matches this URL: requests for it get 404".to_owned();
            return Err(refused(404, why));
        };
        if route.cache().is_none() {
            let why = "the route of this URL has no cache, so there is nothing to fetch into";
            return Err(refused(409, why.to_owned()));
        }
        self.fetches.begin(order).ok_or_else(|| {
            let why = format!(
                "{FETCHES_MAX} fetches are in progress, and no more are made at a time\n(try again when one has ended)"
            );
            refused(429, why)
        })
    }
}

/// Carries out a fetch on this worker, in the background.
pub(super) fn begin(fetch: Fetch, handlers: Rc<Handlers>) {
    tokio::task::spawn_local(async move {
        let Fetch {
            order,
            report,
            permit,
        } = fetch;
        let begun_us = handlers.edge.clock.monotonic_us();
        let mut fetched = Fetched::default();
        let ended = tokio::time::timeout(FETCH_MAX, run(&order, &handlers, &mut fetched)).await;
        let reason = ended.unwrap_or(Some(Reason::FetchAbandoned));
        fetched.reason = reason.map(|reason| reason.to_string());
        let state = if reason.is_none() {
            "complete"
        } else {
            "failed"
        };
        fetched.state = state.to_owned();
        fetched.took_ms = handlers.edge.clock.monotonic_us().saturating_sub(begun_us) / 1000;
        drop(permit);
        note(&order, &fetched);
        // The page that ordered the fetch may have stopped waiting.
        let _ = report.send(fetched);
    });
}

/// Adds the end of a fetch to the log and the events.
fn note(order: &FetchOrder, fetched: &Fetched) {
    let Fetched {
        status,
        bytes,
        took_ms,
        ..
    } = *fetched;
    let url = shown_url(&order.question.url);
    match &fetched.reason {
        None => {
            tracing::info!(target: "sluice::event::fetch::complete", %url, status, bytes, took_ms, "a fetch by order is complete");
        }
        Some(reason) => {
            tracing::warn!(target: "sluice::event::fetch::failed", %url, status, %reason, bytes, took_ms, "a fetch by order failed");
        }
    }
}

/// Makes the request, and reads the response as a client does. Returns the reason of a failure.
async fn run(order: &FetchOrder, handlers: &Handlers, fetched: &mut Fetched) -> Option<Reason> {
    let snapshot = &handlers.snapshot;
    let Ok((_, Ok(mut request))) = request::request(&order.question, &snapshot.plan) else {
        return Some(Reason::NoRoute);
    };
    let (authority, target) = (&request.head.authority, &request.head.target);
    let index = snapshot.router.find(authority, target).copied();
    let handler = index.and_then(|index| handlers.fetching(index, order.refresh));
    let Some(handler) = handler else {
        return Some(Reason::NoRoute);
    };
    if order.refresh {
        request.head.fields.set("cache-control", "no-cache");
    }
    // The origin is told no client's address.
    request.peer.shared = true;
    read(&*handler, request, fetched).await
}

/// Reads the response to a request to its end. Returns the reason of a failure.
async fn read(handler: &dyn Handler, request: Request, fetched: &mut Fetched) -> Option<Reason> {
    let mut response: Response = match handler.handle(request).wait().await {
        Ok(response) => response,
        Err(fault) => return Some(fault.reason),
    };
    fetched.status = Some(response.status);
    fetched.cache_status = response.cache.map(|status| {
        let mut out = Vec::new();
        status.render(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    });
    while let Some(frame) = response.body.frame().await {
        let length = match frame {
            Ok(frame) => frame.length(),
            Err(fault) => return Some(fault.reason),
        };
        fetched.bytes += length;
        if let Some(receipt) = &response.receipt {
            receipt.received(length);
        }
        // Bytes in memory are there at once, so that other requests of this worker would wait for the end.
        tokio::task::yield_now().await;
    }
    response.fault
}
