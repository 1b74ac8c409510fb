//! Freshness, age and storability for a shared cache (RFC 9111 3, 4.2). Times are passed in.

use super::cache_control::{RequestDirectives, ResponseDirectives, SECONDS_MAX, Scope};
use super::vary::{self, Vary};
use super::{Fields, Method, Status, date};

/// How long a response is fresh, counted from when the origin generated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Seconds.
    pub seconds: u32,
    /// What said so.
    pub source: Source,
}

/// What a lifetime comes from, in the order of RFC 9111 4.2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `s-maxage`, which is for shared caches.
    SMaxage,
    /// `max-age`.
    MaxAge,
    /// Expires less Date.
    Expires,
    /// The configured `valid` of the status.
    Configured,
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

/// How long this response is fresh (RFC 9111 4.2.1): s-maxage, else max-age, else Expires less
/// Date, else `valid_s`, the configuration's word for its status. `None`: nobody says.
pub fn lifetime(
    fields: &Fields,
    directives: &ResponseDirectives,
    valid_s: Option<u64>,
    exchanged: Exchanged,
) -> Option<Lifetime> {
    let of = |seconds, source| Some(Lifetime { seconds, source });
    if let Some(seconds) = directives.s_maxage {
        return of(seconds, Source::SMaxage);
    }
    if let Some(seconds) = directives.max_age {
        return of(seconds, Source::MaxAge);
    }
    if let Some(seconds) = expires_s(fields, exchanged) {
        return of(seconds, Source::Expires);
    }
    of(clamp_s(valid_s?), Source::Configured)
}

/// Expires less Date, or less the time of arrival where there is no valid Date (RFC 9110 6.6.1).
/// Invalid or contradictory ones mean "already expired" (RFC 9111 5.3).
fn expires_s(fields: &Fields, exchanged: Exchanged) -> Option<u32> {
    let mut values = fields.get_all("expires");
    let expires = values.next()?;
    if values.any(|other| other != expires) {
        return Some(0);
    }
    let Some(expires_s) = date::parse(expires) else {
        return Some(0);
    };
    let from_s = date_of(fields).unwrap_or(exchanged.response_ms / 1000);
    Some(clamp_s(expires_s.saturating_sub(from_s)))
}

/// Date in Unix seconds, when there is a valid one.
pub fn date_of(fields: &Fields) -> Option<u64> {
    fields.get("date").and_then(date::parse)
}

fn clamp_s(seconds: u64) -> u32 {
    seconds.min(u64::from(SECONDS_MAX)) as u32
}

/// corrected_initial_age in milliseconds (RFC 9111 4.2.3): how old the response was on arrival.
///
/// The larger of what our clock says against Date, and of what its Age says plus the whole time
/// the exchange took. Clocks that went backwards count as no time.
pub fn initial_age_ms(fields: &Fields, exchanged: Exchanged) -> u64 {
    let Exchanged {
        request_ms,
        response_ms,
    } = exchanged;
    // Date counts whole seconds, so our clock is read in whole seconds against it.
    let apparent_age_s =
        date_of(fields).map_or(0, |date_s| (response_ms / 1000).saturating_sub(date_s));
    let response_delay_ms = response_ms.saturating_sub(request_ms);
    let corrected_age_ms = (age_value_s(fields) * 1000).saturating_add(response_delay_ms);
    apparent_age_s.saturating_mul(1000).max(corrected_age_ms)
}

/// current_age in milliseconds (RFC 9111 4.2.3) at `now_ms`.
pub fn current_age_ms(initial_age_ms: u64, response_ms: u64, now_ms: u64) -> u64 {
    initial_age_ms.saturating_add(now_ms.saturating_sub(response_ms))
}

/// Freshness left in milliseconds at this age; 0 or less: stale (RFC 9111 4.2).
pub fn remaining_ms(lifetime_s: u32, current_age_ms: u64) -> i64 {
    let age_ms = i64::try_from(current_age_ms).unwrap_or(i64::MAX);
    (i64::from(lifetime_s) * 1000).saturating_sub(age_ms)
}

