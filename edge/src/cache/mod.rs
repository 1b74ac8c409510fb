//! The cache: decide, fly, serve.
//!
//! `Cache::handle` is the spine: may this request use the cache; look it up; answer from what is
//! stored, ride the flight that is bringing it, or launch one.

mod decide;
mod flight;
mod memo;
mod serve;

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use crate::evict;
use crate::fill::{self, OPEN, Plan, Situation};
use crate::handler::{
    Answer, Cause, Fault, Handler, Head as RequestHead, Pending, Request, Response,
};
use crate::http::key::{Key, KeyHash};
use crate::http::{CacheStatus, Fwd, Status, hop};
use crate::store::{
    Failure, Head, Locked, Object, Opening, Phase, Place, Reader, Seen, Store, VARIANTS_MAX,
};
use crate::sys::{Clock, Random};
use crate::telemetry::Counters;
use flight::Handover;
use memo::Memo;
use serve::Asked;

/// `[cache.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Bytes of the memory tier, heads and bookkeeping included.
    pub memory: u64,
    /// What is dropped first.
    pub evict: evict::Kind,
    /// How missing bytes are fetched.
    pub fill: fill::Kind,
    /// Freshness lifetime by status where the response gives none.
    pub valid: Vec<(Status, Duration)>,
    /// Largest object kept in memory, bytes; 0: a quarter of `memory`.
    pub object: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory: 256 << 20,
            evict: evict::Kind::default(),
            fill: fill::Kind::default(),
            valid: Vec::new(),
            object: 0,
        }
    }
}

/// How often a request may look again because Vary parted it from what it rode.
const LOOKS_MAX: usize = 4;

/// One worker's end of a cache in front of an origin.
#[derive(Clone)]
pub struct Cache(Rc<Parts>);

struct Parts {
    options: Options,
    store: Arc<Store>,
    memo: Memo,
    fill: Box<dyn fill::Policy + Send + Sync>,
    origin: Rc<dyn Handler>,
    clock: Clock,
    random: Random,
    counters: Arc<Counters>,
}

/// What looking up found.
enum Looked {
    /// A head that is fresh. Its bytes are there or on their way.
    Fresh(Arc<Object>, Arc<Head>),
    /// A flight without a head yet.
    Flying(Arc<Object>),
    /// A flight is to be launched for this object, which is in the table now.
    Launch(Arc<Object>, Place, Fwd),
    /// Nothing usable; there was no spare object to register.
    Missing,
    /// Not through the cache.
    Pass(CacheStatus),
}

impl Handler for Cache {
    fn handle(&self, request: Request) -> Answer {
        if let Err(status) = decide::admit(&request.head, request.body.is_empty()) {
            return self.pass(request, status);
        }
        let key = self.0.memo.key(request.peer.scheme, &request.head);
        let now_ms = self.0.clock.unix_ms();
        match self.look(&request, key, now_ms, None) {
            Looked::Fresh(object, head) => match self.hit(&request, &object, &head, now_ms) {
                Some(response) => Answer::Ready(Ok(response)),
                None => self.pass(request, CacheStatus::fwd(Fwd::Partial)),
            },
            looked => self.fetch(request, key, looked),
        }
    }
}

impl Cache {
    /// A worker's end of `store`, in front of `origin`.
    pub fn new(
        options: Options,
        store: Arc<Store>,
        origin: Rc<dyn Handler>,
        clock: Clock,
        random: Random,
        counters: Arc<Counters>,
    ) -> Cache {
        Cache(Rc::new(Parts {
            memo: Memo::new(),
            fill: options.fill.build(),
            options,
            store,
            origin,
            clock,
            random,
            counters,
        }))
    }

    /// Looks the request up; with a `spare` object it also registers that for a flight, in the
    /// same critical section.
    fn look(
        &self,
        request: &Request,
        key: KeyHash,
        now_ms: u64,
        spare: Option<Arc<Object>>,
    ) -> Looked {
        let store = &self.0.store;
        store.enter(key.0, |locked| {
            let variant = locked
                .vary()
                .map_or(0, |names| decide::variant(key, names, &request.head.fields));
            let place = Place {
                primary: key.0,
                variant,
            };
            let fwd = match locked.find(variant) {
                None if locked.variants() == 0 => Fwd::UriMiss,
                None => Fwd::VaryMiss,
                Some(object) => match found(object, now_ms) {
                    Ok(looked) => return looked,
                    Err(fwd) => fwd,
                },
            };
            match spare {
                None => Looked::Missing,
                Some(spare) => self.register(locked, spare, place, fwd),
            }
        })
    }

