//! Misses: every request that is not a hit launches a fetch, rides one, or is passed to the origin.

pub(in crate::cache) mod background;
pub(in crate::cache) mod demand;
mod read_ahead;
mod recall;
mod retry;
pub(in crate::cache) mod ride;
mod ride_result;

use std::rc::Rc;
use std::sync::Arc;

use self::demand::Demand;
use self::ride::{HeadResult, Ride};
use self::ride_result::{RideReason, RideResult, is_stored_in};

use crate::cache::context::Context;
use crate::cache::decide::admission::Admitted;
use crate::cache::decide::want::{self, WantedOf};
use crate::cache::fetch::leader_result::LeaderResult;
use crate::cache::hit::{coded, respond};
use crate::cache::lookup::{self, Found, Freshness, Known, Lookup, Target};
use crate::cache::references::{self, Used};
use crate::cache::{decide, pass};
use crate::fill::ReadAhead;
use crate::handler::{Answer, Choice, Fault, Pending, Request, Response, UpstreamTimings};
use crate::http::key::KeyHash;
use crate::http::wanted::{Wanted, for_several_codings};
use crate::http::{CacheStatus, Fwd};
use crate::reason::Reason;
use crate::store::{Head, Object, Phase, TableKey};

/// Number of times that a request may be looked up again because its object could not be used for
/// it.
const LOOKUPS_MAX: usize = 6;

/// Answers a request that is not a hit. Unless the request is forwarded at once, the answer follows
/// later.
pub(in crate::cache) fn fetch(
    context: &Rc<Context>,
    request: Request,
    admitted: Admitted,
    key: KeyHash,
    looked: Lookup,
) -> Answer {
    if let Lookup::Pass(status) = looked {
        return pass::pass(context, request, status);
    }
    let mut request = request;
    let interim = request.interim();
    // Only a request that fails fills this in: responses have the data of their own exchange.
    let failed = Rc::<UpstreamTimings>::default();
    let upstream = Some(failed.clone());
    Answer::Later(Pending {
        response: Box::pin(miss(
            context.clone(),
            request,
            admitted,
            key,
            looked,
            failed,
        )),
        interim,
        upstream,
    })
}

async fn miss(
    context: Rc<Context>,
    request: Request,
    admitted: Admitted,
    key: KeyHash,
    first: Lookup,
    failed: Rc<UpstreamTimings>,
) -> Result<Response, Fault> {
    let (context, failed) = (&context, &*failed);
    let (mut request, mut looked) = (request, first);
    let (mut left, mut recalls): (Option<LeaderResult>, _) = (None, true);
    let (mut fwd, mut broken) = (Fwd::Miss, false);
    for _ in 0..LOOKUPS_MAX {
        if recalls && let Lookup::Recalled(_) | Lookup::Missing { on_disk: true, .. } = looked {
            looked = recall::recalled(context, &request, &admitted, key, looked).await;
        }
        if admitted.only_if_cached && !is_stored(&request, &looked) {
            return Ok(respond::not_cached());
        }
        if let Lookup::Missing { .. } | Lookup::Stale(_) = looked {
            looked = lookup::look_up_to_fetch(context, &request, &admitted, key);
        }
        let (target, why) = match looked {
            Lookup::Pass(status) => return passed(context, request, status, failed).await,
            Lookup::Missing { .. } | Lookup::Stale(_) => {
                return passed(context, request, no_room(), failed).await;
            }
            Lookup::Recalled(object) => {
                looked = recall::look_up_again(context, &request, &admitted, key, &object).await;
                continue;
            }
            Lookup::Stored(found) => stored(context, &request, found),
            Lookup::InFlight(joined) => joined.into_parts(RideReason::InFlight),
            Lookup::New(joined) => joined.into_parts(RideReason::New),
        };
        // If stored bytes of an object can't be read, volumes are not searched for the object
        // again.
        recalls &= !matches!(why, RideReason::Stored(_));
        request = match ride(context, request, &admitted, key, target, why).await {
            RideResult::Answered(result) => return completed(result, left, why.fwd()),
            RideResult::Failed(fault, by) => {
                by.write_failed(failed);
                return Err(fault.after(why.fwd()));
            }
            RideResult::Forward(request, status) => {
                return passed(context, request, status, failed).await;
            }
            RideResult::Stored(request, found, by) => {
                left = Some(by);
                looked = Lookup::Stored(found);
                request
            }
            RideResult::LookUpAgain(request, again, fault) => {
                looked = look_up_again(context, &request, &admitted, key);
                if let Some(fault) = fault
                    && std::mem::replace(&mut broken, true)
                    && !is_served_stale(&looked)
                {
                    return Err(fault.after(again));
                }
                fwd = again;
                request
            }
        };
    }
    passed(context, request, parted(fwd), failed).await
}

