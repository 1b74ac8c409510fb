//! The cache: decide, fly, serve.
//!
//! `Cache::handle` is the spine: may this request use the cache; look it up; answer from what is
//! stored, or ride the object, whose missing bytes are fetched as the fill policy says.

mod client_budget;
mod coded;
mod decide;
mod demand;
mod fetch_outcome;
mod flight;
mod keys;
mod launch;
mod leader_result;
mod lookup;
mod memo;
mod miss;
mod pass;
mod post_response;
pub mod purge;
mod purge_queue;
mod read_ahead;
mod recall;
mod resource_history;
mod revalidate;
mod ride;
pub mod rules;
mod serve;
mod stores;

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use crate::evict;
use crate::fill::{self, ReadAhead};
use crate::handler::{Answer, Body, Choice, Encodings, Fault, Handler, Request, Response};
use crate::http::key::KeyHash;
use crate::http::wanted::Wanted;
use crate::http::{CacheStatus, Method};
use crate::reason::Reason;
use crate::store::{Failure, Head, Object, Store, TableKey, disk_tier};
use crate::sys::{Clock, Random};
use crate::telemetry::Counters;
pub use client_budget::ClientBudgets;
use decide::admission::Admitted;
use decide::want::{self, OfObject};
use lookup::{Found, How, Lookup};
use memo::Memo;
use ride::Ride;
pub use rules::Rules;
use serve::Answering;
pub use stores::Stores;

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
    /// What is kept on volumes, too.
    pub disk_tier: disk_tier::Options,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory: 256 << 20,
            evict: evict::Kind::default(),
            fill: fill::Options::default(),
            client_budget: 64 << 20,
            object: 0,
            disk_tier: disk_tier::Options::default(),
        }
    }
}

/// One worker's end of a cache in front of an origin.
#[derive(Clone)]
pub struct Cache(Rc<Parts>);

struct Parts {
    options: Options,
    rules: Rules,
    /// Keys are made of the URL just as it is.
    plain_keys: bool,
    store: Arc<Store>,
    /// That one, and those that other workers may still have.
    stores: Arc<Stores>,
    memo: Memo,
    fill: Box<dyn fill::Policy + Send + Sync>,
    budgets: Arc<ClientBudgets>,
    ahead: read_ahead::Readers,
    origin: Rc<dyn Handler>,
    encodings: Option<Rc<dyn Encodings>>,
    clock: Clock,
    random: Random,
    counters: Arc<Counters>,
}

impl Handler for Cache {
    fn handle(&self, mut request: Request) -> Answer {
        let rules = &self.0.rules;
        let admitted = match decide::admission::admit(&request.head, request.body.is_empty(), rules)
        {
            Ok(admitted) => admitted,
            Err(_) if request.head.method.is_purge() => {
                return self.purge_for(&request);
            }
            Err(status) => return self.pass(request, status),
        };
        let key = self.key(&request);
        let now_ms = self.0.clock.unix_ms();
        let looked = self.look_up(&request, &admitted, key, now_ms, None);
        if let Lookup::Stored(found) = &looked {
            if let How::Stale {
                revalidate: true, ..
            } = found.how
            {
                self.revalidate_in_background(&request, found);
            }
            if let Some(response) = self.hit(&mut request, &admitted, found, now_ms) {
                return Answer::Ready(Ok(response));
            }
        }
        if admitted.only_if_cached() && !self.may_come(key, &looked) {
            return Answer::Ready(Ok(not_cached()));
        }
        self.fetch(request, admitted, key, looked)
    }
}