    fn register(
        &self,
        locked: &mut Locked<'_>,
        spare: Arc<Object>,
        place: Place,
        fwd: Fwd,
    ) -> Looked {
        if fwd == Fwd::VaryMiss && locked.variants() >= VARIANTS_MAX && !locked.drop_oldest() {
            return Looked::Pass(CacheStatus::fwd(fwd).because("variants"));
        }
        let weight = self.0.store.weight(&spare.key);
        locked.insert(place.variant, spare.clone(), weight);
        Looked::Launch(spare, place, fwd)
    }

    /// Everything but a hit: launch or ride or pass, later.
    fn fetch(&self, request: Request, key: KeyHash, looked: Looked) -> Answer {
        if let Looked::Pass(status) = looked {
            return self.pass(request, status);
        }
        let mut request = request;
        let interim = request.interim();
        Answer::Later(Pending {
            response: Box::pin(self.clone().bring(request, key, looked)),
            interim: Some(interim),
        })
    }

    async fn bring(self, request: Request, key: KeyHash, first: Looked) -> Result<Response, Fault> {
        let mut looked = first;
        for _ in 0..LOOKS_MAX {
            if let Looked::Missing = looked {
                looked = self.launch(&request, key);
            }
            let ride = match looked {
                Looked::Fresh(object, head) => {
                    let now_ms = self.0.clock.unix_ms();
                    match self.hit(&request, &object, &head, now_ms) {
                        Some(response) => return Ok(response),
                        None => {
                            let partial = CacheStatus::fwd(Fwd::Partial);
                            return self.pass(request, partial).wait().await;
                        }
                    }
                }
                Looked::Pass(status) => return self.pass(request, status).wait().await,
                Looked::Missing => return self.pass(request, no_room()).wait().await,
                Looked::Launch(object, place, fwd) => self.lead(&request, object, place, fwd),
                Looked::Flying(object) => Ride::joining(&object),
            };
            match self.ride(&request, ride).await {
                Rode::Answered(result) => return result,
                Rode::Alone(status) => return self.pass(request, status).wait().await,
                Rode::Parted => looked = self.look(&request, key, self.0.clock.unix_ms(), None),
            }
        }
        let parted = CacheStatus::fwd(Fwd::VaryMiss).because("parted");
        self.pass(request, parted).wait().await
    }

    /// Registers a new object for a flight, unless somebody else just did.
    fn launch(&self, request: &Request, key: KeyHash) -> Looked {
        // Making room may evict, which locks shards: before the critical section.
        let head = &request.head;
        let text = Key::new(
            request.peer.scheme,
            &head.authority,
            head.path(),
            head.query(),
        );
        match self.0.store.create(text.text()) {
            Some(spare) => self.look(request, key, self.0.clock.unix_ms(), Some(spare)),
            None => Looked::Missing,
        }
    }

    /// Starts the flight of an object that was just registered, and rides it.
    fn lead(&self, request: &Request, object: Arc<Object>, place: Place, fwd: Fwd) -> Ride {
        let now_us = self.0.clock.monotonic_us();
        let whole = |_: &Seen<'_>| (smallvec![0..OPEN], ());
        let ((), landings) = self.0.store.arrange(&object, place, now_us, whole);
        let handover = Handover::new(decide::may_take(&request.head.fields));
        let reader = object.reader(0);
        for landing in landings {
            flight::launch(self.clone(), landing, request, handover.clone());
        }
        Ride {
            reader,
            status: CacheStatus::fwd(fwd),
            handover: Some(handover),
        }
    }

    /// Waits for the flight's head and answers from it, if it serves this request.
    async fn ride(&self, request: &Request, mut ride: Ride) -> Rode {
        match poll_fn(|cx| ride.reader.poll_opening(cx)).await {
            Opening::Here(head)
                if decide::selects(key_of(request), &head, &request.head.fields)
                    && self.brings_all(ride.reader.object()) =>
            {
                ride.status.fwd_status = Some(head.status);
                ride.status.stored = true;
                let asked = self.asked(&request.head, self.0.clock.unix_ms());
                let mut response = serve::respond(&asked, ride.reader, &head, ride.status);
                response.exchange = ride.handover.and_then(|handover| handover.exchange());
                Rode::Answered(Ok(response))
            }
            // Vary parts this request from the flight's, or its first bytes are gone by.
            Opening::Here(_)
            | Opening::Missing(_)
            | Opening::Other(Phase::Open(_) | Phase::Awaiting | Phase::Retired) => Rode::Parted,
            Opening::Other(Phase::Failed(failure)) => Rode::Answered(Err(fault_of(&failure))),
            Opening::Other(Phase::Refused { word, .. }) => {
                let mut status = ride.status.because(word);
                let asks_for_less = serve::asks_for_less(&request.head.fields);
                match ride.handover.as_ref().and_then(Handover::take) {
                    // The origin was asked for all of it: a range or a condition is for it to judge.
                    Some(response) if response.status != 200 || !asks_for_less => {
                        Rode::Answered(Ok(forwarded(response, status)))
                    }
                    _ => {
                        status.collapsed = false;
                        Rode::Alone(status)
                    }
                }
            }
        }
    }

