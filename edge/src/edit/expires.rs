//! `expires` and `cache_control`: freshness headers for downstream caches and browsers.

use std::borrow::Cow;
use std::time::Duration;

use super::fields::value_of;
use crate::handler::Response;
use crate::http::{Status, date};

/// Lifetime of a response, counted from the time at which Sluice sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// No lifetime: the response keeps its own Expires and Cache-Control.
    Off,
    /// Already expired: Expires is 1 January 1970, and Cache-Control is `no-cache`.
    Epoch,
    /// The longest lifetime: ten years.
    Max,
    /// A lifetime of this duration.
    For(Duration),
    /// Already expired: Expires is this long ago, and Cache-Control is `no-cache`.
    Past(Duration),
}

/// The option `expires`: a default lifetime, and lifetimes by media type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expires {
    /// Lifetime of responses whose media type is not in `types`.
    pub default: Lifetime,
    /// Lifetimes by lower-case media type (`text/html`) or by its first part (`image/*`).
    pub types: Vec<(Box<str>, Lifetime)>,
}

/// Cache-Control for the lifetime `max`, ten years in seconds.
const MAX: &str = "max-age=315360000";
const MAX_DATE: &[u8; 29] = b"Thu, 31 Dec 2037 23:55:55 GMT";
const EPOCH_DATE: &[u8; 29] = b"Thu, 01 Jan 1970 00:00:01 GMT";

/// New values for the Expires and Cache-Control headers of a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Freshness<'a> {
    pub(super) expires: Option<[u8; 29]>,
    pub(super) cache_control: Option<Cow<'a, str>>,
}

/// Whether responses with this status get freshness headers: statuses that caches may store without
/// explicit freshness, and those that answer conditional, range and other requests for such
/// responses.
pub(super) fn applies_to(status: Status) -> bool {
    matches!(status, 200 | 201 | 204 | 206 | 301..=304 | 307 | 308)
}

impl Lifetime {
    /// Parses a lifetime, such as `off`, `epoch`, `max`, `1h`, `-1h` or `-1`.
    pub fn parse(text: &str) -> Option<Lifetime> {
        Some(match text {
            "off" => Lifetime::Off,
            "epoch" => Lifetime::Epoch,
            "max" => Lifetime::Max,
            "-1" => Lifetime::Past(Duration::from_secs(1)),
            _ => match text.strip_prefix('-') {
                Some(past) => Lifetime::Past(humantime::parse_duration(past).ok()?),
                None => Lifetime::For(humantime::parse_duration(text).ok()?),
            },
        })
    }

    /// Returns the freshness headers for a response of age `age_s` at the time `now_s`, or `None`
    /// if the response keeps its own.
    ///
    /// The lifetime counts from now, and `max-age` counts from when the origin created the response
    /// (RFC 9111 4.2.3). The value of `max-age` is therefore the lifetime plus the age.
    fn headers(self, now_s: u64, age_s: u64) -> Option<Freshness<'static>> {
        let (expires, cache_control) = match self {
            Lifetime::Off => return None,
            Lifetime::Epoch => (*EPOCH_DATE, "no-cache".into()),
            Lifetime::Max => (*MAX_DATE, MAX.into()),
            Lifetime::For(time) => {
                let max_age = time.as_secs().saturating_add(age_s);
                let at = now_s.saturating_add(time.as_secs());
                (date::format(at), format!("max-age={max_age}").into())
            }
            Lifetime::Past(time) => {
                let at = now_s.saturating_sub(time.as_secs());
                (date::format(at), "no-cache".into())
            }
        };
        Some(Freshness {
            expires: Some(expires),
            cache_control: Some(cache_control),
        })
    }
}

impl Expires {
    /// Returns the freshness headers for a response, or `None` if the response keeps its own.
    ///
    /// If lifetimes depend on the media type, a response without the content's type (a 304 without
    /// Content-Type, or several ranges) gets no freshness headers. The client then keeps the
    /// headers of the response that it has stored (RFC 9111 3.2).
    pub(super) fn headers(&self, response: &Response, now_s: u64) -> Option<Freshness<'static>> {
        if !applies_to(response.status) {
            return None;
        }
        let media_type = value_of(response, "content-type");
        let unknown = match (response.status, media_type) {
            (304, None) => true,
            (206, Some(other)) => begins(other, b"multipart/byteranges"),
            _ => false,
        };
        if unknown && !self.types.is_empty() {
            return Some(Freshness {
                expires: None,
                cache_control: None,
            });
        }
        let lifetime = self.of(media_type.unwrap_or_default());
        lifetime.headers(now_s, age_of(response))
    }

    /// Returns the lifetime configured for a media type: that of the exact type, otherwise of its
    /// first part, otherwise the default.
    fn of(&self, media_type: &[u8]) -> Lifetime {
        let end = memchr::memchr(b';', media_type).unwrap_or(media_type.len());
        let essence = media_type[..end].trim_ascii();
        let own =
            |(known, _): &&(Box<str>, Lifetime)| essence.eq_ignore_ascii_case(known.as_bytes());
        let alike = |(known, _): &&(Box<str>, Lifetime)| {
            let beginning = known.strip_suffix('*').map(str::as_bytes);
            beginning.is_some_and(|beginning| begins(essence, beginning))
        };
        let types = || self.types.iter();
        let found = types().find(own).or_else(|| types().find(alike));
        found.map_or(self.default, |(_, lifetime)| *lifetime)
    }
}

