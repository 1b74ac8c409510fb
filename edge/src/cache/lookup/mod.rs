//! Looks up requests: finds the object for a request's key, Vary and codings, and decides whether
//! it may be served. If a fetch is needed, an object for it is registered.

pub(in crate::cache) mod keys;

use std::sync::Arc;

use crate::cache::context::Context;
use crate::cache::decide::admission::Admitted;
use crate::cache::decide::reuse::{self, Circumstances, Reuse};
use crate::cache::decide::shared_request;
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
    InFlight(Joined),
    /// A placeholder for an object whose head is being read from a volume. After the read, the
    /// request is looked up again.
    Recalled(Arc<Object>),
    /// An object that was registered in the table so that this request fetches it.
    New(Joined),
    /// Nothing usable is in the table, and the caller passed no spare object to register.
    Missing {
        /// Whether a volume has a head for the key.
        on_disk: bool,
        /// The reason for a fetch, as Cache-Status reports it.
        fwd: Fwd,
    },
    /// The stored response must be validated first, for this reason, and the caller passed no spare
    /// object to register for that.
    Stale(Fwd),
    /// The request is forwarded to the origin separately, with this Cache-Status.
    Pass(CacheStatus),
}

/// An object to ride, its key, and what the table knows of its resource.
pub(in crate::cache) type Target = (Arc<Object>, TableKey, Option<Box<Known>>);

/// An object without a head, and what the table knew of its resource under the same lock.
pub(in crate::cache) struct Joined {
    pub(in crate::cache) object: Arc<Object>,
    pub(in crate::cache) table_key: TableKey,
    /// The reason for the fetch, as Cache-Status reports it.
    pub(in crate::cache) fwd: Fwd,
    pub(in crate::cache) known: Box<Known>,
}

