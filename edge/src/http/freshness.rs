//! What caching rules say about one response: whether a shared cache may store it, for how long it is
//! fresh and how old it is (RFC 9111 3, 4.2). Times are passed in.

mod lifetime;

use crate::reason::Reason;

use std::ops::RangeInclusive;

use super::cache_control::{ResponseDirectives, SECONDS_MAX, Scope, named_fields};
use super::conditional::Conditions;
use super::targeted::{self, AccelExpires, Policy};
use super::vary::{self, Vary};
use super::{Fields, Status, date};

/// What a lifetime comes from, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A targeted field (RFC 9213) or Surrogate-Control.
    Targeted,
    /// X-Accel-Expires; it counts from the arrival, whatever the response's age.
    AccelExpires,
    /// `s-maxage`, which is for shared caches.
    SMaxage,
    /// `max-age`.
    MaxAge,
    /// Expires less Date.
    Expires,
    /// The configured `valid` of the status.
    Configured,
    /// A tenth of the time since Last-Modified (RFC 9111 4.2.2).
    Heuristic,
    /// Nobody: 0 s, for what is validated before each use.
    Nobody,
}

impl Source {
    /// Whether the response itself says so.
    pub fn is_explicit(self) -> bool {
        !matches!(
            self,
            Source::Configured | Source::Heuristic | Source::Nobody
        )
    }

    /// The word for people and logs.
    pub fn word(self) -> &'static str {
        match self {
            Source::Targeted => "targeted",
            Source::AccelExpires => "x-accel-expires",
            Source::SMaxage => "s-maxage",
            Source::MaxAge => "max-age",
            Source::Expires => "expires",
            Source::Configured => "valid",
            Source::Heuristic => "heuristic",
            Source::Nobody => "none",
        }
    }
}

/// Response fields that the configuration has not heeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the field of its name")]
pub struct Ignored {
    pub age: bool,
    /// Pragma included.
    pub cache_control: bool,
    pub expires: bool,
    pub set_cookie: bool,
    /// All targeted fields (RFC 9213).
    pub targeted: bool,
    pub vary: bool,
    pub x_accel_expires: bool,
}

/// What becomes of a response that sets a cookie (RFC 9111 7.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookie {
    /// It is not stored.
    #[default]
    Pass,
    /// It is stored, cookie and all.
    Store,
    /// It is stored without the cookie.
    Remove,
}

/// When the exchange with the origin took place, Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// When the request was sent.
    pub request_ms: u64,
    /// When the response's head had arrived.
    pub response_ms: u64,
}

/// What the configuration says about a response. Times in seconds.
#[derive(Clone, Debug)]
pub struct Terms<'a> {
    /// The lifetime of responses with this status that give none.
    pub valid_s: Option<u64>,
    /// The longest heuristic lifetime; 0: none.
    pub heuristic_max_s: u64,
    /// What every positive lifetime is brought into.
    pub lifetime_s: RangeInclusive<u64>,
    /// Fields that are not heeded.
    pub ignore: Ignored,
    /// What becomes of a response that sets a cookie.
    pub set_cookie: SetCookie,
    /// Grace where the response does not say (RFC 5861 3).
    pub stale_while_revalidate_s: u64,
    /// Grace where the response does not say (RFC 5861 4).
    pub stale_if_error_s: u64,
    /// Targeted fields, lower case, in order of preference (RFC 9213 2.2).
    pub targets: &'a [Box<str>],
}

impl Default for Terms<'_> {
    fn default() -> Self {
        Terms {
            valid_s: None,
            heuristic_max_s: 0,
            lifetime_s: 0..=u64::MAX,
            ignore: Ignored::default(),
            set_cookie: SetCookie::default(),
            stale_while_revalidate_s: 0,
            stale_if_error_s: 0,
            targets: &[],
        }
    }
}

