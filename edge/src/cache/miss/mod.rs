//! Misses: every request that is not a hit launches a fetch, rides one, or is passed to the origin.

pub(in crate::cache) mod background;
pub(in crate::cache) mod demand;
mod read_ahead;
mod recall;
mod retry;
pub(in crate::cache) mod ride;
mod unmet;

use std::rc::Rc;
use std::sync::Arc;

use self::demand::Demand;
use self::ride::{Met, Ride};
use self::unmet::{Rode, Why};

use crate::cache::context::Context;
use crate::cache::decide::admission::Admitted;
use crate::cache::decide::want::{self, OfObject};
use crate::cache::fetch::leader_result::LeaderResult;
use crate::cache::hit::{coded, respond};
use crate::cache::lookup::{self, How, Known, Lookup};
use crate::cache::{decide, pass};
use crate::fill::ReadAhead;
use crate::handler::{Answer, Choice, Fault, Pending, Request, Response};
use crate::http::key::KeyHash;
use crate::http::wanted::{Wanted, for_several_codings};
use crate::http::{CacheStatus, Fwd};
use crate::reason::Reason;
use crate::store::{Head, Object, Phase, TableKey};

/// Number of times that a request may be looked up again because its object could not be used for
/// it.
const LOOKS_MAX: usize = 6;

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
    Answer::Later(Pending {
        response: Box::pin(miss(context.clone(), request, admitted, key, looked)),
        interim: Some(interim),
    })
}

async fn miss(
    context: Rc<Context>,
    request: Request,
    admitted: Admitted,
    key: KeyHash,
    first: Lookup,
) -> Result<Response, Fault> {
    let context = &context;
    let (mut request, mut looked) = (request, first);
    let mut left: Option<LeaderResult> = None;
    let mut recalls = true;
    for _ in 0..LOOKS_MAX {
        if recalls {
            looked = recall::recalled(context, &request, &admitted, key, looked).await;
        }
        if admitted.only_if_cached && !is_stored(&request, &looked) {
            return Ok(respond::not_cached());
        }
        if let Lookup::Missing | Lookup::Stale = looked {
            looked = lookup::look_up_to_fetch(context, &request, &admitted, key);
        }
        let (target, why) = match looked {
            Lookup::Pass(status) => return pass::pass(context, request, status).wait().await,
            Lookup::Missing | Lookup::Stale => {
                return pass::pass(context, request, no_room()).wait().await;
            }
            Lookup::Recalled(object) => {
                looked = recall::look_up_again(context, &request, &admitted, key, &object).await;
                continue;
            }
            Lookup::Stored(found) => ((found.object, found.place, None), Why::Stored(found.how)),
            Lookup::Flying(joined) => joined.into_parts(Why::Flying),
            Lookup::New(joined) => joined.into_parts(Why::New),
        };
        // If stored bytes of an object can't be read, volumes are not searched for the object
        // again.
        recalls &= !matches!(why, Why::Stored(_));
        request = match ride(context, request, &admitted, key, target, why).await {
            Rode::Answered(result) => {
                return match left {
                    Some(left) => result.map(|response| left.complete(response)),
                    None => result,
                };
            }
            Rode::Alone(request, status) => {
                return pass::pass(context, request, status).wait().await;
            }
            Rode::Stored(request, found, by) => {
                left = Some(by);
                looked = Lookup::Stored(found);
                request
            }
            Rode::Parted(request) => {
                looked = lookup::look_up(
                    context,
                    &request,
                    &admitted,
                    key,
                    context.worker.clock.unix_ms(),
                    None,
                );
                request
            }
        };
    }
    let parted = CacheStatus::fwd(Fwd::VaryMiss).because(Reason::Parted);
    pass::pass(context, request, parted).wait().await
}

