//! Caching rules for one response: whether a shared cache may store it, how long it is fresh and
//! how old it is (RFC 9111 3, 4.2). Times are arguments.

mod lifetime;

use std::ops::RangeInclusive;

use super::cache_control::{Policy, ResponseDirectives, SECONDS_MAX, Scope, named_fields};
use super::conditional::Conditions;
use super::targeted::{self, AccelExpires};
use super::vary::{self, Vary};
use super::{Fields, Status, date};
use crate::reason::Reason;

/// Source of a freshness lifetime, in order of precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// A targeted field (RFC 9213) or Surrogate-Control.
    Targeted,
    /// X-Accel-Expires, which counts from the response's arrival and ignores its age.
    AccelExpires,
    /// `s-maxage`, which applies to shared caches.
    SMaxage,
    /// `max-age`.
    MaxAge,
    /// Expires minus Date.
    Expires,
    /// The configured `valid` of the status.
    Configured,
    /// A tenth of the time since Last-Modified (RFC 9111 4.2.2).
    Heuristic,
    /// No source: the lifetime is 0, and the response is revalidated before each use.
    #[default]
    None,
}

impl Source {
    /// All sources, in the order of their numbers.
    const ALL: [Source; 8] = [
        Source::Targeted,
        Source::AccelExpires,
        Source::SMaxage,
        Source::MaxAge,
        Source::Expires,
        Source::Configured,
        Source::Heuristic,
        Source::None,
    ];

    /// Returns the number of the source in records on volumes.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns the source with this number.
    pub fn of_number(number: u8) -> Option<Source> {
        Source::ALL.get(usize::from(number)).copied()
    }

    /// Returns the name of the source in the admin API.
    pub fn name(self) -> &'static str {
        match self {
            Source::Targeted => "targeted",
            Source::AccelExpires => "x-accel-expires",
            Source::SMaxage => "s-maxage",
            Source::MaxAge => "max-age",
            Source::Expires => "expires",
            Source::Configured => "valid",
            Source::Heuristic => "heuristic",
            Source::None => "none",
        }
    }

    /// Whether the response itself specifies the lifetime.
    pub fn is_explicit(self) -> bool {
        !matches!(self, Source::Configured | Source::Heuristic | Source::None)
    }
}

/// Response headers that the configuration ignores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the field of its name")]
pub struct Ignored {
    pub age: bool,
    /// Cache-Control and Pragma.
    pub cache_control: bool,
    pub expires: bool,
    pub set_cookie: bool,
    /// All targeted fields (RFC 9213).
    pub targeted: bool,
    pub vary: bool,
    pub x_accel_expires: bool,
}

/// Treatment of a response with Set-Cookie (RFC 9111 7.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookie {
    /// The response is not stored.
    #[default]
    Pass,
    /// The response is stored with its cookie.
    Store,
    /// The response is stored without its cookie.
    Remove,
}

/// Unix times in milliseconds at which a request to the origin was sent and its response arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeTimes {
    /// Time at which the request was sent.
    pub request_ms: u64,
    /// Time at which the response's head was complete.
    pub response_ms: u64,
}

/// The configured caching rules that apply to a response. Times in seconds.
#[derive(Clone, Debug)]
pub struct Terms<'a> {
    /// Freshness lifetime, in seconds, of responses with this status that specify none themselves.
    pub valid_s: Option<u64>,
    /// The longest heuristic lifetime; 0 disables heuristics.
    pub heuristic_max_s: u64,
    /// Smallest and largest lifetime; every positive lifetime is clamped to this range.
    pub lifetime_s: RangeInclusive<u64>,
    /// Headers that are ignored.
    pub ignore: Ignored,
    /// Treatment of a response with Set-Cookie.
    pub set_cookie: SetCookie,
    /// stale-while-revalidate of responses that specify none (RFC 5861 3).
    pub stale_while_revalidate_s: u64,
    /// stale-if-error of responses that specify none (RFC 5861 4).
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

/// All caching properties of a response that may be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The freshness lifetime, seconds.
    pub lifetime_s: u32,
    /// Source of the lifetime.
    pub source: Source,
    /// Milliseconds from the response's arrival until it becomes stale; 0 or negative if the
    /// response was stale on arrival.
    pub fresh_ms: i64,
    /// The response's age on arrival, milliseconds (RFC 9111 4.2.3).
    pub initial_age_ms: u64,
    /// Seconds after the end of its lifetime during which the response may be served while it is
    /// revalidated.
    pub swr_s: u32,
    /// Seconds after the end of its lifetime during which the response may be served if the origin
    /// fails.
    pub sie_s: u32,
    /// Whether the response must not be served stale (RFC 9111 4.2.4), except within `swr_s` and
    /// `sie_s`, even if the client or the configuration permits stale responses.
    pub strict: bool,
    /// The response must be revalidated before each use (RFC 9111 5.2.2.4).
    pub no_cache: bool,
    /// The response may be served to requests with Authorization (RFC 9111 3.5).
    pub authorized: bool,
    /// The response does not change while it is fresh (RFC 8246).
    pub immutable: bool,
    /// Names of headers that are not stored: lower case, sorted, without duplicates.
    pub stripped: Vec<String>,
    /// The request headers that select the variant.
    pub vary: Vary,
}