/// Everything caching rules say about one response that may be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The freshness lifetime, seconds.
    pub lifetime_s: u32,
    /// What said so.
    pub source: Source,
    /// How long it is fresh, milliseconds from its arrival on; 0 or less: it was stale then, for so
    /// long.
    pub fresh_ms: i64,
    /// How old it was on arrival, milliseconds (RFC 9111 4.2.3).
    pub initial_age_ms: u64,
    /// For how many seconds past its lifetime it may be given while it is revalidated.
    pub swr_s: u32,
    /// For how many seconds past its lifetime it may be given when the origin fails.
    pub sie_s: u32,
    /// It must not be given stale (RFC 9111 4.2.4), whoever asks or allows it, but within `swr_s` and
    /// `sie_s`.
    pub strict: bool,
    /// It is validated before each use (RFC 9111 5.2.2.4).
    pub no_cache: bool,
    /// It may answer requests with Authorization (RFC 9111 3.5).
    pub authorized: bool,
    /// It does not change while it is fresh (RFC 8246).
    pub immutable: bool,
    /// Names of fields that are not stored with it: lower case, sorted, each once.
    pub stripped: Vec<String>,
    /// The request fields by which it varies.
    pub vary: Vary,
}

/// Whether a shared cache may store this response to a GET and has a use for it, and all that it has
/// to know about it then (RFC 9111 3, 4.2). `request` are the fields that were sent for it.
pub fn judge(
    request: &Fields,
    status: Status,
    response: &Fields,
    terms: &Terms<'_>,
    exchanged: Exchanged,
) -> Result<Verdict, Reason> {
    let force = InForce::of(response, terms)?;
    let directives = &force.policy.directives;
    check_status(status, directives)?;
    check_directives(status, directives)?;
    let authorized = directives.is_for_all();
    if request.contains("authorization") && !(authorized && (200..400).contains(&status)) {
        return Err(Reason::Authorization);
    }
    let stripped = stripped(response, &force.policy, terms)?;
    let vary = vary_of(response, terms)?;
    let no_cache = directives.no_cache == Scope::Whole;
    let lifetime = lifetime::of(status, response, &force, terms, exchanged)?;
    let strict = directives.is_strict();
    let grace = |said: Option<u32>, configured| match () {
        () if directives.must_be_validated() => 0,
        // s-maxage forbids what is stale unless the same response names when it is allowed.
        () if strict => said.unwrap_or(0),
        () => said.unwrap_or(clamp_s(configured)),
    };
    let swr_s = grace(
        directives.stale_while_revalidate,
        terms.stale_while_revalidate_s,
    );
    let sie_s = grace(directives.stale_if_error, terms.stale_if_error_s);
    let useful_s = u64::from(lifetime.seconds) + u64::from(swr_s.max(sie_s));
    let age = lifetime::Age::of(response, terms.ignore.age, exchanged).or_beyond(useful_s);
    let verdict = Verdict {
        lifetime_s: lifetime.seconds,
        source: lifetime.source,
        fresh_ms: lifetime.left_ms(&age),
        initial_age_ms: age.initial_ms,
        swr_s,
        sie_s,
        strict,
        no_cache,
        authorized,
        immutable: directives.immutable,
        stripped,
        vary,
    };
    check_use(response, &verdict)?;
    Ok(verdict)
}

/// What the response's own words come to, after the configuration has had some of them ignored.
struct InForce {
    policy: Policy,
    by: By,
}

/// Which field the policy is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Targeted,
    Accel(AccelExpires),
    CacheControl,
}

impl InForce {
    /// A targeted field, else X-Accel-Expires, else Cache-Control.
    fn of(response: &Fields, terms: &Terms<'_>) -> Result<InForce, Reason> {
        let ignore = &terms.ignore;
        let targeted = match ignore.targeted {
            true => None,
            false => targeted::select(response, terms.targets),
        };
        if let Some(policy) = targeted {
            let by = By::Targeted;
            return Ok(InForce { policy, by });
        }
        let policy = match ignore.cache_control {
            true => Policy::default(),
            false => Policy {
                directives: ResponseDirectives::of(response),
                named: named_fields(response),
            },
        };
        match AccelExpires::of(response).filter(|_| !ignore.x_accel_expires) {
            None => Ok(InForce {
                policy,
                by: By::CacheControl,
            }),
            Some(AccelExpires::Never) => Err(Reason::NoStore),
            Some(accel) => Ok(InForce {
                policy: under_accel(policy),
                by: By::Accel(accel),
            }),
        }
    }
}

/// What is left of Cache-Control beside X-Accel-Expires, which as with nginx says in its stead
/// whether and for how long a response is stored.
fn under_accel(policy: Policy) -> Policy {
    Policy {
        directives: ResponseDirectives {
            max_age: None,
            s_maxage: None,
            no_cache: policy.directives.no_cache.min(Scope::Fields),
            private: policy.directives.private.min(Scope::Fields),
            no_store: false,
            must_understand: false,
            ..policy.directives
        },
        ..policy
    }
}

