//! The context that every part of a cache works with: configuration, store and origin.

use std::rc::Rc;
use std::sync::Arc;

use crate::cache::client_budget::Clients;
use crate::cache::decide::want;
use crate::cache::lookup::keys::{Keys, Memo};
use crate::cache::options::Options;
use crate::cache::purge::stores::Stores;
use crate::cache::resource_history;
use crate::cache::rules::Rules;
use crate::fill::{self, OPEN};
use crate::handler::{Encodings, Handler, Request};
use crate::http::vary::Codings;
use crate::store::{ResourceHistory, Store, TableKey};
use crate::sys::{Clock, Random};
use crate::telemetry::Counters;
use crate::what_if::Sampler;

/// One worker's instance of a cache, for one route.
pub(in crate::cache) struct Context {
    pub(in crate::cache) options: Arc<Options>,
    /// Size in bytes of the largest object kept in memory.
    pub(in crate::cache) object_max: u64,
    pub(in crate::cache) rules: Arc<Rules>,
    pub(in crate::cache) keys: Keys,
    pub(in crate::cache) store: Arc<Store>,
    /// The stores of this cache: `store`, and older ones that other workers may still serve from.
    pub(in crate::cache) stores: Arc<Stores>,
    pub(in crate::cache) fill: Box<dyn fill::Policy + Send + Sync>,
    pub(in crate::cache) clients: Clients,
    pub(in crate::cache) origin: Origin,
    /// Simulates other sizes of the cache, if this is wanted.
    pub(in crate::cache) sampler: Option<Sampler>,
    pub(in crate::cache) worker: Rc<Worker>,
}

/// The handler that the cache fetches from, and the encoder of stored content, if the route
/// compresses.
pub(in crate::cache) struct Origin {
    pub(in crate::cache) handler: Rc<dyn Handler>,
    pub(in crate::cache) encodings: Option<Rc<dyn Encodings>>,
}

/// The state that belongs to a worker's thread, for all routes.
pub struct Worker {
    pub(in crate::cache) clock: Clock,
    pub(in crate::cache) random: Random,
    pub(in crate::cache) counters: Arc<Counters>,
    pub(in crate::cache) memo: Rc<Memo>,
}

impl Worker {
    /// Creates the state of the caches of one worker, which owns `counters`.
    pub fn new(clock: Clock, random: Random, counters: Arc<Counters>) -> Rc<Worker> {
        Rc::new(Worker {
            clock,
            random,
            counters,
            memo: Rc::new(Memo::new()),
        })
    }
}

impl Context {
    /// Whether the origin is always asked for unencoded content.
    #[inline]
    pub(in crate::cache) fn requests_identity(&self) -> bool {
        let encodings = self.origin.encodings.as_deref();
        encodings.is_some_and(|encodings| encodings.requests_identity())
    }

    /// Changes the history of a resource.
    pub(in crate::cache) fn change_history(
        &self,
        table_key: TableKey,
        change: impl FnOnce(&mut ResourceHistory),
    ) {
        self.store.enter(table_key.primary, |locked| {
            let mut history = locked.history();
            change(&mut history);
            locked.set_history(history);
        });
    }

    /// The content codings to fetch for this request. `None` means those that the request itself
    /// accepts. Blocks are fetched unencoded: ranges of content that the origin compresses on the
    /// fly can't be relied on, and every client accepts identity.
    pub(in crate::cache) fn codings(
        &self,
        request: &Request,
        history: &ResourceHistory,
        now_ms: u64,
    ) -> Option<Codings> {
        if self.requests_identity() {
            return Some(Codings::IDENTITY);
        }
        let sliced = match self.options.fill.kind {
            fill::Kind::Whole | fill::Kind::Lock => false,
            fill::Kind::Slice => true,
            // A request with If-Range continues an earlier response, whose coding it has to get
            // again.
            fill::Kind::Auto => {
                want::guess(&request.head) != (0..OPEN) && !request.head.fields.contains("if-range")
            }
        };
        (sliced && !resource_history::avoids_ranges(history, now_ms)).then_some(Codings::IDENTITY)
    }
}
