//! The caching rules of one route, from its own keys and its cache's keys in the configuration.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::http::freshness::{Ignored, SetCookie, Terms};
use crate::http::key::KeyRules;
use crate::http::pattern::Pattern;
use crate::http::vary::{Codings, Reductions};
use crate::http::{Method, Methods, Network, Status};

/// The name in `forward_headers` by which shared fetches report the launching client's address.
pub const FORWARD_ADDRESS: &str = "x-forwarded-for";

/// The caching rules of one route. `docs/configuration.md` describes each key.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The requests that the cache answers.
    pub requests: Requests,
    /// The primary key, and the languages to which variants are reduced.
    pub key: KeyRules,
    /// Headers of the launching client that shared fetches carry in addition to those of the
    /// allow-list.
    pub forward_headers: Vec<Pattern>,
    /// Headers whose values clients can't choose, or can't use to have a request refused. Shared
    /// fetches carry them, and their responses count for all clients.
    pub trusted_headers: Vec<Pattern>,
    /// Request headers, in lower case, that the route sets to a constant. Shared fetches carry them.
    pub constant_headers: Vec<Box<str>>,
    /// The response headers that the cache evaluates.
    pub headers: ResponseHeaders,
    /// The lifetimes of responses.
    pub lifetimes: Lifetimes,
    /// The times for which stale responses may be served.
    pub stale: Stale,
    /// Time for which requests for a key are passed after a response that can't be shared.
    pub hit_for_pass: Duration,
    /// Addresses that may send PURGE.
    pub purge_from: Vec<Network>,
}

/// The requests that the cache answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Requests {
    /// Whether GET may use the cache.
    pub get: bool,
    /// Whether HEAD may use the cache; if not, HEAD is sent to the origin.
    pub head: bool,
    /// Whether a response to POST that names its own target in Content-Location, and has an
    /// explicit lifetime, also answers GET (RFC 9110 9.3.3).
    pub post: bool,
    /// The unsafe methods that invalidate stored responses; `None`: all of them (RFC 9111 4.4).
    pub invalidate_on: Option<Methods>,
    /// Requests that bypass the cache.
    pub bypass: Bypass,
    /// Whether every request directive of Cache-Control is honoured, and Pragma.
    pub client_cache_control: bool,
}

/// The lifetimes of responses, which are fresh that long.
#[derive(Clone, Debug, PartialEq)]
pub struct Lifetimes {
    /// The lifetime by status of responses that give none.
    pub valid: Vec<(RangeInclusive<Status>, Duration)>,
    /// The lifetime of responses of all other statuses that may be stored, if they give none.
    pub valid_any: Option<Duration>,
    /// The longest heuristic lifetime (RFC 9111 4.2.2); zero disables them.
    pub heuristic_max: Duration,
    /// Lower bound of positive lifetimes.
    pub min: Duration,
    /// Upper bound of lifetimes.
    pub max: Duration,
}

/// The times for which stale responses may be served, counted from the end of the lifetime.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stale {
    /// Time for which a stale response is served while it is revalidated in the background. The
    /// response's own `stale-while-revalidate` takes precedence (RFC 5861 3).
    pub while_revalidate: Duration,
    /// Time for which a stale response is served if the origin fails. The response's own
    /// `stale-if-error` takes precedence (RFC 5861 4).
    pub if_error: Duration,
    /// Time for which a stale response is served to other requests while one waits for its
    /// revalidation.
    pub while_updating: Duration,
}

/// The response headers that the cache evaluates or ignores.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseHeaders {
    /// Headers that are ignored.
    pub ignored: Ignored,
    /// The treatment of responses that set a cookie.
    pub set_cookie: SetCookie,
    /// Targeted fields in lower case, in order of preference (RFC 9213).
    pub target_list: Vec<Box<str>>,
    /// Headers that contain tags, in lower case.
    pub tags: Vec<Box<str>>,
}

/// Requests that bypass the cache: those that have any of these.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bypass {
    /// Names of cookies.
    pub cookies: Vec<Pattern>,
    /// Names of request headers.
    pub headers: Vec<Pattern>,
    /// Names of query parameters.
    pub query: Vec<Pattern>,
}

impl Requests {
    /// Whether a successful request with this method invalidates stored responses.
    pub fn invalidates(&self, method: &Method) -> bool {
        let listed = self.invalidate_on.as_ref();
        !method.is_safe() && listed.is_none_or(|methods| methods.contains(method))
    }
}

impl Bypass {
    /// Whether no request bypasses the cache by these rules, as on most routes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.cookies.is_empty() && self.headers.is_empty() && self.query.is_empty()
    }
}

impl Rules {
    /// The normal forms to which requests are reduced, in keys and in fetches. `codings` is `None`
    /// for the codings that a request accepts.
    #[inline]
    pub fn normal(&self, codings: Option<Codings>) -> Reductions<'_> {
        Reductions {
            codings,
            languages: &self.key.languages,
        }
    }

    /// Whether shared fetches report the address of the launching client to the origin.
    pub fn forwards_address(&self) -> bool {
        // A pattern with `*` does not include it.
        let name = FORWARD_ADDRESS.as_bytes();
        let longer = [name, b"-"].concat();
        let address = |p: &Pattern| p.matches_field(name) && !p.matches_field(&longer);
        self.forward_headers.iter().any(address)
    }

    /// The storing terms for a response with this status.
    pub fn terms(&self, status: Status) -> Terms<'_> {
        let (lifetimes, stale, headers) = (&self.lifetimes, &self.stale, &self.headers);
        let named = lifetimes.valid.iter().find(|(of, _)| of.contains(&status));
        let valid = named.map(|(_, lifetime)| *lifetime).or(lifetimes.valid_any);
        Terms {
            valid_s: valid.map(|lifetime| lifetime.as_secs()),
            heuristic_max_s: lifetimes.heuristic_max.as_secs(),
            lifetime_s: lifetimes.min.as_secs()..=lifetimes.max.as_secs(),
            ignore: headers.ignored,
            set_cookie: headers.set_cookie,
            stale_while_revalidate_s: stale.while_revalidate.as_secs(),
            stale_if_error_s: stale.if_error.as_secs(),
            targets: &headers.target_list,
        }
    }
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            requests: Requests::default(),
            key: KeyRules::default(),
            forward_headers: Vec::new(),
            trusted_headers: Vec::new(),
            constant_headers: Vec::new(),
            headers: ResponseHeaders::default(),
            lifetimes: Lifetimes::default(),
            stale: Stale::default(),
            hit_for_pass: Duration::from_secs(10),
            purge_from: Vec::new(),
        }
    }
}

impl Default for Requests {
    fn default() -> Requests {
        Requests {
            get: true,
            head: true,
            post: false,
            invalidate_on: None,
            bypass: Bypass::default(),
            client_cache_control: false,
        }
    }
}

impl Default for Lifetimes {
    fn default() -> Lifetimes {
        Lifetimes {
            valid: Vec::new(),
            valid_any: None,
            heuristic_max: Duration::from_secs(24 * 3600),
            min: Duration::ZERO,
            max: Duration::from_secs(365 * 24 * 3600),
        }
    }
}

impl Default for ResponseHeaders {
    fn default() -> ResponseHeaders {
        ResponseHeaders {
            ignored: Ignored::default(),
            set_cookie: SetCookie::default(),
            target_list: vec!["sluice-cache-control".into(), "cdn-cache-control".into()],
            tags: vec!["surrogate-key".into(), "cache-tag".into()],
        }
    }
}
