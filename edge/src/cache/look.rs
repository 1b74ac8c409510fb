//! Looking up: which object a request's key, its Vary and its codings lead to, and what that means
//! now; where there is none, one is put there.

use std::sync::Arc;

use super::Cache;
use super::decide;
use crate::handler::Request;
use crate::http::key::{Key, KeyHash};
use crate::http::vary::Codings;
use crate::http::{CacheStatus, Fwd};
use crate::store::{Head, Locked, Lore, Object, Phase, Place, VARIANTS_MAX};

/// What looking up found.
pub(super) enum Looked {
    /// A head that is fresh. Its bytes may be there, on their way, or missing.
    Fresh(Arc<Object>, Arc<Head>, Place),
    /// An object without a head yet, that another request's flight is bringing.
    Flying(Arc<Object>, Place),
    /// An object that was put into the table for this request, for this reason.
    New(Arc<Object>, Place, Fwd),
    /// Nothing usable; there was no spare object to register.
    Missing,
    /// Not through the cache.
    Pass(CacheStatus),
}

impl Cache {
    /// Looks the request up; with a `spare` object it also registers that for a flight, in the
    /// same critical section.
    pub(super) fn look(
        &self,
        request: &Request,
        key: KeyHash,
        now_ms: u64,
        spare: Option<Arc<Object>>,
    ) -> Looked {
        let store = &self.0.store;
        store.enter(key.0, |locked| {
            let variant = match locked.vary() {
                None => 0,
                Some(names) => {
                    let codings = self.codings(request, &locked.lore(), now_ms);
                    decide::variant(key, names, &request.head.fields, codings)
                }
            };
            let place = Place {
                primary: key.0,
                variant,
            };
            let fwd = match locked.find(variant) {
                None if locked.variants() == 0 => Fwd::UriMiss,
                None => Fwd::VaryMiss,
                Some(object) => match found(object, place, now_ms) {
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
        Looked::New(spare, place, fwd)
    }

    /// In which codings this request is answered.
    pub(super) fn codings(&self, request: &Request, lore: &Lore, now_ms: u64) -> Option<Codings> {
        let kind = self.0.options.fill.kind;
        decide::codings(kind, &request.head, lore.is_plain(now_ms))
    }

    /// Registers a new object for a flight, unless somebody else just did.
    pub(super) fn launch(&self, request: &Request, key: KeyHash) -> Looked {
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
}

/// What an object in the table means for a request now; `Err`: it has to be fetched anew.
#[inline]
fn found(object: Arc<Object>, place: Place, now_ms: u64) -> Result<Looked, Fwd> {
    match object.phase() {
        Phase::Open(head) if now_ms < head.fresh_until_ms => Ok(Looked::Fresh(object, head, place)),
        Phase::Open(_) => Err(Fwd::Stale),
        Phase::Awaiting => Ok(Looked::Flying(object, place)),
        Phase::Refused { word, until_ms } if now_ms < until_ms => {
            Ok(Looked::Pass(CacheStatus::fwd(Fwd::Miss).because(word)))
        }
        Phase::Refused { .. } | Phase::Failed(_) | Phase::Retired => Err(Fwd::Miss),
    }
}