impl Joined {
    /// Splits into the object to ride, with its key and history, and the reason made by `why`.
    pub(in crate::cache) fn into_parts<W>(self, why: impl FnOnce(Fwd) -> W) -> (Target, W) {
        let target = (self.object, self.table_key, Some(self.known));
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
    pub(in crate::cache) fn now(context: &Context, table_key: TableKey) -> Known {
        context
            .store
            .enter(table_key.primary, |locked| Known::of(locked))
    }
}

/// A stored response that may be served.
pub(in crate::cache) struct Found {
    pub(in crate::cache) object: Arc<Object>,
    pub(in crate::cache) head: Arc<Head>,
    pub(in crate::cache) table_key: TableKey,
    pub(in crate::cache) freshness: Freshness,
}

/// The reason why a stored response may be served.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::cache) enum Freshness {
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

impl Freshness {
    /// Makes the Cache-Status of a response that is served for this reason.
    #[inline]
    pub(in crate::cache) fn status(self, head: &Head, now_ms: u64) -> CacheStatus {
        let left_s = (head.fresh_until_ms as i64 - now_ms as i64).div_euclid(1000);
        match self {
            Freshness::Fresh => CacheStatus::hit(left_s),
            Freshness::Stale { reason, .. } => CacheStatus::hit(left_s).because(reason),
            Freshness::Confirmed { fwd, collapsed } => {
                let mut status = CacheStatus::fwd(fwd);
                status.fwd_status = Some(304);
                status.collapsed = collapsed;
                status
            }
            Freshness::OnError { fwd, collapsed } => {
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
    Result(Lookup),
    /// A response is stored and must be validated before it is served.
    Stale(Arc<Object>, Arc<Head>, Fwd),
    /// Nothing usable is stored.
    Nothing(Fwd),
}

/// Looks a request up. If there is nothing usable, a `spare` object is registered for a flight in
/// the same critical section.
#[inline]
pub(in crate::cache) fn look_up(
    context: &Context,
    request: &Request,
    admitted: &Admitted,
    key: KeyHash,
    now_ms: u64,
    spare: Option<Arc<Object>>,
) -> Lookup {
    let find = |locked: &mut Locked<'_>, variant| locked.find(variant);
    look_up_by(context, request, admitted, key, now_ms, spare, find)
}

/// A lookup that registers nothing and counts as no use, and what it saw.
pub(in crate::cache) struct Peeked {
    pub(in crate::cache) looked: Lookup,
    /// The variant that the request selects.
    pub(in crate::cache) variant: u128,
    /// The names in the Vary of the resource's responses.
    pub(in crate::cache) vary: Option<VaryNames>,
    /// The object that the table has for the request, usable or not.
    pub(in crate::cache) object: Option<Arc<Object>>,
}

/// Looks a request up without any effect on later requests.
pub(in crate::cache) fn peek(
    context: &Context,
    request: &Request,
    admitted: &Admitted,
    key: KeyHash,
    now_ms: u64,
) -> Peeked {
    let (mut seen, mut vary, mut object) = (0, None, None);
    let find = |locked: &mut Locked<'_>, variant| {
        (seen, vary) = (variant, locked.vary().cloned());
        object = locked.peek(variant);
        object.clone()
    };
    let looked = look_up_by(context, request, admitted, key, now_ms, None, find);
    Peeked {
        looked,
        variant: seen,
        vary,
        object,
    }
}

#[inline]
fn look_up_by(
    context: &Context,
    request: &Request,
    admitted: &Admitted,
    key: KeyHash,
    now_ms: u64,
    spare: Option<Arc<Object>>,
    find: impl FnOnce(&mut Locked<'_>, u128) -> Option<Arc<Object>>,
) -> Lookup {
    let store = &context.store;
    let mut looked = store.enter(key.0, |locked| {
        let variant = match locked.vary() {
            None => 0,
            Some(names) => {
                let codings = context.codings(request, &locked.history(), now_ms);
                let normal = context.rules.normal(codings);
                decide::variant(key, names, &request.head.fields, normal)
            }
        };
        let table_key = TableKey {
            primary: key.0,
            variant,
        };
        let found = match find(locked, variant) {
            None if locked.vary().is_none() || locked.variants() == 0 => {
                InTable::Nothing(Fwd::UriMiss)
            }
            None => InTable::Nothing(Fwd::VaryMiss),
            Some(object) => found(context, locked, object, admitted, table_key, now_ms),
        };
        let fwd = match &found {
            InTable::Stale(object, _, fwd) if object.revalidation().is_none() => Some(*fwd),
            InTable::Nothing(fwd) => Some(*fwd),
            InTable::Stale(..) | InTable::Result(_) => None,
        };
        if let Some(fwd) = fwd {
            let names = locked.vary().map_or(&[][..], |names| names);
            let history = locked.history();
            let reason = match shared_request::leaves_out_vary(&request.head, names, &context.rules)
            {
                true => Some(Reason::LongHeader),
                false => refusal(context, request, names, &history, variant, now_ms),
            };
            if let Some(reason) = reason {
                return Lookup::Pass(CacheStatus::fwd(fwd).because(reason));
            }
        }
        match (found, spare) {
            (InTable::Result(looked), _) => looked,
            (InTable::Stale(object, head, fwd), spare) => {
                let spare = spare.filter(|spare| !spare.is_recall());
                revalidation(locked, &object, head, table_key, fwd, spare)
            }
            (InTable::Nothing(fwd), None) => Lookup::Missing {
                on_disk: false,
                fwd,
            },
            (InTable::Nothing(fwd), Some(spare)) => {
                register(context, locked, spare, table_key, fwd)
            }
        }
    });
    if let Lookup::Missing { on_disk, .. } = &mut looked {
        *on_disk = store.is_on_disk(key.0);
    }
    looked
}

/// Returns the reason for which the origin has just refused a neutral fetch, if it would refuse one
/// for this request too. Then the request is forwarded. `names` are the names in the resource's Vary.
pub(in crate::cache) fn refusal(
    context: &Context,
    request: &Request,
    names: &[Box<str>],
    history: &ResourceHistory,
    variant: u128,
    now_ms: u64,
) -> Option<Reason> {
    let refusal = resource_history::refusal(history, variant, now_ms)?;
    let rules = &context.rules;
    let applies =
        !refusal.incomplete || shared_request::has_forwarded_headers(&request.head, names, rules);
    applies.then_some(refusal.reason)
}

/// Decides whether an object in the table may be used for a request.
#[inline]
fn found(
    context: &Context,
    locked: &Locked<'_>,
    object: Arc<Object>,
    admitted: &Admitted,
    table_key: TableKey,
    now_ms: u64,
) -> InTable {
    let pass = |fwd, reason| InTable::Result(Lookup::Pass(CacheStatus::fwd(fwd).because(reason)));
    match object.phase() {
        Phase::Open(head) if admitted.authorized && !head.authorized => {
            pass(Fwd::Bypass, Reason::Authorization)
        }
        Phase::Open(head) => {
            let about = || circumstances(context, &locked.history(), &object, table_key, now_ms);
            let freshness = match reuse::judge(&head, admitted, now_ms, about) {
                Reuse::Fresh => Freshness::Fresh,
                Reuse::Stale { reason, revalidate } => Freshness::Stale { reason, revalidate },
                Reuse::Validate(fwd) => return InTable::Stale(object, head, fwd),
            };
            InTable::Result(Lookup::Stored(Found {
                object,
                head,
                table_key,
                freshness,
            }))
        }
        Phase::Awaiting if object.is_recall() => InTable::Result(Lookup::Recalled(object)),
        // The response that is being fetched may not be for requests with credentials.
        Phase::Awaiting if admitted.authorized => pass(Fwd::Bypass, Reason::Authorization),
        Phase::Awaiting => InTable::Result(Lookup::InFlight(joined(
            locked,
            object,
            table_key,
            Fwd::UriMiss,
        ))),
        Phase::Refused {
            reason, until_ms, ..
        } if is_refused(context, until_ms, now_ms) => pass(Fwd::Miss, reason),
        _ => InTable::Nothing(Fwd::Miss),
    }
}

/// Whether requests for this key are still forwarded separately, because the last response may not
/// be shared (hit-for-pass). If the time left is longer than any such time can be, the clock was
/// set back, and the time counts as over.
fn is_refused(context: &Context, until_ms: u64, now_ms: u64) -> bool {
    let longest_ms = context.rules.hit_for_pass.as_millis() as u64 + resource_history::RETRY_MAX_MS;
    (1..=longest_ms).contains(&until_ms.saturating_sub(now_ms))
}

fn circumstances(
    context: &Context,
    history: &ResourceHistory,
    object: &Object,
    table_key: TableKey,
    now_ms: u64,
) -> Circumstances {
    Circumstances {
        failing: history.failures > 0,
        resting: resource_history::is_resting(history, table_key.variant, now_ms),
        updating: object.revalidation().is_some(),
        updating_ms: context.rules.stale.while_updating.as_millis() as u64,
    }
}

fn register(
    context: &Context,
    locked: &mut Locked<'_>,
    spare: Arc<Object>,
    table_key: TableKey,
    fwd: Fwd,
) -> Lookup {
    if fwd == Fwd::VaryMiss && locked.variants() >= VARIANTS_MAX && !locked.drop_oldest() {
        return Lookup::Pass(CacheStatus::fwd(fwd).because(Reason::Variants));
    }
    let weight = context.store.weight(&spare.key);
    locked.insert(table_key.variant, spare.clone(), weight);
    Lookup::New(joined(locked, spare, table_key, fwd))
}

/// Whether a request without a usable response is passed to the origin rather than fetched for all.
pub(in crate::cache) fn must_be_passed(
    context: &Context,
    request: &Request,
    admitted: &Admitted,
) -> Option<CacheStatus> {
    // The response to a request with credentials can hardly be shared, and this client could not have
    // it either.
    let is_private =
        admitted.authorized && !shared_request::may_take(&request.head.fields, &context.rules);
    is_private.then(|| CacheStatus::fwd(Fwd::Bypass).because(Reason::Authorization))
}

/// Registers a new object for a flight, unless another request has just done so.
pub(in crate::cache) fn look_up_to_fetch(
    context: &Context,
    request: &Request,
    admitted: &Admitted,
    key: KeyHash,
) -> Lookup {
    if let Some(status) = must_be_passed(context, request, admitted) {
        return Lookup::Pass(status);
    }
    // Creating an object may evict others, which locks shards, so the object is created before the
    // lookup locks its shard.
    match context
        .store
        .create(keys::key_text(&context.rules.key, request).text())
    {
        Some(spare) => look_up(
            context,
            request,
            admitted,
            key,
            context.worker.clock.unix_ms(),
            Some(spare),
        ),
        None => Lookup::Missing {
            on_disk: false,
            fwd: Fwd::Miss,
        },
    }
}

/// Joins the fetch that validates a stored response, or registers a new one.
fn revalidation(
    locked: &Locked<'_>,
    object: &Arc<Object>,
    head: Arc<Head>,
    table_key: TableKey,
    fwd: Fwd,
    spare: Option<Arc<Object>>,
) -> Lookup {
    if let Some(running) = object.revalidation() {
        return Lookup::InFlight(joined(locked, running, table_key, fwd));
    }
    let Some(spare) = spare else {
        return Lookup::Stale(fwd);
    };
    object.revalidate_with(head, &spare);
    Lookup::New(joined(locked, spare, table_key, fwd))
}

fn joined(locked: &Locked<'_>, object: Arc<Object>, table_key: TableKey, fwd: Fwd) -> Joined {
    Joined {
        object,
        table_key,
        fwd,
        known: Box::new(Known::of(locked)),
    }
}
