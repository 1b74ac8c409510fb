//! Rides that end before a response: the request looks again, goes on alone, or gets what is stored.

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

/// Why a request rides an object.
#[derive(Clone, Copy)]
pub(in crate::cache) enum Why {
    /// It is stored, if not all of it.
    Stored(How),
    /// Another request's flight is bringing it.
    Flying(Fwd),
    /// This request had it registered.
    New(Fwd),
}

impl Why {
    /// Why the request goes forward, if some of its bytes have to be fetched.
    pub(in crate::cache) fn fwd(self) -> Fwd {
        match self {
            Why::Stored(_) => Fwd::Partial,
            Why::Flying(fwd) | Why::New(fwd) => fwd,
        }
    }
}

/// How a ride came to an end before a response.
pub(in crate::cache) enum Rode {
    /// With an answer, or the flight's failure.
    Answered(Result<Response, Fault>),
    /// This request goes forward on its own.
    Alone(Request, CacheStatus),
    /// What it rode is not for it: look again.
    Parted(Request),
    /// What was to be confirmed serves it. With what the fetch that was to do so left for it.
    Stored(Request, Found, LeaderResult),
}

/// What becomes of a request whose ride ended before a response.
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
                // That was about another's credentials.
                _ if reason.credentials_only() && !admitted.authorized => Rode::Parted(request),
                _ => Rode::Alone(request, status),
            }
        }
        Met::Forward(reason) => {
            if matches!(why, Why::New(_)) && !launched && !object.in_flight() {
                // Nobody flies for it: it is not to be waited for.
                context.store.supersede(place, &object, None);
            }
            Rode::Alone(request, CacheStatus::fwd(why.fwd()).because(reason))
        }
        Met::Replace => {
            let now_ms = context.worker.clock.unix_ms();
            context.store.enter(place.primary, |locked| {
                let mut history = locked.history();
                history.no_ranges_until_ms = now_ms + resource_history::NO_RANGES_MS;
                locked.set_history(history);
            });
            context.store.supersede(place, &object, None);
            Rode::Parted(request)
        }
        Met::Failed(fault) => match serve_on_error(context, &object, admitted, place, on_error) {
            Some(found) => Rode::Stored(request, found, leader_result),
            None => Rode::Answered(Err(fault)),
        },
    }
}

/// What may be given in place of a fetch that failed, because this request says so: what the
/// stored response says itself was taken care of by the flight.
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

/// A request that leaves its ride, to go on by itself.
pub(in crate::cache) fn alone(ride: Ride, fwd: Fwd, reason: Reason) -> Rode {
    match ride.into_request() {
        Some((request, _)) => Rode::Alone(request, CacheStatus::fwd(fwd).because(reason)),
        None => Rode::Answered(Err(Reason::FetchAbandoned.into())),
    }
}

/// What a fetch was to confirm, with where it stands now.
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

/// Whether the one who launched a flight may have its response, which can't be shared. It was
/// asked for otherwise than this request admitted: a range or a condition is for the origin to judge.
fn may_have(request: &Request, response: &Response) -> bool {
    match response.status {
        200 => !has_condition_or_range(&request.head.fields),
        206 | 304 | 416 => false,
        _ => true,
    }
}