impl Cache {
    /// A worker's end of `store`, in front of `origin`, for a route with these rules. Store, the
    /// others of this cache, and accounts are those of all workers. Content is given in other codings,
    /// too, where there are `encodings`.
    pub fn new(
        (options, rules): (Options, Rules),
        (store, stores): (Arc<Store>, Arc<Stores>),
        budgets: Arc<ClientBudgets>,
        (origin, encodings): (Rc<dyn Handler>, Option<Rc<dyn Encodings>>),
        clock: Clock,
        random: Random,
        counters: Arc<Counters>,
    ) -> Cache {
        Cache(Rc::new(Parts {
            memo: Memo::new(),
            fill: fill::build(&options.fill),
            budgets,
            ahead: read_ahead::Readers::default(),
            options,
            plain_keys: rules.key.is_plain(),
            rules,
            store,
            stores,
            origin,
            encodings,
            clock,
            random,
            counters,
        }))
    }

    /// Whether what volumes have may answer this.
    fn may_come(&self, key: KeyHash, looked: &Lookup) -> bool {
        let stored = matches!(looked, Lookup::Recalled(_) | Lookup::Stored(_));
        stored || self.0.store.is_on_disk(key.0)
    }

    /// Answers from a stored object whose wanted bytes are all there; `None` if some are not.
    #[inline]
    fn hit(
        &self,
        request: &mut Request,
        admitted: &Admitted,
        found: &Found,
        now_ms: u64,
    ) -> Option<Response> {
        let Found {
            object,
            head,
            place,
            how,
        } = found;
        let mut answering = self.answering(head, how.status(head, now_ms), now_ms);
        match self.choose(&request.head, admitted, (object, head), *place) {
            Choice::Identity => {}
            Choice::Varying(fields) => answering.varying = Some(fields),
            Choice::Coded(encoded) => {
                return Some(serve::coded(&answering, &request.head, &encoded));
            }
        }
        if request.head.method == Method::Get
            && !admitted.less
            && let Some(response) = serve::small(&answering, object)
        {
            return Some(response);
        }
        let length = head.length.or_else(|| object.length());
        let wanted = answering.judged(want::judge(&request.head, head, length), &request.head);
        if let Some(response) = serve::bare(&answering, object, &wanted) {
            return Some(response);
        }
        if let Some(response) = serve::piece(&answering, object, &wanted) {
            self.note_piece(request, object, *place, &wanted);
            return Some(response);
        }
        if !wanted.is_at_hand(object) {
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
                let mut ride = Ride::filling(object, first, self.demand(request, *place));
                ride.begin();
                if self.0.options.fill.read_ahead != ReadAhead::None {
                    ride.fetch_ahead();
                }
                ride
            }
        };
        Some(serve::content(&answering, ride, wanted))
    }

    /// A part of a block that may have been fetched for this very client was of use, and is sent.
    fn note_piece(
        &self,
        request: &Request,
        object: &Arc<Object>,
        place: TableKey,
        wanted: &Wanted,
    ) {
        let Some(range) = wanted.first() else {
            return;
        };
        self.settle(request, range.end - range.start);
        if object.is_sparse() {
            self.0.store.touch_block(place, object, range.start);
        }
    }

    /// So much of what is stored is sent to this client.
    fn settle(&self, request: &Request, bytes: u64) {
        let client = request.peer.client;
        self.0.budgets.settle(client, bytes);
    }

    fn answering<'a>(&'a self, head: &'a Head, status: CacheStatus, now_ms: u64) -> Answering<'a> {
        Answering {
            head,
            varying: None,
            status,
            now_ms,
            random: &self.0.random,
        }
    }
}

/// The answer to who wants none from the origin, where none is stored (RFC 9111 5.2.1.7).
fn not_cached() -> Response {
    let mut response = Response::new(504);
    response.cache = Some(CacheStatus::own(Reason::OnlyIfCached));
    response.fields.append("content-type", "text/plain");
    response.body = Body::Bytes(Bytes::from_static(b"504 nothing usable is stored\n"));
    response
}

/// The fault that a flight put into the store, got out again.
fn fault_of(failure: &Failure) -> Fault {
    failure
        .downcast_ref::<Fault>()
        .copied()
        .unwrap_or_else(|| Reason::FetchAbandoned.into())
}