/// Decides whether a shared cache may store this response to a GET and could use the stored
/// response, and computes its caching properties (RFC 9111 3, 4.2). `request` contains the headers
/// of the request to the origin.
pub fn judge(
    request: &Fields,
    status: Status,
    response: &Fields,
    terms: &Terms<'_>,
    exchanged: ExchangeTimes,
) -> Result<Verdict, Reason> {
    let force = EffectivePolicy::of(response, terms)?;
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
        // s-maxage forbids serving the response stale, unless the response also has
        // stale-while-revalidate or stale-if-error.
        () if strict => said.unwrap_or(0),
        () => said.unwrap_or(clamp_s(configured)),
    };
    let swr_s = grace(
        directives.stale_while_revalidate,
        terms.stale_while_revalidate_s,
    );
    let sie_s = grace(directives.stale_if_error, terms.stale_if_error_s);
    let age = lifetime::Age::of(response, terms.ignore.age, exchanged);
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

/// The caching policy that applies to a response, after the configured headers have been ignored.
struct EffectivePolicy {
    policy: Policy,
    by: PolicySource,
}

/// The header that the policy comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PolicySource {
    Targeted,
    Accel(AccelExpires),
    CacheControl,
}

impl EffectivePolicy {
    /// Selects the policy: a targeted field, otherwise X-Accel-Expires, otherwise Cache-Control.
    fn of(response: &Fields, terms: &Terms<'_>) -> Result<EffectivePolicy, Reason> {
        let ignore = &terms.ignore;
        let targeted = match ignore.targeted {
            true => None,
            false => targeted::select(response, terms.targets),
        };
        if let Some(policy) = targeted {
            let by = PolicySource::Targeted;
            return Ok(EffectivePolicy { policy, by });
        }
        let policy = match ignore.cache_control {
            true => Policy::default(),
            false => Policy {
                directives: ResponseDirectives::of(response),
                named: named_fields(response),
            },
        };
        match AccelExpires::of(response).filter(|_| !ignore.x_accel_expires) {
            None => Ok(EffectivePolicy {
                policy,
                by: PolicySource::CacheControl,
            }),
            Some(AccelExpires::Never) => Err(Reason::NoStore),
            Some(accel) => Ok(EffectivePolicy {
                policy: under_accel(policy),
                by: PolicySource::Accel(accel),
            }),
        }
    }
}

/// Returns the directives of Cache-Control that still apply if the response has X-Accel-Expires. As
/// in nginx, X-Accel-Expires alone decides whether and for how long a response is stored.
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
        // 304 updates another response. 401, 407 and 511 ask one client to authenticate. The other
        // statuses depend on parts of the request that are not in the key (RFC 6585 forbids storing
        // four of them).
        304 | 401 | 407 | 408 | 412 | 413 | 416 | 417 | 421 | 425 | 426 | 428 | 429 | 431 | 511 => {
            Err(Reason::StatusNotStorable)
        }
        _ if directives.must_understand && !is_understood(status) => Err(Reason::StatusNotStorable),
        _ => Ok(()),
    }
}

/// Statuses that this cache understands (RFC 9110 15) and that require no special handling by a
/// cache.
fn is_understood(status: Status) -> bool {
    matches!(
        status,
        200..=205 | 300..=303 | 307 | 308 | 400 | 402..=406 | 409..=411 | 414 | 415 | 422 | 451
            | 500..=505
    )
}

/// Statuses for which a heuristic lifetime is permitted without `public` (RFC 9110 15.1). A 206 is
/// judged as the 200 of which it is a part.
fn is_heuristic(status: Status) -> bool {
    matches!(
        status,
        200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

fn check_directives(status: Status, directives: &ResponseDirectives) -> Result<(), Reason> {
    // If the response has must-understand, its no-store applies only to caches that do not
    // understand the status (RFC 9111 5.2.2.3).
    if directives.no_store && !(directives.must_understand && is_understood(status)) {
        return Err(Reason::NoStore);
    }
    if directives.private == Scope::Whole {
        return Err(Reason::Private);
    }
    Ok(())
}

/// Returns the headers that are not stored: those named by `private` and `no-cache` (RFC 9111
/// 5.2.2.4, 5.2.2.7), and Set-Cookie if it is to be removed.
fn stripped(response: &Fields, policy: &Policy, terms: &Terms<'_>) -> Result<Vec<String>, Reason> {
    let mut names = policy.named.clone();
    names.sort_unstable();
    names.dedup();
    let cookie = "set-cookie";
    let honoured = response.contains(cookie) && !terms.ignore.set_cookie;
    if let (true, Err(at)) = (
        honoured,
        names.binary_search_by(|name| (**name).cmp(cookie)),
    ) {
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

/// Rejects a response that the cache could never use: one that is neither fresh, nor can be
/// revalidated, nor may be served stale.
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

/// Date in Unix seconds, if it is valid.
pub fn date_of(fields: &Fields) -> Option<u64> {
    fields.get("date").and_then(date::parse)
}

fn clamp_s(seconds: u64) -> u32 {
    seconds.min(u64::from(SECONDS_MAX)) as u32
}

#[cfg(test)]
mod tests;
