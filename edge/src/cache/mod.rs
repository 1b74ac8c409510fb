//! The cache: decide, fly, serve.
//!
//! `Cache::handle` is the spine: may this request use the cache; look it up; answer from what is
//! stored, or ride the object, whose missing bytes are fetched as the fill policy says.

mod account;
mod adopt;
mod ahead;
mod decide;
mod filler;
mod flight;
mod handover;
mod keys;
mod launch;
mod look;
mod lore;
mod memo;
mod pass;
pub mod purge;
mod ride;
pub mod rules;
mod serve;
mod validate;

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use crate::evict;
use crate::fill::{self, ReadAhead};
use crate::handler::{Answer, Body, Cause, Exchange, Fault, Handler, Pending, Request, Response};
use crate::http::key::KeyHash;
use crate::http::{CacheStatus, Fwd, Method};
use crate::store::{Failure, Head, Object, Phase, Place, Standing, Store};
use crate::sys::{Clock, Random};
use crate::telemetry::Counters;
pub use account::Accounts;
use decide::asks::Asks;
use decide::want::{self, Wanted};
use filler::Filler;
use handover::Handover;
use look::{Found, How, Looked};
use memo::Memo;
use pass::forwarded;
use ride::{Met, Ride};
pub use rules::Rules;
use serve::Answering;

/// `[cache.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Bytes of the memory tier, heads and bookkeeping included.
    pub memory: u64,
    /// What is dropped first.
    pub evict: evict::Kind,
    /// How missing bytes are fetched.
    pub fill: fill::Options,
    /// Bytes fetched on behalf of one client and not sent to it, at most; `u64::MAX`: no limit.
    pub client_budget: u64,
    /// Largest object kept in memory, bytes; 0: a quarter of `memory`.
    pub object: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory: 256 << 20,
            evict: evict::Kind::default(),
            fill: fill::Options::default(),
            client_budget: 64 << 20,
            object: 0,
        }
    }
}

/// How often a request may look again because what it rode was not for it, or is no more.
const LOOKS_MAX: usize = 6;

/// One worker's end of a cache in front of an origin.
#[derive(Clone)]
pub struct Cache(Rc<Parts>);

struct Parts {
    options: Options,
    rules: Rules,
    /// Keys are made of the URL just as it is.
    plain_keys: bool,
    store: Arc<Store>,
    memo: Memo,
    fill: Box<dyn fill::Policy + Send + Sync>,
    accounts: Arc<Accounts>,
    ahead: ahead::Readers,
    origin: Rc<dyn Handler>,
    clock: Clock,
    random: Random,
    counters: Arc<Counters>,
}

/// Why a request rides an object.
#[derive(Clone, Copy)]
enum Why {
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
enum Rode {
    /// With an answer, or the flight's failure.
    Answered(Result<Response, Fault>),
    /// This request goes forward on its own.
    Alone(Request, CacheStatus),
    /// What it rode is not for it: look again.
    Parted(Request),
    /// What was to be confirmed serves it. With the exchange that said so.
    Stands(Request, Found, Option<Rc<Exchange>>),
}

impl Handler for Cache {
    fn handle(&self, mut request: Request) -> Answer {
        let rules = &self.0.rules;
        let asks = match decide::asks::admit(&request.head, request.body.is_empty(), rules) {
            Ok(asks) => asks,
            Err(_) if purge::is_purge(&request.head) => {
                return Answer::Ready(Ok(self.purge_for(&request)));
            }
            Err(status) => return self.pass(request, status),
        };
        let key = self.key(&request);
        let now_ms = self.0.clock.unix_ms();
        let looked = self.look(&request, &asks, key, now_ms, None);
        if let Looked::Stored(found) = &looked {
            if let How::Stale { behind: true, .. } = found.how {
                self.revalidate_behind(&request, found);
            }
            if let Some(response) = self.hit(&mut request, &asks, found, now_ms) {
                return Answer::Ready(Ok(response));
            }
        }
        if asks.only_if_cached() {
            return Answer::Ready(Ok(not_cached()));
        }
        self.fetch(request, asks, key, looked)
    }
}

impl Cache {
    /// A worker's end of `store`, in front of `origin`, for a route with these rules. Store and
    /// accounts are those of all workers.
    pub fn new(
        (options, rules): (Options, Rules),
        store: Arc<Store>,
        accounts: Arc<Accounts>,
        origin: Rc<dyn Handler>,
        clock: Clock,
        random: Random,
        counters: Arc<Counters>,
    ) -> Cache {
        Cache(Rc::new(Parts {
            memo: Memo::new(),
            fill: fill::build(&options.fill),
            accounts,
            ahead: ahead::Readers::default(),
            options,
            plain_keys: rules.key.is_plain(),
            rules,
            store,
            origin,
            clock,
            random,
            counters,
        }))
    }

