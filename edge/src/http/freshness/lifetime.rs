//! Freshness lifetime and age on arrival (RFC 9111 4.2.1 to 4.2.3).

use super::{
    EffectivePolicy, ExchangeTimes, PolicySource, Reason, Source, Terms, clamp_s, date_of,
    is_heuristic,
};
use crate::http::cache_control::{ResponseDirectives, Scope, delta_seconds};
use crate::http::targeted::AccelExpires;
use crate::http::{Fields, Status, date};

/// The freshness lifetime of a response, counted from the time at which the origin generated the
/// response.
pub(super) struct Lifetime {
    pub(super) seconds: u32,
    pub(super) source: Source,
}

impl Lifetime {
    /// Returns the remaining lifetime on arrival in milliseconds; negative if the response was
    /// stale by then.
    pub(super) fn left_ms(&self, age: &Age) -> i64 {
        let lifetime_ms = i64::from(self.seconds) * 1000;
        match self.source {
            Source::AccelExpires => lifetime_ms,
            _ => lifetime_ms.saturating_sub_unsigned(age.initial_ms),
        }
    }
}

/// Returns the lifetime of a response (RFC 9111 4.2.1). The first of these sources that specifies
/// one applies: the selected policy, Expires if that policy is Cache-Control, the configured
/// `valid`, and the heuristic of a tenth of the time since Last-Modified.
///
/// If no source specifies a lifetime, the response is not stored. The exception is `no-cache` with
/// a status that permits heuristic caching (RFC 9111 3): the lifetime is then 0.
pub(super) fn of(
    status: Status,
    response: &Fields,
    force: &EffectivePolicy,
    terms: &Terms<'_>,
    exchanged: ExchangeTimes,
) -> Result<Lifetime, Reason> {
    let directives = &force.policy.directives;
    let heuristic = is_heuristic(status) || directives.public;
    let said = said(response, force, terms, exchanged)
        .or_else(|| Some((clamp_s(terms.valid_s?), Source::Configured)))
        .or_else(|| {
            let seconds = heuristic_s(response, exchanged)?;
            (heuristic && terms.heuristic_max_s > 0).then_some((
                clamp_s(seconds.min(terms.heuristic_max_s)),
                Source::Heuristic,
            ))
        });
    match said {
        Some((0, source)) => Ok(Lifetime { seconds: 0, source }),
        Some((seconds, source)) => {
            let (min, max) = (*terms.lifetime_s.start(), *terms.lifetime_s.end());
            let seconds = clamp_s(u64::from(seconds).max(min).min(max));
            Ok(Lifetime { seconds, source })
        }
        None if heuristic && directives.no_cache == Scope::Whole => Ok(Lifetime {
            seconds: 0,
            source: Source::None,
        }),
        None => Err(Reason::NoLifetime),
    }
}

/// Returns the lifetime that the response itself specifies, in the selected policy or in Expires.
fn said(
    response: &Fields,
    force: &EffectivePolicy,
    terms: &Terms<'_>,
    exchanged: ExchangeTimes,
) -> Option<(u32, Source)> {
    let directives = &force.policy.directives;
    match force.by {
        PolicySource::Targeted => {
            let (seconds, _) = directive_s(directives)?;
            Some((seconds, Source::Targeted))
        }
        PolicySource::Accel(accel) => {
            let seconds = match accel {
                AccelExpires::Never => 0,
                AccelExpires::Seconds(seconds) => seconds,
                AccelExpires::Until(until_s) => {
                    until_s.saturating_sub(exchanged.response_ms / 1000)
                }
            };
            Some((clamp_s(seconds), Source::AccelExpires))
        }
        PolicySource::CacheControl => directive_s(directives).or_else(|| {
            let expires_s = expires_s(response, exchanged).filter(|_| !terms.ignore.expires);
            Some((expires_s?, Source::Expires))
        }),
    }
}

/// Returns the value of `s-maxage`, otherwise of `max-age`.
fn directive_s(directives: &ResponseDirectives) -> Option<(u32, Source)> {
    match directives.s_maxage {
        Some(seconds) => Some((seconds, Source::SMaxage)),
        None => Some((directives.max_age?, Source::MaxAge)),
    }
}

/// Expires minus Date, or minus the time of arrival if Date is missing or invalid (RFC 9110 6.6.1).
/// An invalid or contradictory Expires means "already expired" (RFC 9111 5.3).
fn expires_s(fields: &Fields, exchanged: ExchangeTimes) -> Option<u32> {
    let mut values = fields.get_all("expires");
    let expires = values.next()?;
    if values.any(|other| other != expires) {
        return Some(0);
    }
    let Some(expires_s) = date::parse_expires(expires) else {
        return Some(0);
    };
    Some(clamp_s(
        expires_s.saturating_sub(generated_s(fields, exchanged)),
    ))
}

/// Returns a tenth of the time between Last-Modified and the response's creation (RFC 9111 4.2.2).
fn heuristic_s(fields: &Fields, exchanged: ExchangeTimes) -> Option<u64> {
    let modified_s = fields.get("last-modified").and_then(date::parse)?;
    let unchanged_s = generated_s(fields, exchanged).checked_sub(modified_s)?;
    Some(unchanged_s / 10)
}

/// Date, or the time of arrival if Date is missing or invalid.
fn generated_s(fields: &Fields, exchanged: ExchangeTimes) -> u64 {
    date_of(fields).unwrap_or(exchanged.response_ms / 1000)
}

/// The age of a response on arrival.
pub(super) struct Age {
    /// corrected_initial_age (RFC 9111 4.2.3), milliseconds.
    pub(super) initial_ms: u64,
}

impl Age {
    /// Computes the age on arrival: the larger of the apparent age (arrival minus Date) and the
    /// corrected age (Age plus the duration of the exchange). Negative differences of clocks count
    /// as 0.
    ///
    /// The arrival and Date are compared in whole seconds, so a difference of one second may be a
    /// rounding error and counts as 0. Otherwise a response with a lifetime of one second would
    /// often be stale on arrival.
    pub(super) fn of(fields: &Fields, ignored: bool, exchanged: ExchangeTimes) -> Age {
        let ExchangeTimes {
            request_ms,
            response_ms,
        } = exchanged;
        let apparent_s = match date_of(fields) {
            Some(date_s) => (response_ms / 1000).saturating_sub(date_s),
            None => 0,
        };
        let apparent_s = if apparent_s == 1 { 0 } else { apparent_s };
        let age_s = if ignored { 0 } else { age_s(fields) };
        let delay_ms = response_ms.saturating_sub(request_ms);
        let corrected_ms = (u64::from(age_s) * 1000).saturating_add(delay_ms);
        Age {
            initial_ms: apparent_s.saturating_mul(1000).max(corrected_ms),
        }
    }
}

/// Age in seconds (RFC 9111 5.1); 0 if Age is absent or invalid.
///
/// Of a line with a list, the first member counts, because the nearest cache wrote it. Lines on
/// which that is no non-negative integer are ignored. Of the others the first one counts.
fn age_s(fields: &Fields) -> u32 {
    let first = |line: &[u8]| {
        let member = line.split(|&b| b == b',').next()?;
        delta_seconds(member.trim_ascii())
    };
    fields.get_all("age").find_map(first).unwrap_or(0)
}
