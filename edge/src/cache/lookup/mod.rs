//! Looking up: which object a request's key, its Vary and its codings lead to, and what that means
//! now; where a fetch is needed, an object is put there for it.

pub(in crate::cache) mod keys;
pub(in crate::cache) mod memo;

use std::sync::Arc;

use crate::cache::context::Context;
use crate::cache::decide::admission::Admitted;
use crate::cache::decide::reuse::{self, Circumstances, Reuse};
use crate::cache::{decide, resource_history};
use crate::handler::Request;
use crate::http::key::KeyHash;
use crate::http::{CacheStatus, Fwd};
use crate::reason::Reason;
use crate::store::{
    Head, Locked, Object, Phase, ResourceHistory, TableKey, VARIANTS_MAX, VaryNames,
};

/// What looking up found.
pub(in crate::cache) enum Lookup {
    /// A response that may be given. Its bytes may be there, on their way, or missing.
    Stored(Found),
    /// An object without a head yet, that another request's flight is bringing.
    Flying(Joined),
    /// An object that stands for one whose head is being read from a volume: look again then.
    Recalled(Arc<Object>),
    /// An object that was registered for this request to fetch, for this reason.
    New(Joined),
    /// Nothing usable; there was no spare object to register.
    Missing,
    /// It is stored, and has to be validated first; there was no spare object to register for that.
    Stale,
    /// Not through the cache.
    Pass(CacheStatus),
}

/// An object without a head yet, and what the table knew of its resource under the same lock.
pub(in crate::cache) struct Joined {
    pub(in crate::cache) object: Arc<Object>,
    pub(in crate::cache) place: TableKey,
    /// Why the request goes forward.
    pub(in crate::cache) fwd: Fwd,
    pub(in crate::cache) known: Box<Known>,
}

impl Joined {
    /// What a ride needs of it.
    pub(in crate::cache) fn into_parts(self) -> (Arc<Object>, TableKey, Option<Box<Known>>) {
        (self.object, self.place, Some(self.known))
    }
}

/// What the table knows of a resource.
#[derive(Clone, Default)]
pub(in crate::cache) struct Known {
    pub(in crate::cache) history: ResourceHistory,
    /// The Vary names in force.
    pub(in crate::cache) vary: Option<VaryNames>,
}

impl Known {
    fn of(locked: &Locked<'_>) -> Known {
        Known {
            history: locked.history(),
            vary: locked.vary().cloned(),
        }
    }

    /// What the table knows now.
    pub(in crate::cache) fn now(context: &Context, place: TableKey) -> Known {
        context
            .store
            .enter(place.primary, |locked| Known::of(locked))
    }
}

/// A stored response that may be given.
pub(in crate::cache) struct Found {
    pub(in crate::cache) object: Arc<Object>,
    pub(in crate::cache) head: Arc<Head>,
    pub(in crate::cache) place: TableKey,
    pub(in crate::cache) how: How,
}

/// Why a stored response may be given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::cache) enum How {
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
    pub(in crate::cache) fn status(self, head: &Head, now_ms: u64) -> CacheStatus {
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

/// Looks the request up; with a `spare` object it also registers that for a flight, in the
/// same critical section.
pub(in crate::cache) fn look_up(
    context: &Context,
    request: &Request,
    admitted: &Admitted,
    key: KeyHash,
    now_ms: u64,
    spare: Option<Arc<Object>>,
) -> Lookup {
    let store = &context.store;
    store.enter(key.0, |locked| {
        let variant = match locked.vary() {
            None => 0,
            Some(names) => {
                let codings = context.codings(request, &locked.history(), now_ms);
                let normal = context.rules.normal(codings);
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
            Some(object) => found(context, locked, object, admitted, place, now_ms),
        };
        match (found, spare) {
            (InTable::Met(looked), _) => looked,
            (InTable::Stale(object, head, fwd), spare) => {
                let spare = spare.filter(|spare| !spare.is_recall());
                revalidation(locked, &object, head, place, fwd, spare)
            }
            (InTable::Gone(_), None) => Lookup::Missing,
            (InTable::Gone(fwd), Some(spare)) => register(context, locked, spare, place, fwd),
        }
    })
}

/// What an object in the table means for a request now.
#[inline]
fn found(
    context: &Context,
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
            let about = || circumstances(context, &locked.history(), &object, now_ms);
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
        Phase::Awaiting => {
            InTable::Met(Lookup::Flying(joined(locked, object, place, Fwd::UriMiss)))
        }
        Phase::Refused { reason, until_ms } if is_refused(context, until_ms, now_ms) => {
            pass(Fwd::Miss, reason)
        }
        _ => InTable::Gone(Fwd::Miss),
    }
}

/// Whether a refusal holds: also a clock that was set back makes it last no longer.
fn is_refused(context: &Context, until_ms: u64, now_ms: u64) -> bool {
    let longest_ms = context.rules.pass_for.as_millis() as u64 + resource_history::RETRY_MAX_MS;
    (1..=longest_ms).contains(&until_ms.saturating_sub(now_ms))
}

fn circumstances(
    context: &Context,
    history: &ResourceHistory,
    object: &Object,
    now_ms: u64,
) -> Circumstances {
    Circumstances {
        failing: history.failures > 0,
        resting: resource_history::is_resting(history, now_ms),
        updating: object.revalidation().is_some(),
        updating_ms: context.rules.stale_while_updating.as_millis() as u64,
    }
}

fn register(
    context: &Context,
    locked: &mut Locked<'_>,
    spare: Arc<Object>,
    place: TableKey,
    fwd: Fwd,
) -> Lookup {
    if fwd == Fwd::VaryMiss && locked.variants() >= VARIANTS_MAX && !locked.drop_oldest() {
        return Lookup::Pass(CacheStatus::fwd(fwd).because(Reason::Variants));
    }
    let weight = context.store.weight(&spare.key);
    locked.insert(place.variant, spare.clone(), weight);
    Lookup::New(joined(locked, spare, place, fwd))
}

/// Registers a new object for a flight, unless somebody else just did.
pub(in crate::cache) fn look_up_to_fetch(
    context: &Context,
    request: &Request,
    admitted: &Admitted,
    key: KeyHash,
) -> Lookup {
    if admitted.authorized && !decide::may_take(&request.head.fields, &context.rules) {
        // What comes back could hardly be shared, and would not do for this client.
        return Lookup::Pass(CacheStatus::fwd(Fwd::Bypass).because(Reason::Authorization));
    }
    // Making room may evict, which locks shards: before the critical section.
    match context
        .store
        .create(keys::key_text(context, request).text())
    {
        Some(spare) => look_up(
            context,
            request,
            admitted,
            key,
            context.worker.clock.unix_ms(),
            Some(spare),
        ),
        None => Lookup::Missing,
    }
}

/// A stored response has to be validated: by the fetch that does so already, or by a new one.
fn revalidation(
    locked: &Locked<'_>,
    object: &Arc<Object>,
    head: Arc<Head>,
    place: TableKey,
    fwd: Fwd,
    spare: Option<Arc<Object>>,
) -> Lookup {
    if let Some(running) = object.revalidation() {
        return Lookup::Flying(joined(locked, running, place, fwd));
    }
    let Some(spare) = spare else {
        return Lookup::Stale;
    };
    object.revalidate_with(head, &spare);
    Lookup::New(joined(locked, spare, place, fwd))
}

fn joined(locked: &Locked<'_>, object: Arc<Object>, place: TableKey, fwd: Fwd) -> Joined {
    Joined {
        object,
        place,
        fwd,
        known: Box::new(Known::of(locked)),
    }
}