/// Rides an object up to the response: waits for the head, then until the first wanted byte is
/// stored or being fetched, and makes the response.
pub(in crate::cache) async fn ride(
    context: &Rc<Context>,
    request: Request,
    admitted: &Admitted,
    key: KeyHash,
    (object, place, known): (Arc<Object>, TableKey, Option<Box<Known>>),
    why: Why,
) -> Rode {
    let object = &object;
    let guess = want::guess(&request.head);
    let hit = matches!(why, Why::Stored(_)) && is_there(&request, object);
    let purged_upto = context.store.purged_upto();
    let demand = Demand::new(context, request, guess.clone(), place, known);
    let mut ride = Ride::filling(object, guess, demand);
    let head = match ride.head().await {
        Met::Head(head) => head,
        met => return unmet::unmet(context, ride, met, admitted, place, why),
    };
    let Some(demand) = ride.demand() else {
        return Rode::Answered(Err(Reason::FetchAbandoned.into()));
    };
    let request = &demand.leader.request.head;
    let purged =
        matches!(why, Why::Flying(_)) && context.store.is_purged(key.0, object, &head, purged_upto);
    if admitted.authorized && !head.authorized {
        // The object was fetched without credentials, so it says nothing about requests that have
        // some.
        return unmet::alone(ride, Fwd::Bypass, Reason::Authorization);
    }
    let (codings, rules) = (demand.leader.codings, &context.rules);
    if purged || !decide::selects(key, &head, &request.fields, codings, rules) {
        return unmet::unmet(
            context,
            ride,
            Met::Gone(Phase::Retired),
            admitted,
            place,
            why,
        );
    }
    // The object has moved to the variant that the Vary of its response selects.
    demand.leader.place.variant = head.vary.as_ref().map_or(0, |vary| vary.variant);
    let place = demand.leader.place;
    let choice = coded::choose(context, request, admitted, (object, &head), place);
    let mut wanted = want::judge(request, &head, object.content_length(&head));
    match choice {
        Choice::Identity => {}
        Choice::Varying(_) => wanted = for_several_codings(wanted, &request.fields),
        // The encoded content is in memory even if the object's own bytes are not.
        Choice::Coded(_) => {
            return Rode::Answered(Ok(answer(context, ride, &head, wanted, true, why, choice)));
        }
    }
    if !head.joinable && !wanted.is_coming(object) {
        // Bytes of other responses can't be added to the object, and its only flight does not fetch
        // all bytes that this request wants.
        return unmet::unmet(context, ride, Met::Replace, admitted, place, why);
    }
    if let Some(first) = wanted.first() {
        ride.limit(first);
        match ride.first_byte().await {
            Met::Head(_) => {}
            met => return unmet::unmet(context, ride, met, admitted, place, why),
        }
    }
    Rode::Answered(Ok(answer(context, ride, &head, wanted, hit, why, choice)))
}

/// Whether the lookup found all bytes that a request wants.
fn is_stored(request: &Request, looked: &Lookup) -> bool {
    match looked {
        Lookup::Stored(found) => is_there(request, &found.object),
        _ => false,
    }
}

/// Whether all wanted bytes of an object with a head are stored.
fn is_there(request: &Request, object: &Arc<Object>) -> bool {
    let Phase::Open(head) = object.phase() else {
        return false;
    };
    let length = object.content_length(&head);
    let wanted = want::judge(&request.head, &head, length);
    wanted.first().is_none() || wanted.is_there(object)
}

/// Makes the response of a ride whose first byte is stored or being fetched.
fn answer(
    context: &Rc<Context>,
    mut ride: Ride,
    head: &Head,
    wanted: Wanted,
    hit: bool,
    why: Why,
    choice: Choice,
) -> Response {
    let now_ms = context.worker.clock.unix_ms();
    if wanted.first().is_some() && !matches!(choice, Choice::Coded(_)) {
        ride.begin();
        ride.fetch_ahead();
        read_ahead(context, &mut ride, head);
    }
    let leader_result = ride.demand().map(|demand| demand.leader.result.clone());
    let status = match why {
        Why::Stored(how @ (How::Confirmed { .. } | How::OnError { .. })) => {
            how.status(head, now_ms)
        }
        Why::Stored(how) if hit => how.status(head, now_ms),
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
        .is_some_and(|length| length <= context.store.object_max());
    if whole && head.joinable && fits {
        read_ahead::read(context, ride);
    }
}

fn no_room() -> CacheStatus {
    CacheStatus::fwd(Fwd::Miss).because(Reason::NoRoom)
}
