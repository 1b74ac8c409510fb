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

    /// Whether content of a request with this method can have a meaning. With GET, HEAD, DELETE,
    /// OPTIONS, TRACE and CONNECT it has none (RFC 9110 9.3), so some origins do not read it.
    pub fn defines_content(&self) -> bool {
        matches!(
            self,
            Method::Post | Method::Put | Method::Patch | Method::Other(_)
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

/// A list of methods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Methods(Box<[Method]>);

impl Methods {
    /// Whether the list has this method.
    pub fn contains(&self, method: &Method) -> bool {
        self.0.contains(method)
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Method> for Methods {
    fn from_iter<I: IntoIterator<Item = Method>>(methods: I) -> Methods {
        Methods(methods.into_iter().collect())
    }
}

/// Formats the list as the value of Allow (RFC 9110 10.2.1).
impl std::fmt::Display for Methods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, method) in self.0.iter().enumerate() {
            let comma = if n > 0 { ", " } else { "" };
            write!(f, "{comma}{}", method.as_str())?;
        }
        Ok(())
    }
}
