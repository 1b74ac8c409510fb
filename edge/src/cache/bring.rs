//! Everything but a hit: a request launches a fetch, or rides one, or goes on alone.

use std::sync::Arc;

use super::decide::asks::Asks;
use super::decide::want::{self, OfObject};
use super::filler::Filler;
use super::handover::Handover;
use super::look::{Found, How, Looked};
use super::pass::forwarded;
use super::ride::{Met, Ride};
use super::{Cache, ahead, decide, fault_of, flight, not_cached, serve};
use crate::fill::ReadAhead;
use crate::handler::{Answer, Cause, Choice, Fault, Pending, Request, Response};
use crate::http::key::KeyHash;
use crate::http::wanted::{Wanted, asks_for_less, of_several_codings};
use crate::http::{CacheStatus, Fwd};
use crate::store::{Head, Object, Phase, Standing, TableKey};

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
    Stands(Request, Found, Handover),
}

impl Cache {
    /// Everything but a hit: launch or ride or pass, later.
    pub(super) fn fetch(
        &self,
        request: Request,
        asks: Asks,
        key: KeyHash,
        looked: Looked,
    ) -> Answer {
        if let Looked::Pass(status) = looked {
            return self.pass(request, status);
        }
        let mut request = request;
        let interim = request.interim();
        Answer::Later(Pending {
            response: Box::pin(self.clone().bring(request, asks, key, looked)),
            interim: Some(interim),
        })
    }

    async fn bring(
        self,
        request: Request,
        asks: Asks,
        key: KeyHash,
        first: Looked,
    ) -> Result<Response, Fault> {
        let (mut request, mut looked) = (request, first);
        let mut left: Option<Handover> = None;
        let mut recalls = true;
        for _ in 0..LOOKS_MAX {
            if recalls {
                looked = self.recalled(&request, &asks, key, looked).await;
            }
            if asks.only_if_cached() && !self.is_stored(&request, &looked) {
                return Ok(not_cached());
            }
            if let Looked::Missing | Looked::Stale = looked {
                looked = self.launch(&request, &asks, key);
            }
            let (object, place, why) = match looked {
                Looked::Pass(status) => return self.pass(request, status).wait().await,
                Looked::Missing | Looked::Stale => {
                    return self.pass(request, no_room()).wait().await;
                }
                Looked::Recalled(object) => {
                    looked = self.look_behind(&request, &asks, key, &object).await;
                    continue;
                }
                Looked::Stored(found) => (found.object, found.place, Why::Stored(found.how)),
                Looked::Flying(object, place, fwd) => (object, place, Why::Flying(fwd)),
                Looked::New(object, place, fwd) => (object, place, Why::New(fwd)),
            };
            // What is stored and can't be had is not sought on volumes again.
            recalls &= !matches!(why, Why::Stored(_));
            request = match self.ride(request, &asks, key, &object, place, why).await {
                Rode::Answered(result) => {
                    return match left {
                        Some(left) => result.map(|response| left.complete(response)),
                        None => result,
                    };
                }
                Rode::Alone(request, status) => return self.pass(request, status).wait().await,
                Rode::Stands(request, found, by) => {
                    left = Some(by);
                    looked = Looked::Stored(found);
                    request
                }
                Rode::Parted(request) => {
                    looked = self.look(&request, &asks, key, self.0.clock.unix_ms(), None);
                    request
                }
            };
        }
        let parted = CacheStatus::fwd(Fwd::VaryMiss).because("parted");
        self.pass(request, parted).wait().await
    }

    /// What has missing bytes fetched on behalf of a request.
    pub(super) fn filler(&self, request: Request, place: TableKey) -> Filler {
        let lore = self.0.store.enter(place.primary, |locked| locked.lore());
        let codings = self.codings(&request, &lore, self.0.clock.unix_ms());
        Filler::new(self.clone(), request, place, codings, lore)
    }

    /// Rides an object to the response: waits for its head and for the first wanted byte to be on
    /// its way, then answers.
    pub(super) async fn ride(
        &self,
        request: Request,
        asks: &Asks,
        key: KeyHash,
        object: &Arc<Object>,
        place: TableKey,
        why: Why,
    ) -> Rode {
        let guess = want::guess(&request.head);
        let hit = matches!(why, Why::Stored(_)) && self.is_there(&request, object);
        let purged_upto = self.0.store.purged_upto();
        let mut ride = Ride::filling(object, guess, self.filler(request, place));
        let head = match ride.head().await {
            Met::Head(head) => head,
            met => return self.unmet(ride, met, asks, place, why),
        };
        let Some(filler) = ride.filler() else {
            return Rode::Answered(Err(Cause::FetchAbandoned.into()));
        };
        let request = &filler.request.head;
        let purged = matches!(why, Why::Flying(_))
            && self.0.store.is_purged(key.0, object, &head, purged_upto);
        if asks.authorized && !head.authorized {
            // It was asked for without credentials, and says nothing about those who have some.
            return alone(ride, Fwd::Bypass, "authorization");
        }
        let normal = self.0.rules.normal(filler.codings);
        if purged || !decide::selects(key, &head, &request.fields, normal) {
            return self.unmet(ride, Met::Gone(Phase::Retired), asks, place, why);
        }
        // Under the Vary that it brought it was filed anew.
        filler.place.variant = head.vary.as_ref().map_or(0, |vary| vary.variant);
        let place = filler.place;
        let mut wanted = want::judge(request, &head, head.length.or_else(|| object.length()));
        let choice = self.choose(request, asks, (object, &head), place);
        match choice {
            Choice::Plain => {}
            Choice::Varying(_) => wanted = of_several_codings(wanted, &request.fields),
            // That is there, whatever there is of the object itself.
            Choice::Coded(_) => {
                return Rode::Answered(Ok(self.answer(ride, &head, wanted, true, why, choice)));
            }
        }
        if !head.joinable && !wanted.is_coming(object) {
            // It has one flight, and that does not bring all that this request wants.
            return self.unmet(ride, Met::Replace, asks, place, why);
        }
        if let Some(first) = wanted.first() {
            ride.limit(first);
            match ride.first_byte().await {
                Met::Head(_) => {}
                met => return self.unmet(ride, met, asks, place, why),
            }
        }
        Rode::Answered(Ok(self.answer(ride, &head, wanted, hit, why, choice)))
    }