    /// Answers from a stored object whose wanted bytes are all there; `None` if some are not.
    #[inline]
    fn hit(
        &self,
        request: &mut Request,
        asks: &Asks,
        found: &Found,
        now_ms: u64,
    ) -> Option<Response> {
        let Found {
            object,
            head,
            place,
            how,
        } = found;
        let answering = self.answering(head, how.status(head, now_ms), now_ms);
        if request.head.method == Method::Get
            && !asks.less
            && let Some(response) = serve::small(&answering, object)
        {
            return Some(response);
        }
        let length = head.length.or_else(|| object.length());
        let wanted = want::judge(&request.head, head, length);
        if let Some(response) = serve::bare(&answering, object, &wanted) {
            return Some(response);
        }
        if let Some(response) = serve::piece(&answering, object, &wanted) {
            self.note_piece(request, object, *place, &wanted);
            return Some(response);
        }
        if !wanted.is_there(object) {
            return None;
        }
        let ride = match object.is_sparse() {
            false => {
                let length = head.length.or_else(|| object.length());
                self.settle(request, wanted.bytes(length));
                Ride::complete(object)
            }
            true => {
                // Its blocks may be evicted one by one, also while they are read.
                let first = wanted.first().unwrap_or(0..fill::OPEN);
                let request = Request {
                    head: std::mem::take(&mut request.head),
                    body: Body::Empty,
                    peer: request.peer,
                    interim: None,
                };
                let mut ride = Ride::filling(object, first, self.filler(request, *place));
                ride.begin();
                if self.0.options.fill.read_ahead != ReadAhead::None {
                    ride.look_ahead();
                }
                ride
            }
        };
        Some(serve::content(&answering, ride, wanted))
    }

    /// A part of a block that may have been fetched for this very client was of use, and is sent.
    fn note_piece(&self, request: &Request, object: &Arc<Object>, place: Place, wanted: &Wanted) {
        let Some(range) = wanted.first() else {
            return;
        };
        self.settle(request, range.end - range.start);
        if object.is_sparse() {
            self.0.store.touch_part(place, object, range.start);
        }
    }

    /// So much of what is stored is sent to this client.
    fn settle(&self, request: &Request, bytes: u64) {
        let client = request.peer.address.ip();
        self.0.accounts.settle(client, bytes);
    }

