//! Rides that end before a response: the request is looked up again, passed to the origin, or
//! served the stored response.

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
    /// The `fwd` value for Cache-Status, if some of the bytes have to be fetched.
    pub(in crate::cache) fn fwd(self) -> Fwd {
        match self {
            Why::Stored(_) => Fwd::Partial,
            Why::Flying(fwd) | Why::New(fwd) => fwd,
        }
    }
}

/// The end of a ride.
pub(in crate::cache) enum Rode {
    /// The request has its response, or the flight's failure.
    Answered(Result<Response, Fault>),
    /// The request is to be passed to the origin.
    Alone(Request, CacheStatus),
    /// The object is not for this request, which has to look up again.
    Parted(Request),
    /// The stored response that was to be confirmed is served, with the result of the fetch that
    /// was to confirm it.
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
                // The refusal concerned another client's credentials.
                _ if reason.credentials_only() && !admitted.authorized => Rode::Parted(request),
                _ => Rode::Alone(request, status),
            }
        }
        Met::Forward(reason) => {
            if matches!(why, Why::New(_)) && !launched && !object.in_flight() {
                // The object has no flight, so other requests must not wait for it.
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

/// Remembers for some time to fetch the whole resource instead of ranges.
fn stop_requesting_ranges(context: &Context, place: TableKey) {
    let now_ms = context.worker.clock.unix_ms();
    context.store.enter(place.primary, |locked| {
        let mut history = locked.history();
        history.no_ranges_until_ms = now_ms + resource_history::NO_RANGES_MS;
        locked.set_history(history);
    });
}

/// The stored response to serve instead of a failed fetch, if this request permits it. The flight
/// has already checked whether the stored response itself does.
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

/// Ends a ride whose request is to be passed to the origin.
pub(in crate::cache) fn alone(ride: Ride, fwd: Fwd, reason: Reason) -> Rode {
    match ride.into_request() {
        Some((request, _)) => Rode::Alone(request, CacheStatus::fwd(fwd).because(reason)),
        None => Rode::Answered(Err(Reason::FetchAbandoned.into())),
    }
}

/// The stored response that a fetch was to confirm, with its current table key.
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

/// Whether the leader may have the response, which can't be shared. The fetch had other ranges and
/// conditions than the request itself, and those are for the origin to judge.
fn may_have(request: &Request, response: &Response) -> bool {
    match response.status {
        200 => !has_condition_or_range(&request.head.fields),
        206 | 304 | 416 => false,
        _ => true,
    }
}
