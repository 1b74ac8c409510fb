//! Rides that end before a response: the request is looked up again, forwarded separately, or
//! answered from the stored response.

use std::rc::Rc;
use std::sync::Arc;

use super::retry::{fault_of, has_changed};
use super::ride::{HeadResult, Ride};
use crate::cache::context::Context;
use crate::cache::decide::admission::Admitted;
use crate::cache::decide::reuse;
use crate::cache::decide::storing::{Content, content_of};
use crate::cache::decide::want::{self, WantedOf};
use crate::cache::fetch::leader_result::LeaderResult;
use crate::cache::lookup::{Found, Freshness};
use crate::cache::pass::forwarded::forwarded;
use crate::cache::references::{self, Used};
use crate::cache::resource_history;
use crate::handler::{Fault, Request, Response};
use crate::http::wanted::{Wanted, has_condition_or_range};
use crate::http::{CacheStatus, Fwd};
use crate::reason::Reason;
use crate::store::{Failure, Locked, Object, Phase, Revalidated, TableKey};

/// The reason why a request rides an object.
#[derive(Clone, Copy)]
pub(in crate::cache) enum RideReason {
    /// The object is stored, perhaps only in part.
    Stored(Freshness),
    /// Another request's flight is fetching the object.
    InFlight(Fwd),
    /// The object was registered for this request.
    New(Fwd),
}

impl RideReason {
    /// Reports the request to the simulation of other cache sizes, unless its response was stored.
    pub(super) fn note_fetch(self, context: &Context, used: Used<'_>, wanted: &Wanted) {
        match self {
            RideReason::Stored(_) => {}
            RideReason::InFlight(_) => references::fetched(context, used, wanted, true),
            RideReason::New(_) => references::fetched(context, used, wanted, false),
        }
    }

    /// The reason for a fetch, as Cache-Status reports it.
    pub(in crate::cache) fn fwd(self) -> Fwd {
        match self {
            RideReason::Stored(_) => Fwd::Partial,
            RideReason::InFlight(fwd) | RideReason::New(fwd) => fwd,
        }
    }
}

/// Result of a ride.
pub(in crate::cache) enum RideResult {
    /// The request has a response, or can't have one.
    Answered(Result<Response, Fault>),
    /// The request's fetch has failed. The second field is the data that the fetch returned.
    Failed(Fault, LeaderResult),
    /// The request must be forwarded to the origin separately, with this Cache-Status.
    Forward(Request, CacheStatus),
    /// The object can't be used for the request, which must be looked up again. The second field is
    /// the reason for a fetch, as Cache-Status reports it. The third is the fault with which the body
    /// ended before the first wanted byte, if no other response may add bytes to it.
    LookUpAgain(Request, Fwd, Option<Fault>),
    /// The stored response that a fetch was to confirm is served. The last field is the data that
    /// this fetch returned for the request.
    Stored(Request, Found, LeaderResult),
}

/// Decides what happens to a request whose ride ended before a response.
pub(in crate::cache) fn without_response(
    context: &Rc<Context>,
    ride: Ride,
    met: HeadResult,
    admitted: &Admitted,
    table_key: TableKey,
    why: RideReason,
) -> RideResult {
    let (object, launched) = (ride.object().clone(), ride.launched());
    let Some((request, leader_result)) = ride.into_request() else {
        return RideResult::Answered(Err(Reason::FetchAbandoned.into()));
    };
    let (fwd, collapsed) = (why.fwd(), !launched);
    let on_error = Freshness::OnError { fwd, collapsed };
    if has_failed(&met, launched)
        && let Some(found) =
            serve_on_error(context, &request, &object, admitted, table_key, on_error)
    {
        return RideResult::Stored(request, found, leader_result);
    }
    match met {
        HeadResult::Head(_)
        | HeadResult::Ended(Phase::Retired | Phase::Open(_) | Phase::Awaiting) => {
            RideResult::LookUpAgain(request, fwd, None)
        }
        HeadResult::OtherVariant => RideResult::LookUpAgain(request, Fwd::VaryMiss, None),
        HeadResult::Ended(Phase::Revalidated { stored, confirmed }) => {
            let freshness = match confirmed {
                false => on_error,
                true => Freshness::Confirmed { fwd, collapsed },
            };
            let found = found_in(stored, table_key, freshness);
            RideResult::Stored(request, found, leader_result)
        }
        HeadResult::Ended(Phase::Failed(failure)) if !launched && was_unread(&failure) => {
            RideResult::LookUpAgain(request, fwd, None)
        }
        HeadResult::Ended(Phase::Failed(failure)) => {
            match own_response(&request, &leader_result, CacheStatus::fwd(fwd)) {
                Some(response) => RideResult::Answered(Ok(response)),
                None => RideResult::Failed(fault_of(&failure), leader_result),
            }
        }
        HeadResult::Ended(Phase::Refused {
            reason, one_client, ..
        }) => {
            if let Some(fault) = leader_result.take_fault() {
                return RideResult::Failed(fault, leader_result);
            }
            let status = CacheStatus::fwd(fwd).because(reason);
            match own_response(&request, &leader_result, status) {
                Some(response) => RideResult::Answered(Ok(response)),
                // The response concerned another client.
                None if one_client && !launched => RideResult::LookUpAgain(request, fwd, None),
                None => RideResult::Forward(request, status),
            }
        }
        HeadResult::Forward(reason) => {
            if matches!(why, RideReason::New(_)) && !launched && !object.in_flight() {
                // No flight fetches the object, so other requests must not wait for it.
                context.store.supersede(table_key, &object, None);
            }
            RideResult::Forward(request, CacheStatus::fwd(fwd).because(reason))
        }
        HeadResult::Replace => replace(context, request, &object, table_key, fwd),
        HeadResult::Failed(fault) => RideResult::Failed(fault, leader_result),
    }
}

