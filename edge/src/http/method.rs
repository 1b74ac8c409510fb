//! Request methods (RFC 9110 9).

/// A request method. Names are case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is the method of its name")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Patch,
    Trace,
    Connect,
    /// Any other token.
    Other(Box<str>),
}

impl Method {
    /// Converts the token of a request line, which has been validated as a token.
    pub fn from_token(token: &str) -> Method {
        match token {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            "PATCH" => Method::Patch,
            "TRACE" => Method::Trace,
            "CONNECT" => Method::Connect,
            other => Method::Other(other.into()),
        }
    }

    /// Returns the token as sent in a request line.
    pub fn as_str(&self) -> &str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
            Method::Patch => "PATCH",
            Method::Trace => "TRACE",
            Method::Connect => "CONNECT",
            Method::Other(token) => token,
        }
    }

    /// Whether the method is safe: it requests no change on the origin (RFC 9110 9.2.1).
    pub fn is_safe(&self) -> bool {
        matches!(
            self,
            Method::Get | Method::Head | Method::Options | Method::Trace
        )
    }

    /// Whether this is PURGE, the method by which operators remove stored responses for the target
    /// from a cache. No RFC defines PURGE, but other caches support it too.
    pub fn is_purge(&self) -> bool {
        matches!(self, Method::Other(token) if &**token == "PURGE")
    }

    /// Whether the method is idempotent: it may be sent again after a connection failure (RFC 9110
    /// 9.2.2).
    pub fn is_idempotent(&self) -> bool {
        self.is_safe() || matches!(self, Method::Put | Method::Delete)
    }
}
