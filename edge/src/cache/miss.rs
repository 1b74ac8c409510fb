//! Everything but a hit: a request launches a fetch, or rides one, or goes on alone.

use std::sync::Arc;

use super::decide::admission::Admitted;
use super::decide::want::{self, OfObject};
use super::demand::Demand;
use super::leader_result::LeaderResult;
use super::lookup::{Found, How, Lookup};
use super::pass::forwarded;
use super::ride::{Met, Ride};
use super::{Cache, decide, fault_of, flight, not_cached, read_ahead, serve};
use crate::fill::ReadAhead;
use crate::handler::{Answer, Choice, Fault, Pending, Request, Response};
use crate::http::key::KeyHash;
use crate::http::wanted::{Wanted, for_several_codings, has_condition_or_range};
use crate::http::{CacheStatus, Fwd};
use crate::reason::Reason;
use crate::store::{Head, Object, Phase, Revalidated, TableKey};

/// How often a request may look again because what it rode was not for it, or is no more.
const LOOKS_MAX: usize = 6;

/// Why a request rides an object.
#[derive(Clone, Copy)]
pub(super) enum Why {
    /// It is stored, if not all of it.
    Stored(How),
    /// Another request's flight is bringing it.
    Flying(Fwd),
    /// This request had it registered.
    New(Fwd),
}

impl Why {
    /// Why the request goes forward, if some of its bytes have to be fetched.
    fn fwd(self) -> Fwd {
        match self {
            Why::Stored(_) => Fwd::Partial,
            Why::Flying(fwd) | Why::New(fwd) => fwd,
        }
    }
}

/// How a ride came to an end before a response.
pub(super) enum Rode {
    /// With an answer, or the flight's failure.
    Answered(Result<Response, Fault>),
    /// This request goes forward on its own.
    Alone(Request, CacheStatus),
    /// What it rode is not for it: look again.
    Parted(Request),
    /// What was to be confirmed serves it. With what the fetch that was to do so left for it.
    Stored(Request, Found, LeaderResult),
}

impl Cache {
    /// Everything but a hit: launch or ride or pass, later.
    pub(super) fn fetch(
        &self,
        request: Request,
        admitted: Admitted,
        key: KeyHash,
        looked: Lookup,
    ) -> Answer {
        if let Lookup::Pass(status) = looked {
            return self.pass(request, status);
        }
        let mut request = request;
        let interim = request.interim();
        Answer::Later(Pending {
            response: Box::pin(self.clone().miss(request, admitted, key, looked)),
            interim: Some(interim),
        })
    }

    async fn miss(
        self,
        request: Request,
        admitted: Admitted,
        key: KeyHash,
        first: Lookup,
    ) -> Result<Response, Fault> {
        let (mut request, mut looked) = (request, first);
        let mut left: Option<LeaderResult> = None;
        let mut recalls = true;
        for _ in 0..LOOKS_MAX {
            if recalls {
                looked = self.recalled(&request, &admitted, key, looked).await;
            }
            if admitted.only_if_cached() && !self.is_stored(&request, &looked) {
                return Ok(not_cached());
            }
            if let Lookup::Missing | Lookup::Stale = looked {
                looked = self.launch(&request, &admitted, key);
            }
            let (object, place, why) = match looked {
                Lookup::Pass(status) => return self.pass(request, status).wait().await,
                Lookup::Missing | Lookup::Stale => {
                    return self.pass(request, no_room()).wait().await;
                }
                Lookup::Recalled(object) => {
                    looked = self.look_up_again(&request, &admitted, key, &object).await;
                    continue;
                }
                Lookup::Stored(found) => (found.object, found.place, Why::Stored(found.how)),
                Lookup::Flying(object, place, fwd) => (object, place, Why::Flying(fwd)),
                Lookup::New(object, place, fwd) => (object, place, Why::New(fwd)),
            };
            // What is stored and can't be had is not sought on volumes again.
            recalls &= !matches!(why, Why::Stored(_));
            request = match self
                .ride(request, &admitted, key, &object, place, why)
                .await
            {
                Rode::Answered(result) => {
                    return match left {
                        Some(left) => result.map(|response| left.complete(response)),
                        None => result,
                    };
                }
                Rode::Alone(request, status) => return self.pass(request, status).wait().await,
                Rode::Stored(request, found, by) => {
                    left = Some(by);
                    looked = Lookup::Stored(found);
                    request
                }
                Rode::Parted(request) => {
                    looked = self.look_up(&request, &admitted, key, self.0.clock.unix_ms(), None);
                    request
                }
            };
        }
        let parted = CacheStatus::fwd(Fwd::VaryMiss).because(Reason::Parted);
        self.pass(request, parted).wait().await
    }