    /// Everything but a hit: launch or ride or pass, later.
    fn fetch(&self, request: Request, asks: Asks, key: KeyHash, looked: Looked) -> Answer {
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
        let mut exchange = None;
        for _ in 0..LOOKS_MAX {
            if let Looked::Missing = looked {
                looked = self.launch(&request, &asks, key);
            }
            let (object, place, why) = match looked {
                Looked::Pass(status) => return self.pass(request, status).wait().await,
                Looked::Missing => return self.pass(request, no_room()).wait().await,
                Looked::Stored(found) => (found.object, found.place, Why::Stored(found.how)),
                Looked::Flying(object, place, fwd) => (object, place, Why::Flying(fwd)),
                Looked::New(object, place, fwd) => (object, place, Why::New(fwd)),
            };
            request = match self.ride(request, &asks, key, &object, place, why).await {
                Rode::Answered(result) => {
                    return result.map(|mut response| {
                        response.exchange = response.exchange.or(exchange);
                        response
                    });
                }
                Rode::Alone(request, status) => return self.pass(request, status).wait().await,
                Rode::Stands(request, found, by) => {
                    exchange = by.or(exchange);
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
    fn filler(&self, request: Request, place: Place) -> Filler {
        let lore = self.0.store.enter(place.primary, |locked| locked.lore());
        let codings = self.codings(&request, &lore, self.0.clock.unix_ms());
        Filler::new(self.clone(), request, place, codings, lore)
    }

    /// Rides an object to the response: waits for its head and for the first wanted byte to be on
    /// its way, then answers.
    async fn ride(
        &self,
        request: Request,
        asks: &Asks,
        key: KeyHash,
        object: &Arc<Object>,
        place: Place,
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
        if purged || !decide::selects(key, &head, &request.fields, filler.codings) {
            return self.unmet(ride, Met::Gone(Phase::Retired), asks, place, why);
        }
        // Under the Vary that it brought it was filed anew.
        filler.place.variant = head.vary.as_ref().map_or(0, |vary| vary.variant);
        let place = filler.place;
        let wanted = want::judge(request, &head, head.length.or_else(|| object.length()));
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
        Rode::Answered(Ok(self.answer(ride, &head, wanted, hit, why)))
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
    fn answer(&self, mut ride: Ride, head: &Head, wanted: Wanted, hit: bool, why: Why) -> Response {
        let now_ms = self.0.clock.unix_ms();
        if wanted.first().is_some() {
            ride.begin();
            ride.look_ahead();
            self.read_ahead(&mut ride, head);
        }
        let handover = ride.filler().map(|filler| filler.handover.clone());
        let withheld = handover
            .as_ref()
            .map(Handover::withheld)
            .unwrap_or_default();
        let exchange = handover.and_then(|handover| handover.exchange());
        let status = match why {
            Why::Stored(how @ How::Confirmed { .. }) => how.status(head, now_ms),
            Why::Stored(how) if hit => how.status(head, now_ms),
            _ => {
                let answered = exchange.as_ref().and_then(|exchange| exchange.status.get());
                let mut status = CacheStatus::fwd(why.fwd());
                status.collapsed = !ride.launched();
                status.stored = true;
                status.fwd_status = Some(answered.unwrap_or(head.status));
                status
            }
        };
        let answering = self.answering(head, status, now_ms);
        let mut response = match serve::bare(&answering, ride.object(), &wanted) {
            Some(response) => response,
            None => serve::content(&answering, ride, wanted),
        };
        response.exchange = exchange;
        for (name, value) in withheld.iter() {
            response.fields.append_bytes(name, value);
        }
        response
    }

    /// What becomes of a request whose ride ended before a response.
    fn unmet(&self, ride: Ride, met: Met, asks: &Asks, place: Place, why: Why) -> Rode {
        let object = ride.object().clone();
        let launched = ride.launched();
        let Some((request, handover)) = ride.into_request() else {
            return Rode::Answered(Err(Cause::FetchAbandoned.into()));
        };
        match met {
            Met::Head(_) | Met::Gone(Phase::Retired | Phase::Open(_) | Phase::Awaiting) => {
                Rode::Parted(request)
            }
            Met::Gone(Phase::Stands {
                standing,
                confirmed,
            }) => {
                let how = match confirmed {
                    false => validate::IN_PLACE,
                    true => How::Confirmed {
                        fwd: why.fwd(),
                        collapsed: !launched,
                    },
                };
                Rode::Stands(request, found_in(standing, place, how), handover.exchange())
            }
            Met::Gone(Phase::Failed(failure)) => match self.stand_in(&object, asks, place) {
                Some(found) => Rode::Stands(request, found, handover.exchange()),
                None => Rode::Answered(Err(fault_of(&failure))),
            },
            Met::Gone(Phase::Refused { word, until_ms }) => {
                if until_ms == 0
                    && let Some(found) = self.stand_in(&object, asks, place)
                {
                    return Rode::Stands(request, found, handover.exchange());
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
            Met::Failed(fault) => Rode::Answered(Err(fault)),
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

    fn answering<'a>(&'a self, head: &'a Head, status: CacheStatus, now_ms: u64) -> Answering<'a> {
        Answering {
            head,
            status,
            now_ms,
            random: &self.0.random,
        }
    }
}

fn no_room() -> CacheStatus {
    CacheStatus::fwd(Fwd::Miss).because("no-room")
}

/// The answer to who wants none from the origin, where none is stored (RFC 9111 5.2.1.7).
fn not_cached() -> Response {
    let mut response = Response::new(504);
    response.cache = Some(CacheStatus::fwd(Fwd::Miss).because("only-if-cached"));
    response.fields.append("content-type", "text/plain");
    response.body = Body::Bytes(Bytes::from_static(b"504 nothing usable is stored\n"));
    response
}

/// What a fetch was to confirm, with where it stands now.
fn found_in(standing: Standing, place: Place, how: How) -> Found {
    let vary = standing.head.vary.as_ref();
    Found {
        place: Place {
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
        200 => !want::asks_for_less(&request.head.fields),
        206 | 304 | 416 => false,
        _ => true,
    }
}

/// The fault that a flight put into the store, got out again.
fn fault_of(failure: &Failure) -> Fault {
    failure
        .downcast_ref::<Fault>()
        .copied()
        .unwrap_or_else(|| Cause::FetchAbandoned.into())
}
