//! Looking up: which object a request's key, its Vary and its codings lead to, and what that means
//! now; where a fetch is needed, an object is put there for it.

use std::sync::Arc;

use super::Cache;
use super::decide::admission::Admitted;
use super::decide::reuse::{self, Circumstances, Reuse};
use super::{decide, resource_history};
use crate::handler::Request;
use crate::http::key::KeyHash;
use crate::http::vary::Codings;
use crate::http::{CacheStatus, Fwd};
use crate::reason::Reason;
use crate::store::{Head, Locked, Object, Phase, ResourceHistory, TableKey, VARIANTS_MAX};

/// What looking up found.
pub(super) enum Lookup {
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
    /// Stale, and served for this reason.
    Stale {
        reason: Reason,
        /// It is to be validated behind that.
        revalidate: bool,
    },
    /// The origin confirmed it just now, to this request or to another.
    Confirmed {
        fwd: Fwd,
        collapsed: bool,
    },
    /// The origin was asked just now, by this request or by another, and failed.
    OnError {
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
            How::Stale { reason, .. } => CacheStatus::hit(left_s).because(reason),
            How::Confirmed { fwd, collapsed } => {
                let mut status = CacheStatus::fwd(fwd);
                status.fwd_status = Some(304);
                status.collapsed = collapsed;
                status
            }
            How::OnError { fwd, collapsed } => {
                let mut status = CacheStatus::fwd(fwd).because(Reason::StaleIfError);
                status.collapsed = collapsed;
                status
            }
        }
    }
}

/// What stands in the table for a request.
enum InTable {
    /// It comes to this.
    Met(Lookup),
    /// It has to be validated before it is given.
    Stale(Arc<Object>, Arc<Head>, Fwd),
    /// It is of no use.
    Gone(Fwd),
}

impl Cache {
    /// Looks the request up; with a `spare` object it also registers that for a flight, in the
    /// same critical section.
    pub(super) fn look_up(
        &self,
        request: &Request,
        admitted: &Admitted,
        key: KeyHash,
        now_ms: u64,
        spare: Option<Arc<Object>>,
    ) -> Lookup {
        let store = &self.0.store;
        store.enter(key.0, |locked| {
            let variant = match locked.vary() {
                None => 0,
                Some(names) => {
                    let codings = self.codings(request, &locked.history(), now_ms);
                    let normal = self.0.rules.normal(codings);
                    decide::variant(key, names, &request.head.fields, normal)
                }
            };
            let place = TableKey {
                primary: key.0,
                variant,
            };
            let found = match locked.find(variant) {
                None if locked.variants() == 0 => InTable::Gone(Fwd::UriMiss),
                None => InTable::Gone(Fwd::VaryMiss),
                Some(object) => self.found(locked, object, admitted, place, now_ms),
            };
            match (found, spare) {
                (InTable::Met(looked), _) => looked,
                (InTable::Stale(object, head, fwd), spare) => {
                    let spare = spare.filter(|spare| !spare.is_recall());
                    validation(&object, head, place, fwd, spare)
                }
                (InTable::Gone(_), None) => Lookup::Missing,
                (InTable::Gone(fwd), Some(spare)) => self.register(locked, spare, place, fwd),
            }
        })
    }

    /// What an object in the table means for a request now.
    #[inline]
    fn found(
        &self,
        locked: &Locked<'_>,
        object: Arc<Object>,
        admitted: &Admitted,
        place: TableKey,
        now_ms: u64,
    ) -> InTable {
        let pass = |fwd, reason| InTable::Met(Lookup::Pass(CacheStatus::fwd(fwd).because(reason)));
        match object.phase() {
            Phase::Open(head) if admitted.authorized && !head.authorized => {
                pass(Fwd::Bypass, Reason::Authorization)
            }
            Phase::Open(head) => {
                let about = || self.circumstances(&locked.history(), &object, now_ms);
                let how = match reuse::judge(&head, admitted, now_ms, about) {
                    Reuse::Fresh => How::Fresh,
                    Reuse::Stale { reason, revalidate } => How::Stale { reason, revalidate },
                    Reuse::Validate(fwd) => return InTable::Stale(object, head, fwd),
                };
                InTable::Met(Lookup::Stored(Found {
                    object,
                    head,
                    place,
                    how,
                }))
            }
            Phase::Awaiting if object.is_recall() => InTable::Met(Lookup::Recalled(object)),
            // What is being fetched for others may not be for a request with credentials.
            Phase::Awaiting if admitted.authorized => pass(Fwd::Bypass, Reason::Authorization),
            Phase::Awaiting => InTable::Met(Lookup::Flying(object, place, Fwd::UriMiss)),
            Phase::Refused { reason, until_ms } if self.is_refused(until_ms, now_ms) => {
                pass(Fwd::Miss, reason)
            }
            _ => InTable::Gone(Fwd::Miss),
        }
    }

    /// Whether a refusal holds: also a clock that was set back makes it last no longer.
    fn is_refused(&self, until_ms: u64, now_ms: u64) -> bool {
        let longest_ms = self.0.rules.pass_for.as_millis() as u64 + resource_history::RETRY_MAX_MS;
        (1..=longest_ms).contains(&until_ms.saturating_sub(now_ms))
    }

    fn circumstances(
        &self,
        history: &ResourceHistory,
        object: &Object,
        now_ms: u64,
    ) -> Circumstances {
        Circumstances {
            failing: history.failures > 0,
            resting: resource_history::is_resting(history, now_ms),
            updating: object.revalidation().is_some(),
            updating_ms: self.0.rules.stale_while_updating.as_millis() as u64,
        }
    }

    fn register(
        &self,
        locked: &mut Locked<'_>,
        spare: Arc<Object>,
        place: TableKey,
        fwd: Fwd,
    ) -> Lookup {
        if fwd == Fwd::VaryMiss && locked.variants() >= VARIANTS_MAX && !locked.drop_oldest() {
            return Lookup::Pass(CacheStatus::fwd(fwd).because(Reason::Variants));
        }
        let weight = self.0.store.weight(&spare.key);
        locked.insert(place.variant, spare.clone(), weight);
        Lookup::New(spare, place, fwd)
    }

    /// In which codings this request is answered.
    pub(super) fn codings(
        &self,
        request: &Request,
        history: &ResourceHistory,
        now_ms: u64,
    ) -> Option<Codings> {
        if self.requests_identity() {
            return Some(Codings::IDENTITY);
        }
        let kind = self.0.options.fill.kind;
        decide::codings(kind, &request.head, history.avoids_ranges(now_ms))
    }

    /// Registers a new object for a flight, unless somebody else just did.
    pub(super) fn launch(&self, request: &Request, admitted: &Admitted, key: KeyHash) -> Lookup {
        if admitted.authorized && !decide::may_take(&request.head.fields, &self.0.rules) {
            // What comes back could hardly be shared, and would not do for this client.
            return Lookup::Pass(CacheStatus::fwd(Fwd::Bypass).because(Reason::Authorization));
        }
        // Making room may evict, which locks shards: before the critical section.
        match self.0.store.create(self.key_text(request).text()) {
            Some(spare) => {
                self.look_up(request, admitted, key, self.0.clock.unix_ms(), Some(spare))
            }
            None => Lookup::Missing,
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
) -> Lookup {
    if let Some(running) = object.revalidation() {
        return Lookup::Flying(running, place, fwd);
    }
    let Some(spare) = spare else {
        return Lookup::Stale;
    };
    object.revalidate_with(head, &spare);
    Lookup::New(spare, place, fwd)
}
