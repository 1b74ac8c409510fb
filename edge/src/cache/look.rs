//! Looking up: which object a request's key, its Vary and its codings lead to, and what that means
//! now; where a fetch is needed, an object is put there for it.

use std::sync::Arc;

use super::Cache;
use super::decide::asks::Asks;
use super::decide::reuse::{self, Circumstances, Reuse};
use super::{decide, lore};
use crate::handler::Request;
use crate::http::key::KeyHash;
use crate::http::vary::Codings;
use crate::http::{CacheStatus, Fwd};
use crate::store::{Head, Locked, Lore, Object, Phase, TableKey, VARIANTS_MAX};

/// What looking up found.
pub(super) enum Looked {
    /// A response that may be given. Its bytes may be there, on their way, or missing.
    Stored(Found),
    /// An object without a head yet, that another request's flight is bringing.
    Flying(Arc<Object>, TableKey, Fwd),
    /// An object that stands for one whose head is being read from a volume: look again then.
    Recalled(Arc<Object>),
    /// An object that was registered for this request to fetch, for this reason.
    New(Arc<Object>, TableKey, Fwd),
    /// Nothing usable; there was no spare object to register.
    Missing,
    /// It is stored, and has to be validated first; there was no spare object to register for that.
    Stale,
    /// Not through the cache.
    Pass(CacheStatus),
}

/// A stored response that may be given.
pub(super) struct Found {
    pub(super) object: Arc<Object>,
    pub(super) head: Arc<Head>,
    pub(super) place: TableKey,
    pub(super) how: How,
}

/// Why a stored response may be given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Fresh,
    /// Although it is stale, for the reason that `word` names.
    Stale {
        word: &'static str,
        /// It is to be validated behind that.
        behind: bool,
    },
    /// The origin confirmed it just now, to this request or to another.
    Confirmed {
        fwd: Fwd,
        collapsed: bool,
    },
    /// The origin was asked just now, by this request or by another, and failed.
    InPlace {
        fwd: Fwd,
        collapsed: bool,
    },
}

impl How {
    /// What Cache-Status says of a response given so.
    #[inline]
    pub(super) fn status(self, head: &Head, now_ms: u64) -> CacheStatus {
        let left_s = (head.fresh_until_ms as i64 - now_ms as i64).div_euclid(1000);
        match self {
            How::Fresh => CacheStatus::hit(left_s),
            How::Stale { word, .. } => CacheStatus::hit(left_s).because(word),
            How::Confirmed { fwd, collapsed } => {
                let mut status = CacheStatus::fwd(fwd);
                status.fwd_status = Some(304);
                status.collapsed = collapsed;
                status
            }
            How::InPlace { fwd, collapsed } => {
                let mut status = CacheStatus::fwd(fwd).because("stale-if-error");
                status.collapsed = collapsed;
                status
            }
        }
    }
}

/// What stands in the table for a request.
enum Standing {
    /// It comes to this.
    Met(Looked),
    /// It has to be validated before it is given.
    Stale(Arc<Object>, Arc<Head>, Fwd),
    /// It is of no use.
    Gone(Fwd),
}