    /// What has missing bytes fetched on behalf of a request.
    pub(super) fn demand(&self, request: Request, place: TableKey) -> Demand {
        let history = self.0.store.enter(place.primary, |locked| locked.history());
        let codings = self.codings(&request, &history, self.0.clock.unix_ms());
        Demand::new(self.clone(), request, place, codings, history)
    }

    /// Rides an object to the response: waits for its head and for the first wanted byte to be on
    /// its way, then answers.
    pub(super) async fn ride(
        &self,
        request: Request,
        admitted: &Admitted,
        key: KeyHash,
        object: &Arc<Object>,
        place: TableKey,
        why: Why,
    ) -> Rode {
        let guess = want::guess(&request.head);
        let hit = matches!(why, Why::Stored(_)) && self.is_there(&request, object);
        let purged_upto = self.0.store.purged_upto();
        let mut ride = Ride::filling(object, guess, self.demand(request, place));
        let head = match ride.head().await {
            Met::Head(head) => head,
            met => return self.unmet(ride, met, admitted, place, why),
        };
        let Some(demand) = ride.demand() else {
            return Rode::Answered(Err(Reason::FetchAbandoned.into()));
        };
        let request = &demand.request.head;
        let purged = matches!(why, Why::Flying(_))
            && self.0.store.is_purged(key.0, object, &head, purged_upto);
        if admitted.authorized && !head.authorized {
            // It was asked for without credentials, and says nothing about those who have some.
            return alone(ride, Fwd::Bypass, Reason::Authorization);
        }
        let normal = self.0.rules.normal(demand.codings);
        if purged || !decide::selects(key, &head, &request.fields, normal) {
            return self.unmet(ride, Met::Gone(Phase::Retired), admitted, place, why);
        }
        // Under the Vary that it brought it was filed anew.
        demand.place.variant = head.vary.as_ref().map_or(0, |vary| vary.variant);
        let place = demand.place;
        let mut wanted = want::judge(request, &head, head.length.or_else(|| object.length()));
        let choice = self.choose(request, admitted, (object, &head), place);
        match choice {
            Choice::Identity => {}
            Choice::Varying(_) => wanted = for_several_codings(wanted, &request.fields),
            // That is there, whatever there is of the object itself.
            Choice::Coded(_) => {
                return Rode::Answered(Ok(self.answer(ride, &head, wanted, true, why, choice)));
            }
        }
        if !head.joinable && !wanted.is_coming(object) {
            // It has one flight, and that does not bring all that this request wants.
            return self.unmet(ride, Met::Replace, admitted, place, why);
        }
        if let Some(first) = wanted.first() {
            ride.limit(first);
            match ride.first_byte().await {
                Met::Head(_) => {}
                met => return self.unmet(ride, met, admitted, place, why),
            }
        }
        Rode::Answered(Ok(self.answer(ride, &head, wanted, hit, why, choice)))
    }

    /// Whether looking up found all that a request wants.
    fn is_stored(&self, request: &Request, looked: &Lookup) -> bool {
        match looked {
            Lookup::Stored(found) => self.is_there(request, &found.object),
            _ => false,
        }
    }

    /// Whether all that a request wants of an object with a head is there.
    fn is_there(&self, request: &Request, object: &Arc<Object>) -> bool {
        let Phase::Open(head) = object.phase() else {
            return false;
        };
        let length = head.length.or_else(|| object.length());
        let wanted = want::judge(&request.head, &head, length);
        wanted.first().is_none() || wanted.is_there(object)
    }

