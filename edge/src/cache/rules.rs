//! The caching rules of one route, from its own keys and its cache's keys in the configuration.

use crate::http::Network;
use std::time::Duration;

use crate::http::Status;
use crate::http::freshness::{Ignored, SetCookie, Terms};
use crate::http::key::KeyRules;
use crate::http::pattern::Pattern;
use crate::http::vary::{Codings, Normal};

/// The caching rules of one route. `docs/configuration.md` describes each key.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Freshness lifetime by status where the response gives none.
    pub valid: Vec<(Status, Duration)>,
    /// The lifetime for every other status that may be stored.
    pub valid_any: Option<Duration>,
    /// Longest heuristic lifetime (RFC 9111 4.2.2). Zero disables heuristics.
    pub heuristic_max: Duration,
    /// Lower bound of positive lifetimes.
    pub lifetime_min: Duration,
    /// Upper bound of lifetimes.
    pub lifetime_max: Duration,
    /// How long a stale response may be served while it is revalidated in the background, if the
    /// response does not say (RFC 5861 3).
    pub stale_while_revalidate: Duration,
    /// How long a stale response may be served if the origin fails, if the response does not say
    /// (RFC 5861 4).
    pub stale_if_error: Duration,
    /// How long a stale response may be served to other requests while one request waits for its
    /// revalidation.
    pub stale_while_updating: Duration,
    /// Response headers that are ignored.
    pub ignore: Ignored,
    /// How responses that set a cookie are stored.
    pub set_cookie: SetCookie,
    /// Targeted cache-control headers, in lower case and in order of preference (RFC 9213).
    pub targets: Vec<Box<str>>,
    /// Response headers that carry tags, in lower case.
    pub tags: Vec<Box<str>>,
    /// Whether Cache-Control of a request may cause a fetch that the cache would not make
    /// otherwise.
    pub client_directives: bool,
    /// The parts of the primary key, and the languages to which variants are reduced.
    pub key: KeyRules,
    /// Requests that bypass the cache.
    pub bypass: Bypass,
    /// Whether GET may use the cache.
    pub get: bool,
    /// Whether HEAD may use the cache. Otherwise it is passed to the origin.
    pub head: bool,
    /// Whether a response to POST may also answer GET: it must name its own target in
    /// Content-Location and state its lifetime (RFC 9110 9.3.3).
    pub post: bool,
    /// Request headers that shared fetches send beside those of the allow-list.
    pub forward: Vec<Pattern>,
    /// How long requests are passed to the origin after a response that can't be shared.
    pub pass_for: Duration,
    /// Addresses that may send PURGE.
    pub purge: Vec<Network>,
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
    pub fn normal(&self, codings: Option<Codings>) -> Normal<'_> {
        Normal {
            codings,
            languages: &self.key.languages,
        }
    }

    /// The storing terms for a response with this status.
    pub fn terms(&self, status: Status) -> Terms<'_> {
        let named = self.valid.iter().find(|(of, _)| *of == status);
        let valid = named.map(|(_, lifetime)| *lifetime).or(self.valid_any);
        Terms {
            valid_s: valid.map(|lifetime| lifetime.as_secs()),
            heuristic_max_s: self.heuristic_max.as_secs(),
            lifetime_s: self.lifetime_min.as_secs()..=self.lifetime_max.as_secs(),
            ignore: self.ignore,
            set_cookie: self.set_cookie,
            stale_while_revalidate_s: self.stale_while_revalidate.as_secs(),
            stale_if_error_s: self.stale_if_error.as_secs(),
            targets: &self.targets,
        }
    }
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            valid: Vec::new(),
            valid_any: None,
            heuristic_max: Duration::from_secs(24 * 3600),
            lifetime_min: Duration::ZERO,
            lifetime_max: Duration::from_secs(365 * 24 * 3600),
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            stale_while_updating: Duration::ZERO,
            ignore: Ignored::default(),
            set_cookie: SetCookie::default(),
            targets: vec!["sluice-cache-control".into(), "cdn-cache-control".into()],
            tags: vec!["surrogate-key".into(), "cache-tag".into()],
            client_directives: false,
            key: KeyRules::default(),
            bypass: Bypass::default(),
            get: true,
            head: true,
            post: false,
            forward: Vec::new(),
            pass_for: Duration::from_secs(10),
            purge: Vec::new(),
        }
    }
}
