//! Rides that end before a response: the request is looked up again, forwarded by itself, or
//! answered from the stored response.

use std::rc::Rc;
use std::sync::Arc;

use super::ride::{Met, Ride, fault_of};
use crate::cache::context::Context;
use crate::cache::decide::admission::Admitted;
use crate::cache::decide::reuse;
use crate::cache::fetch::leader_result::LeaderResult;
use crate::cache::lookup::{Found, How};
use crate::cache::pass::forwarded::forwarded;
use crate::cache::resource_history;
use crate::handler::{Fault, Request, Response};
use crate::http::wanted::has_condition_or_range;
use crate::http::{CacheStatus, Fwd};
use crate::reason::Reason;
use crate::store::{Object, Phase, Revalidated, TableKey};

/// The reason why a request rides an object.
#[derive(Clone, Copy)]
pub(in crate::cache) enum Why {
    /// The object is stored, perhaps only in part.
    Stored(How),
    /// Another request's flight is fetching the object.
    Flying(Fwd),
    /// The object was registered for this request.
    New(Fwd),
}

impl Why {
    /// The reason for a fetch, as Cache-Status reports it.
    pub(in crate::cache) fn fwd(self) -> Fwd {
        match self {
            Why::Stored(_) => Fwd::Partial,
            Why::Flying(fwd) | Why::New(fwd) => fwd,
        }
    }
}

/// Result of a ride.
pub(in crate::cache) enum Rode {
    /// The request has a response, or its flight has failed.
    Answered(Result<Response, Fault>),
    /// The request must be forwarded to the origin by itself, with this Cache-Status.
    Alone(Request, CacheStatus),
    /// The object can't be used for the request, which must be looked up again.
    Parted(Request),
    /// The stored response that a fetch was to confirm is served. The last field is the data that
    /// this fetch returned for the request.
    Stored(Request, Found, LeaderResult),
}

/// Decides what happens to a request whose ride ended before a response.
pub(in crate::cache) fn unmet(
    context: &Rc<Context>,
    ride: Ride,
    met: Met,
    admitted: &Admitted,
    place: TableKey,
    why: Why,
) -> Rode {
    let object = ride.object().clone();
    let launched = ride.launched();
    let Some((request, leader_result)) = ride.into_request() else {
        return Rode::Answered(Err(Reason::FetchAbandoned.into()));
    };
    let on_error = How::OnError {
        fwd: why.fwd(),
        collapsed: !launched,
    };
    match met {
        Met::Head(_) | Met::Gone(Phase::Retired | Phase::Open(_) | Phase::Awaiting) => {
            Rode::Parted(request)
        }
        Met::Gone(Phase::Revalidated { stored, confirmed }) => {
            let (fwd, collapsed) = (why.fwd(), !launched);
            let how = match confirmed {
                false => on_error,
                true => How::Confirmed { fwd, collapsed },
            };
            Rode::Stored(request, found_in(stored, place, how), leader_result)
        }
        Met::Gone(Phase::Failed(failure)) => {
            match serve_on_error(context, &object, admitted, place, on_error) {
                Some(found) => Rode::Stored(request, found, leader_result),
                None => Rode::Answered(Err(fault_of(&failure))),
            }
        }
        Met::Gone(Phase::Refused { reason, .. }) => {
            if let Some(found) = serve_on_error(context, &object, admitted, place, on_error) {
                return Rode::Stored(request, found, leader_result);
            }
            let status = CacheStatus::fwd(why.fwd()).because(reason);
            match leader_result.take() {
                Some(response) if may_have(&request, &response) => {
                    Rode::Answered(Ok(forwarded(response, status)))
                }
                // The response concerned another client's credentials.
                _ if reason.credentials_only() && !admitted.authorized => Rode::Parted(request),
                _ => Rode::Alone(request, status),
            }
        }
        Met::Forward(reason) => {
            if matches!(why, Why::New(_)) && !launched && !object.in_flight() {
                // No flight fetches the object, so other requests must not wait for it.
                context.store.supersede(place, &object, None);
            }
            Rode::Alone(request, CacheStatus::fwd(why.fwd()).because(reason))
        }
        Met::Replace => {
            stop_requesting_ranges(context, place);
            context.store.supersede(place, &object, None);
            Rode::Parted(request)
        }
        Met::Failed(fault) => match serve_on_error(context, &object, admitted, place, on_error) {
            Some(found) => Rode::Stored(request, found, leader_result),
            None => Rode::Answered(Err(fault)),
        },
    }
}

/// Notes in the history that the resource is fetched whole for some time, without Range.
fn stop_requesting_ranges(context: &Context, place: TableKey) {
    let now_ms = context.worker.clock.unix_ms();
    context.store.enter(place.primary, |locked| {
        let mut history = locked.history();
        history.no_ranges_until_ms = now_ms + resource_history::NO_RANGES_MS;
        locked.set_history(history);
    });
}

/// Returns the stored response to serve instead of a failed fetch, if this request's
/// `stale-if-error` permits it. The stored response's own `stale-if-error` was checked by the
/// flight.
pub(in crate::cache) fn serve_on_error(
    context: &Rc<Context>,
    failed: &Arc<Object>,
    admitted: &Admitted,
    place: TableKey,
    how: How,
) -> Option<Found> {
    let stored = failed.revalidated()?;
    let now_ms = context.worker.clock.unix_ms();
    reuse::serves_on_error(&stored.head, admitted, now_ms).then(|| found_in(stored, place, how))
}

/// Ends a ride whose request must be forwarded by itself.
pub(in crate::cache) fn alone(ride: Ride, fwd: Fwd, reason: Reason) -> Rode {
    match ride.into_request() {
        Some((request, _)) => Rode::Alone(request, CacheStatus::fwd(fwd).because(reason)),
        None => Rode::Answered(Err(Reason::FetchAbandoned.into())),
    }
}

/// Makes the lookup result for the stored response that a fetch was to confirm, with its current
/// key in the table.
pub(in crate::cache) fn found_in(stored: Revalidated, place: TableKey, how: How) -> Found {
    let vary = stored.head.vary.as_ref();
    Found {
        place: TableKey {
            variant: vary.map_or(0, |vary| vary.variant),
            ..place
        },
        object: stored.object,
        head: stored.head,
        how,
    }
}

/// Whether the leader may have the response to its flight, which can't be shared. Unlike the
/// leader's request, the fetch had no conditions, and its own range. A request with conditions or
/// ranges must be answered by the origin.
fn may_have(request: &Request, response: &Response) -> bool {
    match response.status {
        200 => !has_condition_or_range(&request.head.fields),
        206 | 304 | 416 => false,
        _ => true,
    }
}