impl Cache {
    /// Looks the request up; with a `spare` object it also registers that for a flight, in the
    /// same critical section.
    pub(super) fn look(
        &self,
        request: &Request,
        asks: &Asks,
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
                    let normal = self.0.rules.normal(codings);
                    decide::variant(key, names, &request.head.fields, normal)
                }
            };
            let place = TableKey {
                primary: key.0,
                variant,
            };
            let found = match locked.find(variant) {
                None if locked.variants() == 0 => Standing::Gone(Fwd::UriMiss),
                None => Standing::Gone(Fwd::VaryMiss),
                Some(object) => self.found(locked, object, asks, place, now_ms),
            };
            match (found, spare) {
                (Standing::Met(looked), _) => looked,
                (Standing::Stale(object, head, fwd), spare) => {
                    let spare = spare.filter(|spare| !spare.is_recall());
                    validation(&object, head, place, fwd, spare)
                }
                (Standing::Gone(_), None) => Looked::Missing,
                (Standing::Gone(fwd), Some(spare)) => self.register(locked, spare, place, fwd),
            }
        })
    }

    /// What an object in the table means for a request now.
    #[inline]
    fn found(
        &self,
        locked: &Locked<'_>,
        object: Arc<Object>,
        asks: &Asks,
        place: TableKey,
        now_ms: u64,
    ) -> Standing {
        let pass = |fwd, word| Standing::Met(Looked::Pass(CacheStatus::fwd(fwd).because(word)));
        match object.phase() {
            Phase::Open(head) if asks.authorized && !head.authorized => {
                pass(Fwd::Bypass, "authorization")
            }
            Phase::Open(head) => {
                let about = || self.circumstances(&locked.lore(), &object, now_ms);
                let how = match reuse::judge(&head, asks, now_ms, about) {
                    Reuse::Fresh => How::Fresh,
                    Reuse::Stale { word, behind } => How::Stale { word, behind },
                    Reuse::Validate(fwd) => return Standing::Stale(object, head, fwd),
                };
                Standing::Met(Looked::Stored(Found {
                    object,
                    head,
                    place,
                    how,
                }))
            }
            Phase::Awaiting if object.is_recall() => Standing::Met(Looked::Recalled(object)),
            // What is being fetched for others may not be for a request with credentials.
            Phase::Awaiting if asks.authorized => pass(Fwd::Bypass, "authorization"),
            Phase::Awaiting => Standing::Met(Looked::Flying(object, place, Fwd::UriMiss)),
            Phase::Refused { word, until_ms } if self.is_refused(until_ms, now_ms) => {
                pass(Fwd::Miss, word)
            }
            _ => Standing::Gone(Fwd::Miss),
        }
    }

    /// Whether a refusal holds: also a clock that was set back makes it last no longer.
    fn is_refused(&self, until_ms: u64, now_ms: u64) -> bool {
        let longest_ms = self.0.rules.pass_for.as_millis() as u64 + lore::RETRY_MAX_MS;
        (1..=longest_ms).contains(&until_ms.saturating_sub(now_ms))
    }

    fn circumstances(&self, lore: &Lore, object: &Object, now_ms: u64) -> Circumstances {
        Circumstances {
            failing: lore.failures > 0,
            resting: lore::is_resting(lore, now_ms),
            updating: object.validation().is_some(),
            updating_ms: self.0.rules.stale_while_updating.as_millis() as u64,
        }
    }

    fn register(
        &self,
        locked: &mut Locked<'_>,
        spare: Arc<Object>,
        place: TableKey,
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
        if self.asks_for_plain() {
            return Some(Codings::IDENTITY);
        }
        let kind = self.0.options.fill.kind;
        decide::codings(kind, &request.head, lore.is_plain(now_ms))
    }

    /// Registers a new object for a flight, unless somebody else just did.
    pub(super) fn launch(&self, request: &Request, asks: &Asks, key: KeyHash) -> Looked {
        if asks.authorized && !decide::may_take(&request.head.fields, &self.0.rules) {
            // What comes back could hardly be shared, and would not do for this client.
            return Looked::Pass(CacheStatus::fwd(Fwd::Bypass).because("authorization"));
        }
        // Making room may evict, which locks shards: before the critical section.
        match self.0.store.create(self.key_text(request).text()) {
            Some(spare) => self.look(request, asks, key, self.0.clock.unix_ms(), Some(spare)),
            None => Looked::Missing,
        }
    }
}

/// A stored response has to be validated: by the fetch that does so already, or by a new one.
fn validation(
    object: &Arc<Object>,
    head: Arc<Head>,
    place: TableKey,
    fwd: Fwd,
    spare: Option<Arc<Object>>,
) -> Looked {
    if let Some(running) = object.validation() {
        return Looked::Flying(running, place, fwd);
    }
    let Some(spare) = spare else {
        return Looked::Stale;
    };
    object.validate_by(head, &spare);
    Looked::New(spare, place, fwd)
}
