//! Cache-Status (RFC 9211): how the cache handled a request.

use super::status::Status;
use crate::reason::Reason;

/// The parameters of Cache-Status for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus {
    /// Whether the request was a hit, or the reason why it was forwarded.
    pub outcome: Outcome,
    /// The origin's status, if the request was forwarded (2.3).
    pub fwd_status: Option<Status>,
    /// Whether the response was stored (2.5).
    pub stored: bool,
    /// Whether the request joined a fetch that another request had begun (2.6).
    pub collapsed: bool,
    /// Remaining freshness lifetime in seconds, negative when stale (2.4).
    pub ttl_s: Option<i64>,
    /// The value of `detail`: the reason in more detail (2.8).
    pub detail: Option<Reason>,
}

/// The parameter `hit` or `fwd` (RFC 9211 2.1, 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The response comes from the cache, without a request to the origin.
    Hit,
    /// The request was forwarded, for this reason.
    Fwd(Fwd),
    /// Neither `hit` nor `fwd`: the cache made the response itself, without stored content.
    Own,
}

/// Reasons for forwarding a request, with the names of RFC 9211 2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fwd {
    /// The configuration excludes this request from the cache.
    Bypass,
    /// Requests with this method are always forwarded.
    Method,
    /// No response is stored for the URI.
    UriMiss,
    /// Responses are stored for the URI, but Vary selects none of them for this request.
    VaryMiss,
    /// No stored response could be used, for another reason.
    Miss,
    /// The request's Cache-Control requires it.
    Request,
    /// The stored response was stale.
    Stale,
    /// Some of the requested bytes are not stored.
    Partial,
}

impl Fwd {
    /// Every reason, in the order of their declaration.
    pub const ALL: [Fwd; 8] = [
        Fwd::Bypass,
        Fwd::Method,
        Fwd::UriMiss,
        Fwd::VaryMiss,
        Fwd::Miss,
        Fwd::Request,
        Fwd::Stale,
        Fwd::Partial,
    ];

    /// Returns the token of RFC 9211 2.2.
    pub fn as_str(self) -> &'static str {
        match self {
            Fwd::Bypass => "bypass",
            Fwd::Method => "method",
            Fwd::UriMiss => "uri-miss",
            Fwd::VaryMiss => "vary-miss",
            Fwd::Miss => "miss",
            Fwd::Request => "request",
            Fwd::Stale => "stale",
            Fwd::Partial => "partial",
        }
    }
}

impl CacheStatus {
    /// Returns the status of a hit with this remaining freshness lifetime in seconds.
    pub fn hit(ttl_s: i64) -> CacheStatus {
        CacheStatus {
            outcome: Outcome::Hit,
            ttl_s: Some(ttl_s),
            ..CacheStatus::fwd(Fwd::Miss)
        }
    }

    /// Returns the status of a response that the cache made itself, for this reason.
    pub fn own(detail: Reason) -> CacheStatus {
        CacheStatus {
            outcome: Outcome::Own,
            ..CacheStatus::fwd(Fwd::Miss)
        }
        .because(detail)
    }

    /// Returns the status of a request forwarded for this reason. Callers set the other parameters
    /// once they are known.
    pub fn fwd(reason: Fwd) -> CacheStatus {
        CacheStatus {
            outcome: Outcome::Fwd(reason),
            fwd_status: None,
            stored: false,
            collapsed: false,
            ttl_s: None,
            detail: None,
        }
    }

    /// Adds the parameter `detail`.
    pub fn because(mut self, detail: Reason) -> CacheStatus {
        self.detail = Some(detail);
        self
    }

    /// Returns `hit`, `own` or the token of `fwd`, for logs and counters.
    pub fn word(&self) -> &'static str {
        match self.outcome {
            Outcome::Hit => "hit",
            Outcome::Fwd(reason) => reason.as_str(),
            Outcome::Own => "own",
        }
    }

    /// Appends the header's value, beginning with the cache's name: `sluice; hit; ttl=60`.
    pub fn render(&self, out: &mut Vec<u8>) {
        let mut number = itoa::Buffer::new();
        match self.outcome {
            Outcome::Hit => out.extend_from_slice(b"sluice; hit"),
            Outcome::Fwd(reason) => {
                out.extend_from_slice(b"sluice; fwd=");
                out.extend_from_slice(reason.as_str().as_bytes());
            }
            Outcome::Own => out.extend_from_slice(b"sluice"),
        }
        if let Some(status) = self.fwd_status {
            out.extend_from_slice(b"; fwd-status=");
            out.extend_from_slice(number.format(status).as_bytes());
        }
        if let Some(ttl) = self.ttl_s {
            out.extend_from_slice(b"; ttl=");
            out.extend_from_slice(number.format(ttl).as_bytes());
        }
        if self.stored {
            out.extend_from_slice(b"; stored");
        }
        if self.collapsed {
            out.extend_from_slice(b"; collapsed");
        }
        if let Some(detail) = self.detail {
            out.extend_from_slice(b"; detail=");
            out.extend_from_slice(detail.text().as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_status_is_rendered_as_a_structured_field() {
        let mut out = Vec::new();
        CacheStatus::hit(-3).render(&mut out);
        assert_eq!(out, b"sluice; hit; ttl=-3");
        out.clear();
        CacheStatus {
            fwd_status: Some(200),
            stored: true,
            collapsed: true,
            ..CacheStatus::fwd(Fwd::UriMiss).because(Reason::NoStore)
        }
        .render(&mut out);
        assert_eq!(
            out,
            b"sluice; fwd=uri-miss; fwd-status=200; stored; collapsed; detail=no-store"
        );
    }
}