/// Age in seconds (RFC 9111 5.1): the first member of the first line; 0 when absent or invalid.
fn age_value_s(fields: &Fields) -> u64 {
    let digits = fields
        .get("age")
        .and_then(|value| value.split(|&b| b == b',').next())
        .map_or(&b""[..], <[u8]>::trim_ascii);
    if !digits.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    digits.iter().fold(0, |seconds: u64, &digit| {
        (seconds * 10 + u64::from(digit - b'0')).min(u64::from(SECONDS_MAX))
    })
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal;)*) => {
        /// Why a response is not stored.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[$doc])* $name),* }

        impl Reason {
            /// Every reason, in order.
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            /// The token for Cache-Status, logs and metrics.
            pub fn word(self) -> &'static str {
                match self { $(Reason::$name => $word),* }
            }
        }
    };
}

reasons! {
    /// Only what answers GET is stored: HEAD gives no content, and the rest is not cacheable here.
    Method = "method";
    /// The client forbids storing (RFC 9111 5.2.1.5).
    RequestNoStore = "request-no-store";
    /// An interim response (RFC 9110 15.2).
    Interim = "interim";
    /// Part of a representation: 206, or Content-Range in whatever (RFC 9111 3.3).
    Partial = "partial";
    /// The status is not one that this cache understands or may store (RFC 9111 3).
    Status = "status";
    /// `no-store` (RFC 9111 5.2.2.5).
    NoStore = "no-store";
    /// `private`, also where limited to some fields (RFC 9111 5.2.2.7).
    Private = "private";
    /// The request had Authorization, and nothing allows to share the response (RFC 9111 3.5).
    Authorization = "authorization";
    /// The response sets a cookie, which is meant for one client (RFC 9111 7.3).
    SetCookie = "set-cookie";
    /// `Vary: *` (RFC 9111 4.1).
    VaryAny = "vary-any";
    /// Vary names more fields than we keep apart, or what is no field name.
    VaryBad = "vary-bad";
    /// Nobody says how long it is fresh.
    NoLifetime = "no-lifetime";
    /// `no-cache`, and no validator to ask again with (RFC 9111 5.2.2.4).
    NoCache = "no-cache";
    /// Fresh for no time, and no validator to ask again with.
    Expired = "expired";
}

/// What there is to know about an exchange whose response might be stored.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// The client's fields.
    pub request: &'a Fields,
    /// Of the client's request; the configuration may have it ignored (pass the default).
    pub request_directives: &'a RequestDirectives,
    /// The response's status.
    pub status: Status,
    /// The response's fields.
    pub response: &'a Fields,
    /// Of the response.
    pub directives: &'a ResponseDirectives,
    /// Of the response.
    pub lifetime: Option<Lifetime>,
}

/// Whether a shared cache may store this response and has a use for it (RFC 9111 3); on success
/// with the names by which it varies.
pub fn storable(candidate: &Candidate<'_>) -> Result<Vary, Reason> {
    check_request(candidate)?;
    check_status(candidate)?;
    check_directives(candidate)?;
    if candidate.response.contains("set-cookie") {
        return Err(Reason::SetCookie);
    }
    let vary = Vary::of(candidate.response).map_err(|error| match error {
        vary::Error::Any => Reason::VaryAny,
        vary::Error::TooMany | vary::Error::BadName => Reason::VaryBad,
    })?;
    check_lifetime(candidate)?;
    Ok(vary)
}

fn check_request(candidate: &Candidate<'_>) -> Result<(), Reason> {
    if *candidate.method != Method::Get {
        return Err(Reason::Method);
    }
    if candidate.request_directives.no_store {
        return Err(Reason::RequestNoStore);
    }
    Ok(())
}

fn check_status(candidate: &Candidate<'_>) -> Result<(), Reason> {
    let status = candidate.status;
    if status < 200 {
        return Err(Reason::Interim);
    }
    if status == 206 || candidate.response.contains("content-range") {
        return Err(Reason::Partial);
    }
    if !understood(status) {
        return Err(Reason::Status);
    }
    Ok(())
}

fn check_directives(candidate: &Candidate<'_>) -> Result<(), Reason> {
    let directives = candidate.directives;
    // With must-understand, no-store is meant for caches that do not know the status
    // (RFC 9111 5.2.2.3); those that this cache does not know are refused before.
    if directives.no_store && !directives.must_understand {
        return Err(Reason::NoStore);
    }
    if directives.private != Scope::Absent {
        return Err(Reason::Private);
    }
    let shareable =
        directives.public || directives.must_revalidate || directives.s_maxage.is_some();
    if candidate.request.contains("authorization") && !shareable {
        return Err(Reason::Authorization);
    }
    Ok(())
}

