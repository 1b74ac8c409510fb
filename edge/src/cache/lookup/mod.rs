//! Looks up requests: finds the object for a request's key, Vary and codings, and decides whether
//! it may be served. If a fetch is needed, an object for it is registered.

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

/// The result of a lookup.
pub(in crate::cache) enum Lookup {
    /// A response that may be served. Its bytes may be stored, being fetched, or missing.
    Stored(Found),
    /// An object without a head, which another request's flight is fetching.
    Flying(Joined),
    /// A placeholder for an object whose head is being read from a volume. After the read, the
    /// request is looked up again.
    Recalled(Arc<Object>),
    /// An object that was registered in the table so that this request fetches it.
    New(Joined),
    /// Nothing usable is in the table, and the caller passed no spare object to register.
    Missing,
    /// The stored response must be validated first, and the caller passed no spare object to
    /// register for that.
    Stale,
    /// The request is forwarded to the origin by itself, with this Cache-Status.
    Pass(CacheStatus),
}

/// An object to ride, its key, and what the table knows of its resource.
pub(in crate::cache) type Target = (Arc<Object>, TableKey, Option<Box<Known>>);

/// An object without a head, and what the table knew of its resource under the same lock.
pub(in crate::cache) struct Joined {
    pub(in crate::cache) object: Arc<Object>,
    pub(in crate::cache) place: TableKey,
    /// The reason for the fetch, as Cache-Status reports it.
    pub(in crate::cache) fwd: Fwd,
    pub(in crate::cache) known: Box<Known>,
}

impl Joined {
    /// Splits into the object to ride, with its key and history, and the reason made by `why`.
    pub(in crate::cache) fn into_parts<W>(self, why: impl FnOnce(Fwd) -> W) -> (Target, W) {
        let target = (self.object, self.place, Some(self.known));
        (target, why(self.fwd))
    }
}

/// The history and the Vary names of a resource, as the table knows them.
#[derive(Clone, Default)]
pub(in crate::cache) struct Known {
    pub(in crate::cache) history: ResourceHistory,
    /// The names in the Vary of the resource's responses.
    pub(in crate::cache) vary: Option<VaryNames>,
}

impl Known {
    fn of(locked: &Locked<'_>) -> Known {
        Known {
            history: locked.history(),
            vary: locked.vary().cloned(),
        }
    }

    /// Reads the history and the Vary names from the table.
    pub(in crate::cache) fn now(context: &Context, place: TableKey) -> Known {
        context
            .store
            .enter(place.primary, |locked| Known::of(locked))
    }
}

/// A stored response that may be served.
pub(in crate::cache) struct Found {
    pub(in crate::cache) object: Arc<Object>,
    pub(in crate::cache) head: Arc<Head>,
    pub(in crate::cache) place: TableKey,
    pub(in crate::cache) how: How,
}

/// The reason why a stored response may be served.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::cache) enum How {
    Fresh,
    /// The response is stale, and is served for this reason.
    Stale {
        reason: Reason,
        /// Whether the response is to be revalidated in the background.
        revalidate: bool,
    },
    /// The origin has just confirmed the response, in a fetch for this request or for another.
    Confirmed {
        fwd: Fwd,
        collapsed: bool,
    },
    /// The origin has just failed in a fetch for this request or for another.
    OnError {
        fwd: Fwd,
        collapsed: bool,
    },
}

impl How {
    /// Makes the Cache-Status of a response that is served for this reason.
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

/// The state of a request's object in the table.
enum InTable {
    /// The result of the lookup is known.
    Met(Lookup),
    /// A response is stored and must be validated before it is served.
    Stale(Arc<Object>, Arc<Head>, Fwd),
    /// Nothing usable is stored.
    Gone(Fwd),
}

/// Looks a request up. If there is nothing usable, a `spare` object is registered for a flight in
/// the same critical section.
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

/// Decides whether an object in the table may be used for a request.
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
        // The response that is being fetched may not be for requests with credentials.
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

/// Whether a refusal is still in force. A refusal that would last longer than any configured time
/// is not, since then the clock was set back.
fn is_refused(context: &Context, until_ms: u64, now_ms: u64) -> bool {
    let longest_ms = context.rules.hit_for_pass.as_millis() as u64 + resource_history::RETRY_MAX_MS;
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
        updating_ms: context.rules.stale.while_updating.as_millis() as u64,
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

/// Registers a new object for a flight, unless another request has just done so.
pub(in crate::cache) fn look_up_to_fetch(
    context: &Context,
    request: &Request,
    admitted: &Admitted,
    key: KeyHash,
) -> Lookup {
    if admitted.authorized && !decide::may_take(&request.head.fields, &context.rules) {
        // The response to a request with credentials can hardly be shared, and this client could
        // not have it either.
        return Lookup::Pass(CacheStatus::fwd(Fwd::Bypass).because(Reason::Authorization));
    }
    // Creating an object may evict others, which locks shards, so the object is created before the
    // lookup locks its shard.
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

/// Joins the fetch that validates a stored response, or registers a new one.
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