    /// Answers from a fresh object; `None` if some of its bytes neither are nor will be there.
    #[inline]
    fn hit(
        &self,
        request: &Request,
        object: &Arc<Object>,
        head: &Head,
        now_ms: u64,
    ) -> Option<Response> {
        let asked = self.asked(&request.head, now_ms);
        if let Some(response) = serve::small(&asked, object, head) {
            return Some(response);
        }
        let reader = object.reader(0);
        self.brings_all(object)
            .then(|| serve::hit(&asked, reader, head))
    }

    /// Whether all of an object is there or on its way, as its fill policy sees it. Objects are
    /// not joinable yet: each has the one fetch that it began with.
    fn brings_all(&self, object: &Object) -> bool {
        if object.is_complete() {
            return true;
        }
        let xray = object.xray(0);
        let situation = Situation {
            want: &(0..OPEN),
            length: xray.length,
            have: &xray.stored,
            flying: &xray.flights.iter().map(|c| c.at..c.end).collect(),
            joinable: false,
        };
        self.0.fill.plan(&situation) == Plan::Wait
    }

    fn asked<'a>(&'a self, head: &'a RequestHead, now_ms: u64) -> Asked<'a> {
        Asked {
            head,
            now_ms,
            random: &self.0.random,
        }
    }

    /// Sends the request to the origin on its own; nothing is stored.
    fn pass(&self, mut request: Request, status: CacheStatus) -> Answer {
        if request.head.method.is_safe() {
            // What the key does not hold is not acted upon here, shared or not.
            hop::strip_unkeyed(&mut request.head.fields);
        }
        let invalidates = (!request.head.method.is_safe()).then(|| key_of(&request));
        let store = self.0.store.clone();
        let finish = move |result: Result<Response, Fault>| {
            let response = result?;
            // A successful unsafe request may have changed what is stored (RFC 9111 4.4).
            if let Some(key) = invalidates.filter(|_| response.status < 400) {
                store.enter(key.0, |locked| locked.clear());
            }
            Ok(forwarded(response, status))
        };
        match self.0.origin.handle(request) {
            Answer::Ready(result) => Answer::Ready(finish(result)),
            Answer::Later(Pending { response, interim }) => Answer::Later(Pending {
                response: Box::pin(async move { finish(response.await) }),
                interim,
            }),
        }
    }
}

/// A request that waits for a flight's head.
struct Ride {
    reader: Reader,
    status: CacheStatus,
    /// Where the flight leaves things for the one who launched it.
    handover: Option<Handover>,
}

impl Ride {
    fn joining(object: &Arc<Object>) -> Ride {
        let mut status = CacheStatus::fwd(Fwd::UriMiss);
        status.collapsed = true;
        Ride {
            reader: object.reader(0),
            status,
            handover: None,
        }
    }
}

/// How a ride ended.
enum Rode {
    /// With an answer, or the flight's failure.
    Answered(Result<Response, Fault>),
    /// The response can't be shared: this request goes forward on its own.
    Alone(CacheStatus),
    /// The flight is for others: look again.
    Parted,
}

/// What an object in the table means for a request now; `Err`: it has to be fetched anew.
#[inline]
fn found(object: Arc<Object>, now_ms: u64) -> Result<Looked, Fwd> {
    match object.phase() {
        Phase::Open(head) if now_ms < head.fresh_until_ms => Ok(Looked::Fresh(object, head)),
        Phase::Open(_) => Err(Fwd::Stale),
        Phase::Awaiting => Ok(Looked::Flying(object)),
        Phase::Refused { word, until_ms } if now_ms < until_ms => {
            Ok(Looked::Pass(CacheStatus::fwd(Fwd::Miss).because(word)))
        }
        Phase::Refused { .. } | Phase::Failed(_) | Phase::Retired => Err(Fwd::Miss),
    }
}

fn key_of(request: &Request) -> KeyHash {
    KeyHash::of(
        request.peer.scheme,
        &request.head.authority,
        request.head.path(),
        request.head.query(),
    )
}

fn no_room() -> CacheStatus {
    CacheStatus::fwd(Fwd::Miss).because("no-room")
}

/// A response straight from the origin, with how it came about.
fn forwarded(mut response: Response, mut status: CacheStatus) -> Response {
    status.fwd_status = Some(response.status);
    response.cache = Some(status);
    response
}

/// The fault that a flight put into the store, got out again.
fn fault_of(failure: &Failure) -> Fault {
    failure
        .downcast_ref::<Fault>()
        .copied()
        .unwrap_or_else(|| Cause::FetchAbandoned.into())
}
