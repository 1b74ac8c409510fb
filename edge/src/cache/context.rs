//! The context that every part of a cache works with: configuration, store and origin.

use std::rc::Rc;
use std::sync::Arc;

use crate::cache::client_budget::Clients;
use crate::cache::lookup::memo::Memo;
use crate::cache::options::Options;
use crate::cache::purge::stores::Stores;
use crate::cache::rules::Rules;
use crate::cache::{decide, resource_history};
use crate::fill;
use crate::handler::{Encodings, Handler, Request};
use crate::http::vary::Codings;
use crate::store::{ResourceHistory, Store};
use crate::sys::{Clock, Random};
use crate::telemetry::Counters;

/// One worker's instance of a cache, for one route.
pub(in crate::cache) struct Context {
    pub(in crate::cache) options: Options,
    pub(in crate::cache) rules: Rules,
    /// Whether keys are made of the unchanged URL alone.
    pub(in crate::cache) plain_keys: bool,
    pub(in crate::cache) memo: Memo,
    pub(in crate::cache) store: Arc<Store>,
    /// The stores of this cache: `store`, and older ones that other workers may still serve from.
    pub(in crate::cache) stores: Arc<Stores>,
    pub(in crate::cache) fill: Box<dyn fill::Policy + Send + Sync>,
    pub(in crate::cache) clients: Clients,
    pub(in crate::cache) origin: Origin,
    pub(in crate::cache) worker: Worker,
}

/// The handler that the cache fetches from, and the encoder of stored content, if the route
/// compresses.
pub(in crate::cache) struct Origin {
    pub(in crate::cache) handler: Rc<dyn Handler>,
    pub(in crate::cache) encodings: Option<Rc<dyn Encodings>>,
}

/// The state that belongs to the worker's thread.
pub(in crate::cache) struct Worker {
    pub(in crate::cache) clock: Clock,
    pub(in crate::cache) random: Random,
    pub(in crate::cache) counters: Arc<Counters>,
}

impl Context {
    /// Whether the origin is always asked for unencoded content.
    #[inline]
    pub(in crate::cache) fn requests_identity(&self) -> bool {
        let encodings = self.origin.encodings.as_deref();
        encodings.is_some_and(|encodings| encodings.requests_identity())
    }

    /// The codings to fetch for this request. `None` means those that the request itself accepts.
    pub(in crate::cache) fn codings(
        &self,
        request: &Request,
        history: &ResourceHistory,
        now_ms: u64,
    ) -> Option<Codings> {
        if self.requests_identity() {
            return Some(Codings::IDENTITY);
        }
        let kind = self.options.fill.kind;
        decide::codings(
            kind,
            &request.head,
            resource_history::avoids_ranges(history, now_ms),
        )
    }
}