/// Whether `text` begins with `beginning`, ignoring case.
fn begins(text: &[u8], beginning: &[u8]) -> bool {
    let own = text.get(..beginning.len());
    own.is_some_and(|own| own.eq_ignore_ascii_case(beginning))
}

/// Returns the age of a response in seconds, as stored in Sluice's cache or as reported by an
/// upstream cache.
fn age_of(response: &Response) -> u64 {
    if let Some(age_s) = response.age_s {
        return u64::from(age_s);
    }
    let age = value_of(response, "age").and_then(|age| std::str::from_utf8(age).ok());
    let age_s: u32 = age.and_then(|age| age.trim().parse().ok()).unwrap_or(0);
    u64::from(age_s)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: u64 = 784_111_777;

    fn freshness(expires: &Expires, response: &Response) -> Option<(String, String)> {
        let freshness = expires.headers(response, NOW)?;
        let date = freshness
            .expires
            .map(|date| String::from_utf8_lossy(&date).into_owned());
        let cache_control = freshness.cache_control.map(Cow::into_owned);
        Some((date.unwrap_or_default(), cache_control.unwrap_or_default()))
    }

    fn always(text: &str) -> Expires {
        Expires {
            default: Lifetime::parse(text).expect("a lifetime"),
            types: Vec::new(),
        }
    }

    #[test]
    fn each_option_gives_the_documented_headers() {
        let response = Response::new(200);
        let of = |text: &str| freshness(&always(text), &response);
        let is = |date: &str, control: &str| Some((date.to_owned(), control.to_owned()));
        assert_eq!(of("off"), None);
        assert_eq!(of("epoch"), is("Thu, 01 Jan 1970 00:00:01 GMT", "no-cache"));
        assert_eq!(
            of("max"),
            is("Thu, 31 Dec 2037 23:55:55 GMT", "max-age=315360000")
        );
        assert_eq!(
            of("1h"),
            is("Sun, 06 Nov 1994 09:49:37 GMT", "max-age=3600")
        );
        assert_eq!(of("0s"), is("Sun, 06 Nov 1994 08:49:37 GMT", "max-age=0"));
        assert_eq!(of("-1"), is("Sun, 06 Nov 1994 08:49:36 GMT", "no-cache"));
        assert_eq!(of("-1h"), is("Sun, 06 Nov 1994 07:49:37 GMT", "no-cache"));
        for text in ["", "-", "1", "soon", "--1h", "Max"] {
            assert_eq!(Lifetime::parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_some_statuses_get_freshness_headers() {
        for status in 200..600 {
            let freshness = freshness(&always("1h"), &Response::new(status)).is_some();
            let listed = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308];
            assert_eq!(freshness, listed.contains(&status), "{status}");
        }
    }

    #[test]
    fn an_exact_type_takes_precedence() {
        let lifetime = |text: &str| Lifetime::parse(text).expect("a lifetime");
        let expires = Expires {
            default: Lifetime::Off,
            types: vec![
                ("image/*".into(), lifetime("2s")),
                ("image/png".into(), lifetime("1s")),
            ],
        };
        let of = |media_type: &'static str| {
            let mut response = Response::new(200);
            response.stored = [("Content-Type", media_type)].into_iter().collect();
            freshness(&expires, &response).map(|(_, control)| control)
        };
        assert_eq!(of("Image/PNG; q=1").as_deref(), Some("max-age=1"));
        assert_eq!(of("image/gif").as_deref(), Some("max-age=2"));
        assert_eq!(of("imagex/gif"), None);
        assert_eq!(of("text/html"), None);
        let unchanged = Some((String::new(), String::new()));
        let mut parts = Response::new(206);
        parts
            .fields
            .append("content-type", "multipart/byteranges; boundary=a");
        assert_eq!(freshness(&expires, &parts), unchanged);
        assert_eq!(freshness(&expires, &Response::new(304)), unchanged);
    }

    proptest! {
        /// A recipient that subtracts the age from `max-age` gets the configured lifetime, whatever
        /// the age.
        #[test]
        fn the_lifetime_counts_from_now(lifetime_s in 0..=u64::from(u32::MAX), age_s: u32) {
            let mut response = Response::new(200);
            response.age_s = Some(age_s);
            let expires = Expires {
                default: Lifetime::For(Duration::from_secs(lifetime_s)),
                types: Vec::new(),
            };
            let freshness = expires.headers(&response, NOW).expect("freshness headers");
            let control = freshness.cache_control.expect("a directive");
            let max_age: u64 = control["max-age=".len()..].parse().expect("a number");
            prop_assert_eq!(max_age - u64::from(age_s), lifetime_s);
            let at = date::parse(&freshness.expires.expect("a date"));
            prop_assert_eq!(at, Some(NOW + lifetime_s));
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,20}") {
            let _ = Lifetime::parse(&text);
        }
    }
}