    /// The response of a ride whose first byte is there or on its way.
    fn answer(
        &self,
        mut ride: Ride,
        head: &Head,
        wanted: Wanted,
        hit: bool,
        why: Why,
        choice: Choice,
    ) -> Response {
        let now_ms = self.0.clock.unix_ms();
        if wanted.first().is_some() && !matches!(choice, Choice::Coded(_)) {
            ride.begin();
            ride.fetch_ahead();
            self.read_ahead(&mut ride, head);
        }
        let leader_result = ride.demand().map(|demand| demand.leader_result.clone());
        let exchange = leader_result.as_ref().and_then(LeaderResult::exchange);
        let status = match why {
            Why::Stored(how @ (How::Confirmed { .. } | How::OnError { .. })) => {
                how.status(head, now_ms)
            }
            Why::Stored(how) if hit => how.status(head, now_ms),
            _ => {
                let answered = exchange.as_ref().and_then(|exchange| exchange.status.get());
                let mut status = CacheStatus::fwd(why.fwd());
                status.collapsed = !ride.launched();
                status.stored = true;
                // Of a fetch of its own that has no answer yet, nothing is said.
                status.fwd_status = answered.or((!ride.launched()).then_some(head.status));
                status
            }
        };
        let mut answering = self.answering(head, status, now_ms);
        let coded = match choice {
            Choice::Identity => None,
            Choice::Varying(fields) => {
                answering.varying = Some(fields);
                None
            }
            Choice::Coded(encoded) => ride
                .demand()
                .map(|demand| serve::coded(&answering, &demand.request.head, &encoded)),
        };
        let response = coded
            .or_else(|| serve::bare(&answering, ride.object(), &wanted))
            .unwrap_or_else(|| serve::content(&answering, ride, wanted));
        match leader_result {
            Some(leader_result) => leader_result.complete(response),
            None => response,
        }
    }

    /// What becomes of a request whose ride ended before a response.
    pub(super) fn unmet(
        &self,
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
                match self.serve_on_error(&object, admitted, place, on_error) {
                    Some(found) => Rode::Stored(request, found, leader_result),
                    None => Rode::Answered(Err(fault_of(&failure))),
                }
            }
            Met::Gone(Phase::Refused { reason, .. }) => {
                if let Some(found) = self.serve_on_error(&object, admitted, place, on_error) {
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
                    self.0.store.supersede(place, &object, None);
                }
                Rode::Alone(request, CacheStatus::fwd(why.fwd()).because(reason))
            }
            Met::Replace => {
                let now_ms = self.0.clock.unix_ms();
                self.0.store.enter(place.primary, |locked| {
                    let mut history = locked.history();
                    history.no_ranges_until_ms = now_ms + flight::PLAIN_MS;
                    locked.set_history(history);
                });
                self.0.store.supersede(place, &object, None);
                Rode::Parted(request)
            }
            Met::Failed(fault) => match self.serve_on_error(&object, admitted, place, on_error) {
                Some(found) => Rode::Stored(request, found, leader_result),
                None => Rode::Answered(Err(fault)),
            },
        }
    }

    /// Has the rest of an object fetched behind a response, where the configuration says so.
    fn read_ahead(&self, ride: &mut Ride, head: &Head) {
        let whole = self.0.options.fill.read_ahead == ReadAhead::Whole;
        let fits = head
            .length
            .is_some_and(|length| length <= self.0.store.object_max());
        if whole && head.joinable && fits {
            read_ahead::read(self, ride);
        }
    }
}

/// A request that leaves its ride, to go on by itself.
fn alone(ride: Ride, fwd: Fwd, reason: Reason) -> Rode {
    match ride.into_request() {
        Some((request, _)) => Rode::Alone(request, CacheStatus::fwd(fwd).because(reason)),
        None => Rode::Answered(Err(Reason::FetchAbandoned.into())),
    }
}

fn no_room() -> CacheStatus {
    CacheStatus::fwd(Fwd::Miss).because(Reason::NoRoom)
}

/// What a fetch was to confirm, with where it stands now.
pub(super) fn found_in(stored: Revalidated, place: TableKey, how: How) -> Found {
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