/// Splits a stored response of which some wanted bytes may be missing into the object to ride and the reason.
fn stored(context: &Context, request: &Request, found: Found) -> (Target, RideReason) {
    references::partial(context, &request.head, &found);
    let reason = RideReason::Stored(found.freshness);
    ((found.object, found.table_key, None), reason)
}

/// Completes the result of a ride with the data of this request's earlier fetch, if there was one.
fn completed(
    result: Result<Response, Fault>,
    by: Option<LeaderResult>,
    fwd: Fwd,
) -> Result<Response, Fault> {
    let result = result.map_err(|fault| fault.after(fwd));
    match by {
        Some(by) => result.map(|response| by.complete(response)),
        None => result,
    }
}

/// Passes a request to the origin. If that fails, the data of the exchange is written to `failed`.
async fn passed(
    context: &Rc<Context>,
    request: Request,
    status: CacheStatus,
    failed: &UpstreamTimings,
) -> Result<Response, Fault> {
    let answer = pass::pass(context, request, status);
    let upstream = answer.upstream();
    let result = answer.wait().await;
    if let (Err(_), Some(upstream)) = (&result, upstream) {
        failed.take_over(&upstream);
    }
    result
}

/// Whether the table has a stale response that may be served.
fn is_served_stale(looked: &Lookup) -> bool {
    matches!(looked, Lookup::Stored(found) if matches!(found.freshness, Freshness::Stale { .. }))
}

fn look_up_again(
    context: &Rc<Context>,
    request: &Request,
    admitted: &Admitted,
    key: KeyHash,
) -> Lookup {
    let now_ms = context.worker.clock.unix_ms();
    lookup::look_up(context, request, admitted, key, now_ms, None)
}

/// Rides an object up to the response: waits for the head, then until the first wanted byte is
/// stored or being fetched, and makes the response.
pub(in crate::cache) async fn ride(
    context: &Rc<Context>,
    request: Request,
    admitted: &Admitted,
    key: KeyHash,
    (object, table_key, known): (Arc<Object>, TableKey, Option<Box<Known>>),
    why: RideReason,
) -> RideResult {
    let object = &object;
    let guess = want::guess(&request.head);
    let hit = matches!(why, RideReason::Stored(_)) && is_stored_in(&request, object);
    let purged_upto = match why {
        RideReason::InFlight(_) => context.store.purged_upto(),
        RideReason::Stored(_) | RideReason::New(_) => 0,
    };
    let demand = Demand::new(context, request, guess.clone(), table_key, known);
    let (mut ride, met) = Ride::to_head(object, guess, demand).await;
    let without_response = |ride, met, table_key| {
        ride_result::without_response(context, ride, met, admitted, table_key, why)
    };
    let head = match met {
        HeadResult::Head(head) => head,
        met => return without_response(ride, met, table_key),
    };
    let Some(demand) = ride.demand() else {
        return RideResult::Answered(Err(Reason::FetchAbandoned.into()));
    };
    let request = &demand.leader.request.head;
    let purged = purged_upto > 0 && context.store.is_purged(key.0, object, &head, purged_upto);
    if admitted.authorized && !head.authorized {
        // The object was fetched without credentials, so it says nothing about requests that have
        // some.
        return ride_result::forward_separately(ride, Fwd::Bypass, Reason::Authorization);
    }
    let (codings, rules) = (demand.leader.codings, &context.rules);
    if purged {
        return without_response(ride, HeadResult::Ended(Phase::Retired), table_key);
    }
    if !decide::selects(key, &head, &request.fields, codings, rules) {
        return without_response(ride, HeadResult::OtherVariant, table_key);
    }
    // The object has moved to the variant that the Vary of its response selects.
    demand.leader.table_key.variant = head.vary.as_ref().map_or(0, |vary| vary.variant);
    let table_key = demand.leader.table_key;
    let choice = coded::choose(context, request, admitted, (object, &head), table_key);
    let mut wanted = want::judge(request, &head, object.content_length(&head));
    why.note_fetch(context, Used::new(object, &head, table_key), &wanted);
    match choice {
        Choice::Identity => {}
        Choice::Varying(_) => wanted = for_several_codings(wanted, &request.fields),
        // The encoded content is in memory even if the object's own bytes are not.
        Choice::Coded(_) => {
            return RideResult::Answered(Ok(answer(
                context, ride, &head, wanted, true, why, choice,
            )));
        }
    }
    if !head.joinable && !wanted.is_arriving(object) && !is_cut(&ride, &wanted) {
        // Bytes of other responses can't be added to the object, and its only flight does not fetch
        // all bytes that this request wants.
        return without_response(ride, HeadResult::Replace, table_key);
    }
    if let Some(first) = wanted.first() {
        match ride.start(first).await {
            HeadResult::Head(_) => read_ahead(context, &mut ride, &head),
            met => return without_response(ride, met, table_key),
        }
    }
    RideResult::Answered(Ok(answer(context, ride, &head, wanted, hit, why, choice)))
}