    /// Whether looking up found all that a request wants.
    fn is_stored(&self, request: &Request, looked: &Looked) -> bool {
        match looked {
            Looked::Stored(found) => self.is_there(request, &found.object),
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
            ride.look_ahead();
            self.read_ahead(&mut ride, head);
        }
        let handover = ride.filler().map(|filler| filler.handover.clone());
        let exchange = handover.as_ref().and_then(Handover::exchange);
        let status = match why {
            Why::Stored(how @ (How::Confirmed { .. } | How::InPlace { .. })) => {
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
            Choice::Plain => None,
            Choice::Varying(fields) => {
                answering.varying = Some(fields);
                None
            }
            Choice::Coded(encoded) => ride
                .filler()
                .map(|filler| serve::coded(&answering, &filler.request.head, &encoded)),
        };
        let response = coded
            .or_else(|| serve::bare(&answering, ride.object(), &wanted))
            .unwrap_or_else(|| serve::content(&answering, ride, wanted));
        match handover {
            Some(handover) => handover.complete(response),
            None => response,
        }
    }

    /// What becomes of a request whose ride ended before a response.
    pub(super) fn unmet(
        &self,
        ride: Ride,
        met: Met,
        asks: &Asks,
        place: TableKey,
        why: Why,
    ) -> Rode {
        let object = ride.object().clone();
        let launched = ride.launched();
        let Some((request, handover)) = ride.into_request() else {
            return Rode::Answered(Err(Cause::FetchAbandoned.into()));
        };
        let in_place = How::InPlace {
            fwd: why.fwd(),
            collapsed: !launched,
        };
        match met {
            Met::Head(_) | Met::Gone(Phase::Retired | Phase::Open(_) | Phase::Awaiting) => {
                Rode::Parted(request)
            }
            Met::Gone(Phase::Stands {
                standing,
                confirmed,
            }) => {
                let (fwd, collapsed) = (why.fwd(), !launched);
                let how = match confirmed {
                    false => in_place,
                    true => How::Confirmed { fwd, collapsed },
                };
                Rode::Stands(request, found_in(standing, place, how), handover)
            }
            Met::Gone(Phase::Failed(failure)) => {
                match self.stand_in(&object, asks, place, in_place) {
                    Some(found) => Rode::Stands(request, found, handover),
                    None => Rode::Answered(Err(fault_of(&failure))),
                }
            }
            Met::Gone(Phase::Refused { word, .. }) => {
                if let Some(found) = self.stand_in(&object, asks, place, in_place) {
                    return Rode::Stands(request, found, handover);
                }
                let status = CacheStatus::fwd(why.fwd()).because(word);
                match handover.take() {
                    Some(response) if may_have(&request, &response) => {
                        Rode::Answered(Ok(forwarded(response, status)))
                    }
                    // That was about another's credentials.
                    _ if word == "authorization" && !asks.authorized => Rode::Parted(request),
                    _ => Rode::Alone(request, status),
                }
            }
            Met::Forward(word) => {
                if matches!(why, Why::New(_)) && !launched && !object.in_flight() {
                    // Nobody flies for it: it is not to be waited for.
                    self.0.store.supersede(place, &object, None);
                }
                Rode::Alone(request, CacheStatus::fwd(why.fwd()).because(word))
            }
            Met::Replace => {
                let now_ms = self.0.clock.unix_ms();
                self.0.store.enter(place.primary, |locked| {
                    let mut lore = locked.lore();
                    lore.plain_until_ms = now_ms + flight::PLAIN_MS;
                    locked.set_lore(lore);
                });
                self.0.store.supersede(place, &object, None);
                Rode::Parted(request)
            }
            Met::Failed(fault) => match self.stand_in(&object, asks, place, in_place) {
                Some(found) => Rode::Stands(request, found, handover),
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
            ahead::read(self, ride);
        }
    }
}

/// A request that leaves its ride, to go on by itself.
fn alone(ride: Ride, fwd: Fwd, word: &'static str) -> Rode {
    match ride.into_request() {
        Some((request, _)) => Rode::Alone(request, CacheStatus::fwd(fwd).because(word)),
        None => Rode::Answered(Err(Cause::FetchAbandoned.into())),
    }
}

fn no_room() -> CacheStatus {
    CacheStatus::fwd(Fwd::Miss).because("no-room")
}

/// What a fetch was to confirm, with where it stands now.
pub(super) fn found_in(standing: Standing, place: TableKey, how: How) -> Found {
    let vary = standing.head.vary.as_ref();
    Found {
        place: TableKey {
            variant: vary.map_or(0, |vary| vary.variant),
            ..place
        },
        object: standing.object,
        head: standing.head,
        how,
    }
}

/// Whether the one who launched a flight may have its response, which can't be shared. It was
/// asked for otherwise than this request asks: a range or a condition is for the origin to judge.
fn may_have(request: &Request, response: &Response) -> bool {
    match response.status {
        200 => !asks_for_less(&request.head.fields),
        206 | 304 | 416 => false,
        _ => true,
    }
}
