//! Cache-Status (RFC 9211): how a response came about, as one small value.

use crate::reason::Reason;

use super::Status;

/// What the cache did for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus {
    /// Hit, or why the request went forward.
    pub outcome: Outcome,
    /// The status that the origin answered, when one was asked for this request (2.3).
    pub fwd_status: Option<Status>,
    /// Whether the response was stored (2.5).
    pub stored: bool,
    /// Whether the request rode a fetch that another had begun (2.6).
    pub collapsed: bool,
    /// Remaining freshness lifetime in seconds, negative when stale (2.4).
    pub ttl_s: Option<i64>,
    /// The reason in more detail (2.8).
    pub detail: Option<Reason>,
}

/// `hit` or `fwd` (RFC 9211 2.1, 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered from what is stored, without going forward.
    Hit,
    /// Went forward, for this reason.
    Fwd(Fwd),
    /// Neither: the cache answered by itself, and not from what is stored.
    Own,
}

/// Reasons to go forward, as RFC 9211 2.2 names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fwd {
    /// Configured not to handle this request.
    Bypass,
    /// The method's semantics require it.
    Method,
    /// No stored response for the URI.
    UriMiss,
    /// Stored responses, but none that Vary selects for this request.
    VaryMiss,
    /// Nothing stored could be used for another reason.
    Miss,
    /// Request directives demanded it.
    Request,
    /// The stored response was stale.
    Stale,
    /// Some of the wanted bytes are not stored.
    Partial,
}

impl Fwd {
    /// The token of RFC 9211 2.2.
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
    /// A hit with this many seconds of freshness left.
    pub fn hit(ttl_s: i64) -> CacheStatus {
        CacheStatus {
            outcome: Outcome::Hit,
            ttl_s: Some(ttl_s),
            ..CacheStatus::fwd(Fwd::Miss)
        }
    }

    /// Answered by the cache itself, for this reason.
    pub fn own(detail: Reason) -> CacheStatus {
        CacheStatus {
            outcome: Outcome::Own,
            ..CacheStatus::fwd(Fwd::Miss)
        }
        .because(detail)
    }

    /// Gone forward for this reason; the rest is filled in as it becomes known.
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

    /// With a more detailed reason.
    pub fn because(mut self, detail: Reason) -> CacheStatus {
        self.detail = Some(detail);
        self
    }

    /// `hit`, or the `fwd` token: the one word for logs and counters.
    pub fn word(&self) -> &'static str {
        match self.outcome {
            Outcome::Hit => "hit",
            Outcome::Fwd(reason) => reason.as_str(),
            Outcome::Own => "own",
        }
    }

    /// Appends the field value, our cache's name first: `sluice; hit; ttl=60`.
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
    fn renders_as_a_structured_field() {
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