/// Whether the body of this request's own fetch broke off after its first wanted bytes. The client
/// gets these bytes and then a cut body, as it would if it had begun to read before the end: whether
/// it had is a race.
fn is_cut(ride: &Ride, wanted: &Wanted) -> bool {
    let object = ride.object();
    ride.launched()
        && !object.in_flight()
        && object.failure().is_some()
        && wanted.begins_in_memory(object)
}

/// Whether the lookup found all bytes that a request wants.
fn is_stored(request: &Request, looked: &Lookup) -> bool {
    match looked {
        Lookup::Stored(found) => is_stored_in(request, &found.object),
        _ => false,
    }
}

/// Makes the response of a ride whose first byte is stored or being fetched.
fn answer(
    context: &Rc<Context>,
    mut ride: Ride,
    head: &Head,
    wanted: Wanted,
    hit: bool,
    why: RideReason,
    choice: Choice,
) -> Response {
    let now_ms = context.worker.clock.unix_ms();
    let leader_result = ride.demand().map(|demand| demand.leader.result.clone());
    let status = match why {
        RideReason::Stored(
            freshness @ (Freshness::Confirmed { .. } | Freshness::OnError { .. }),
        ) => freshness.status(head, now_ms),
        RideReason::Stored(freshness) if hit => freshness.status(head, now_ms),
        _ => {
            let mut status = CacheStatus::fwd(why.fwd());
            status.collapsed = !ride.launched();
            status.stored = true;
            // The status of this request's own fetch comes from `LeaderResult::complete`.
            status.fwd_status = (!ride.launched()).then_some(head.status);
            status
        }
    };
    let mut answering = respond::answering(context, head, status, now_ms);
    let coded = match choice {
        Choice::Identity => None,
        Choice::Varying(fields) => {
            answering.varying = Some(fields);
            None
        }
        Choice::Coded(encoded) => ride
            .demand()
            .map(|demand| respond::coded(&answering, &demand.leader.request.head, &encoded)),
    };
    let response = coded
        .or_else(|| respond::bare(&answering, ride.object(), &wanted))
        .unwrap_or_else(|| respond::content(&answering, ride, wanted));
    match leader_result {
        Some(leader_result) => leader_result.complete(response),
        None => response,
    }
}

/// Fetches the rest of an object in the background while its response is sent, if the configuration
/// requires it.
fn read_ahead(context: &Rc<Context>, ride: &mut Ride, head: &Head) {
    let whole = context.options.fill.read_ahead == ReadAhead::Whole;
    let fits = head
        .length
        .is_some_and(|length| length <= context.object_max);
    if whole && head.joinable && fits {
        read_ahead::read(context, ride);
    }
}

fn parted(fwd: Fwd) -> CacheStatus {
    CacheStatus::fwd(fwd).because(Reason::Parted)
}

fn no_room() -> CacheStatus {
    CacheStatus::fwd(Fwd::Miss).because(Reason::NoRoom)
}