fn check_lifetime(candidate: &Candidate<'_>) -> Result<(), Reason> {
    let lifetime = candidate.lifetime.ok_or(Reason::NoLifetime)?;
    let fields = candidate.response;
    if fields.contains("etag") || fields.contains("last-modified") {
        return Ok(());
    }
    if candidate.directives.no_cache == Scope::Whole {
        return Err(Reason::NoCache);
    }
    if lifetime.seconds == 0 {
        return Err(Reason::Expired);
    }
    Ok(())
}

/// Statuses that this cache understands and that mean the same to every client with the same key.
///
/// Left out, whatever the response says: 206 and 304, which are parts of something else; 401, 407
/// and 511, which ask one client to authenticate; 408, 412, 413, 416, 417, 421, 425, 426, 428, 429
/// and 431, which answer what the key does not hold (RFC 6585 forbids four of them); unknown ones.
pub fn understood(status: Status) -> bool {
    matches!(
        status,
        200 | 203 | 204 | 300..=303 | 307 | 308 | 400 | 403..=405 | 410 | 414 | 451 | 500..=504
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Exchanged = Exchanged {
        request_ms: 784_111_777_000,
        response_ms: 784_111_779_500,
    };

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.append(name, value);
        }
        fields
    }

    fn lifetime_of(lines: &[(&str, &str)], valid_s: Option<u64>) -> Option<(u32, Source)> {
        let fields = fields(lines);
        lifetime(&fields, &ResponseDirectives::of(&fields), valid_s, AT)
            .map(|l| (l.seconds, l.source))
    }

    #[test]
    fn lifetime_takes_the_first_that_speaks() {
        let cc = ("cache-control", "max-age=10, s-maxage=20");
        let (date, expires) = (
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("expires", "Sun, 06 Nov 1994 08:50:37 GMT"),
        );
        let max_age = ("cache-control", "max-age=10");
        assert_eq!(
            lifetime_of(&[cc, date, expires], Some(1)),
            Some((20, Source::SMaxage))
        );
        assert_eq!(
            lifetime_of(&[max_age, date, expires], Some(1)),
            Some((10, Source::MaxAge))
        );
        assert_eq!(
            lifetime_of(&[date, expires], Some(1)),
            Some((60, Source::Expires))
        );
        // Without Date it counts from the arrival, 2 s after.
        assert_eq!(lifetime_of(&[expires], None), Some((58, Source::Expires)));
        assert_eq!(
            lifetime_of(&[date], Some(u64::MAX)),
            Some((SECONDS_MAX, Source::Configured))
        );
        assert_eq!(lifetime_of(&[date], None), None);
    }

    #[test]
    fn bad_expires_means_expired() {
        let late = ("expires", "Sun, 06 Nov 1994 08:50:37 GMT");
        let later = ("expires", "Sun, 06 Nov 1994 08:51:37 GMT");
        let expired = Some((0, Source::Expires));
        assert_eq!(lifetime_of(&[("expires", "0")], Some(9)), expired);
        assert_eq!(lifetime_of(&[("expires", "soon")], Some(9)), expired);
        assert_eq!(lifetime_of(&[late, later], Some(9)), expired);
        assert_eq!(
            lifetime_of(&[late, late], None),
            Some((58, Source::Expires))
        );
        let date = ("date", "Sun, 06 Nov 1994 08:59:37 GMT");
        assert_eq!(lifetime_of(&[date, late], Some(9)), expired);
        assert_eq!(
            lifetime_of(&[("cache-control", "max-age=x"), late], None),
            Some((0, Source::MaxAge))
        );
    }

    #[test]
    fn age_is_the_larger_of_both_ways_to_tell() {
        let age = |lines: &[(&str, &str)]| initial_age_ms(&fields(lines), AT);
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        // No Age, no Date: the exchange took 2.5 s.
        assert_eq!(age(&[]), 2500);
        assert_eq!(age(&[date]), 2500);
        assert_eq!(age(&[("date", "Sun, 06 Nov 1994 08:48:39 GMT")]), 60_000);
        assert_eq!(age(&[date, ("age", "100")]), 102_500);
        assert_eq!(age(&[("age", "7, 100")]), 9500);
        for invalid in ["-1", "x", "1.5", ""] {
            assert_eq!(age(&[("age", invalid)]), 2500, "{invalid}");
        }
        assert_eq!(
            age(&[("age", "99999999999999999999999999")]),
            u64::from(SECONDS_MAX) * 1000 + 2500
        );
        // A Date in the future and a clock set back count as nothing.
        assert_eq!(age(&[("date", "Sun, 06 Nov 1994 09:49:37 GMT")]), 2500);
        let back = Exchanged {
            request_ms: 5,
            response_ms: 3,
        };
        assert_eq!(initial_age_ms(&Fields::new(), back), 0);
        assert_eq!(current_age_ms(2500, 1000, 4000), 5500);
        assert_eq!(current_age_ms(2500, 4000, 1000), 2500);
        assert_eq!(remaining_ms(6, 5500), 500);
        assert_eq!(remaining_ms(5, 5500), -500);
        assert!(remaining_ms(SECONDS_MAX, u64::MAX) < 0);
    }

    fn judge(
        method: Method,
        request: &[(&str, &str)],
        status: Status,
        response: &[(&str, &str)],
    ) -> Result<Vary, Reason> {
        let (request, response) = (fields(request), fields(response));
        let directives = ResponseDirectives::of(&response);
        storable(&Candidate {
            method: &method,
            request: &request,
            request_directives: &RequestDirectives::of(&request),
            status,
            response: &response,
            directives: &directives,
            lifetime: lifetime(&response, &directives, None, AT),
        })
    }

    #[test]
    fn each_reason_has_a_response_that_meets_it() {
        let fresh = ("cache-control", "max-age=9");
        let cc = |value: &'static str| ("cache-control", value);
        let get = |status, response: &[(&str, &str)]| {
            judge(Method::Get, &[], status, response).map(|_| ())
        };
        assert_eq!(get(200, &[fresh]), Ok(()));
        assert_eq!(get(404, &[fresh, ("vary", "a, b")]), Ok(()));
        for method in [Method::Head, Method::Post, Method::Other("QUERY".into())] {
            assert_eq!(judge(method, &[], 200, &[fresh]), Err(Reason::Method));
        }
        assert_eq!(
            judge(Method::Get, &[cc("no-store")], 200, &[fresh]),
            Err(Reason::RequestNoStore)
        );
        let cases = [
            (103, fresh, fresh, Reason::Interim),
            (206, fresh, fresh, Reason::Partial),
            (
                200,
                fresh,
                ("content-range", "bytes 0-1/2"),
                Reason::Partial,
            ),
            (304, fresh, fresh, Reason::Status),
            (416, fresh, fresh, Reason::Status),
            (429, fresh, fresh, Reason::Status),
            (299, fresh, fresh, Reason::Status),
            (200, fresh, cc("No-Store"), Reason::NoStore),
            (200, fresh, cc("private"), Reason::Private),
            (200, fresh, cc("private=\"x-a\""), Reason::Private),
            (200, fresh, ("set-cookie", "a=b"), Reason::SetCookie),
            (200, fresh, ("vary", "a, *"), Reason::VaryAny),
            (200, fresh, ("vary", "a b"), Reason::VaryBad),
            (200, ("a", "b"), ("etag", "\"x\""), Reason::NoLifetime),
            (200, fresh, cc("no-cache"), Reason::NoCache),
            (200, fresh, cc("max-age=0"), Reason::Expired),
        ];
        for (status, one, other, reason) in cases {
            assert_eq!(get(status, &[one, other]), Err(reason), "{other:?}");
        }
        // With a validator, what must be asked about again is still worth keeping.
        let etag = ("etag", "\"x\"");
        assert_eq!(get(200, &[cc("no-cache, max-age=9"), etag]), Ok(()));
        assert_eq!(get(200, &[cc("max-age=0"), etag]), Ok(()));
        assert_eq!(
            get(200, &[cc("no-store, must-understand, max-age=9")]),
            Ok(())
        );
    }

    #[test]
    fn authorization_needs_leave() {
        let authorized = |value| {
            let request = [("authorization", "Basic eDp5")];
            judge(Method::Get, &request, 200, &[("cache-control", value)]).map(|_| ())
        };
        assert_eq!(authorized("max-age=9"), Err(Reason::Authorization));
        for value in [
            "max-age=9, public",
            "max-age=9, must-revalidate",
            "s-maxage=9",
        ] {
            assert_eq!(authorized(value), Ok(()), "{value}");
        }
    }

    #[test]
    fn every_reason_has_its_own_token() {
        let mut words: Vec<_> = Reason::ALL.iter().map(|r| r.word()).collect();
        assert!(
            words
                .iter()
                .all(|w| super::super::fields::is_token(w.as_bytes()))
        );
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Reason::ALL.len());
    }
}