fn check_status(status: Status, directives: &ResponseDirectives) -> Result<(), Reason> {
    match status {
        ..200 => Err(Reason::InterimResponse),
        206 => Err(Reason::PartialContent),
        // 304 is a part of something else; 401, 407 and 511 ask one client to authenticate; the
        // others answer what the key does not hold (RFC 6585 forbids four of them).
        304 | 401 | 407 | 408 | 412 | 413 | 416 | 417 | 421 | 425 | 426 | 428 | 429 | 431 | 511 => {
            Err(Reason::StatusNotStorable)
        }
        _ if directives.must_understand && !is_understood(status) => Err(Reason::StatusNotStorable),
        _ => Ok(()),
    }
}

/// Statuses that this cache knows (RFC 9110 15) and that ask nothing special of a cache.
fn is_understood(status: Status) -> bool {
    matches!(
        status,
        200..=205 | 300..=303 | 307 | 308 | 400 | 402..=406 | 409..=411 | 414 | 415 | 422 | 451
            | 500..=505
    )
}

/// Statuses that may be given a heuristic lifetime without being asked to (RFC 9110 15.1). Parts are
/// judged as the 200 that they are parts of.
fn is_heuristic(status: Status) -> bool {
    matches!(
        status,
        200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

fn check_directives(status: Status, directives: &ResponseDirectives) -> Result<(), Reason> {
    // With must-understand, no-store is meant for caches that do not know the status
    // (RFC 9111 5.2.2.3).
    if directives.no_store && !(directives.must_understand && is_understood(status)) {
        return Err(Reason::NoStore);
    }
    if directives.private == Scope::Whole {
        return Err(Reason::Private);
    }
    Ok(())
}

/// The fields that are not stored: those that `private` and `no-cache` name (RFC 9111 5.2.2.4,
/// 5.2.2.7), and the cookie where it is to be removed.
fn stripped(response: &Fields, policy: &Policy, terms: &Terms<'_>) -> Result<Vec<String>, Reason> {
    let mut names = policy.named.clone();
    names.sort_unstable();
    names.dedup();
    let cookie = "set-cookie";
    let heeded = response.contains(cookie) && !terms.ignore.set_cookie;
    if let (true, Err(at)) = (heeded, names.binary_search_by(|name| (**name).cmp(cookie))) {
        match terms.set_cookie {
            SetCookie::Pass => return Err(Reason::SetCookie),
            SetCookie::Store => {}
            SetCookie::Remove => names.insert(at, cookie.to_owned()),
        }
    }
    Ok(names)
}

fn vary_of(response: &Fields, terms: &Terms<'_>) -> Result<Vary, Reason> {
    if terms.ignore.vary {
        return Ok(Vary::default());
    }
    Vary::of(response).map_err(|error| match error {
        vary::Error::Any => Reason::VaryAny,
        vary::Error::TooMany | vary::Error::BadName => Reason::VaryBad,
    })
}

/// Of use is what is fresh, what can be validated, and what may still be given stale.
fn check_use(response: &Fields, verdict: &Verdict) -> Result<(), Reason> {
    let validated = !Conditions::of_response(response).is_empty();
    if validated || (verdict.fresh_ms > 0 && !verdict.no_cache) {
        return Ok(());
    }
    if verdict.no_cache {
        return Err(Reason::NoCache);
    }
    let grace_ms = i64::from(verdict.swr_s.max(verdict.sie_s)) * 1000;
    match verdict.fresh_ms.saturating_neg() < grace_ms {
        true => Ok(()),
        false => Err(Reason::Expired),
    }
}

/// Date in Unix seconds, when there is a valid one.
pub fn date_of(fields: &Fields) -> Option<u64> {
    fields.get("date").and_then(date::parse)
}

/// current_age in milliseconds (RFC 9111 4.2.3) at `now_ms`.
pub fn current_age_ms(initial_age_ms: u64, response_ms: u64, now_ms: u64) -> u64 {
    initial_age_ms.saturating_add(now_ms.saturating_sub(response_ms))
}

fn clamp_s(seconds: u64) -> u32 {
    seconds.min(u64::from(SECONDS_MAX)) as u32
}

#[cfg(test)]
mod tests;