/// Whether the fetch that a request waited for failed, or its response can't be shared. A stored
/// response may then be served instead.
fn has_failed(met: &HeadResult, launched: bool) -> bool {
    match met {
        HeadResult::Failed(_) | HeadResult::Ended(Phase::Refused { .. }) => true,
        HeadResult::Ended(Phase::Failed(failure)) => launched || !was_unread(failure),
        _ => false,
    }
}

/// Whether a flight ended because it had no reader. A request may have joined it in that moment.
fn was_unread(failure: &Failure) -> bool {
    fault_of(failure).reason == Reason::FetchAbandoned
}

/// Has the next request replace the object, and fetch the resource whole. If the body of the object's
/// only fetch broke off, the object has left the table already. An object that has taken its place
/// in the table again, because its new version broke off, stays usable: the request is forwarded.
fn replace(
    context: &Context,
    request: Request,
    object: &Arc<Object>,
    table_key: TableKey,
    fwd: Fwd,
) -> RideResult {
    if has_changed(object) {
        return RideResult::Forward(request, CacheStatus::fwd(fwd).because(Reason::Changing));
    }
    let failure = object.failure().filter(|_| !object.in_flight());
    if failure.is_none() {
        stop_requesting_ranges(context, table_key);
        context.store.supersede(table_key, object, None);
    }
    RideResult::LookUpAgain(request, fwd, failure.map(|failure| fault_of(&failure)))
}

/// Notes in the history that the resource is fetched whole for some time, without Range.
fn stop_requesting_ranges(context: &Context, table_key: TableKey) {
    let now_ms = context.worker.clock.unix_ms();
    context.change_history(table_key, |history| {
        history.no_ranges_until_ms = now_ms + resource_history::NO_RANGES_MS;
    });
}

/// Returns the stored response to serve instead of a failed fetch, if this request's
/// `stale-if-error` permits it. The stored response's own `stale-if-error` was checked by the
/// flight.
fn serve_on_error(
    context: &Rc<Context>,
    request: &Request,
    failed: &Arc<Object>,
    admitted: &Admitted,
    table_key: TableKey,
    freshness: Freshness,
) -> Option<Found> {
    let stored = match failed.revalidated() {
        Some(stored) => stored,
        None => returned(context, request, failed, table_key)?,
    };
    let now_ms = context.worker.clock.unix_ms();
    reuse::serves_on_error(&stored.head, admitted, now_ms)
        .then(|| found_in(stored, table_key, freshness))
}

/// Whether all wanted bytes of an object with a head are stored.
pub(super) fn is_stored_in(request: &Request, object: &Arc<Object>) -> bool {
    let Phase::Open(head) = object.phase() else {
        return false;
    };
    let length = object.content_length(&head);
    let wanted = want::judge(&request.head, &head, length);
    wanted.first().is_none() || wanted.is_stored_in(object)
}

/// Returns the stored response that has taken its place in the table again because the body of its
/// new version, which is the object `failed`, broke off. `None` if wanted bytes are missing: their
/// fetch would find the new version again.
fn returned(
    context: &Rc<Context>,
    request: &Request,
    failed: &Arc<Object>,
    table_key: TableKey,
) -> Option<Revalidated> {
    // An object without a head was refused or failed before it could replace another one.
    failed.head()?;
    let find = |locked: &mut Locked<'_>| locked.find(table_key.variant);
    let object = context.store.enter(table_key.primary, find)?;
    let is_usable = !Arc::ptr_eq(&object, failed) && is_stored_in(request, &object);
    let head = object.head().filter(|_| is_usable)?;
    Some(Revalidated { object, head })
}

/// Ends a ride whose request must be forwarded separately.
pub(in crate::cache) fn forward_separately(ride: Ride, fwd: Fwd, reason: Reason) -> RideResult {
    match ride.into_request() {
        Some((request, _)) => RideResult::Forward(request, CacheStatus::fwd(fwd).because(reason)),
        None => RideResult::Answered(Err(Reason::FetchAbandoned.into())),
    }
}

/// Makes the lookup result for the stored response that a fetch was to confirm, with its current
/// key in the table.
pub(in crate::cache) fn found_in(
    stored: Revalidated,
    table_key: TableKey,
    freshness: Freshness,
) -> Found {
    let vary = stored.head.vary.as_ref();
    Found {
        table_key: TableKey {
            variant: vary.map_or(0, |vary| vary.variant),
            ..table_key
        },
        object: stored.object,
        head: stored.head,
        freshness,
    }
}

/// Takes the response to this request's flight that can't be shared, if the request may have it.
fn own_response(
    request: &Request,
    leader_result: &LeaderResult,
    status: CacheStatus,
) -> Option<Response> {
    let response = leader_result.take()?;
    may_have(request, &response).then(|| forwarded(response, status))
}

/// Whether the leader may have the response to its flight, which can't be shared. Unlike the
/// leader's request, the fetch had no conditions, and its own range. A request with conditions or
/// ranges must be answered by the origin, unless the origin has refused its range.
fn may_have(request: &Request, response: &Response) -> bool {
    match response.status {
        200 => !has_condition_or_range(&request.head.fields),
        416 => {
            let length = match content_of(response) {
                Content::NotSatisfiable(length) => length,
                _ => None,
            };
            want::is_beyond_end(&request.head, length)
        }
        206 | 304 => false,
        _ => true,
    }
}
