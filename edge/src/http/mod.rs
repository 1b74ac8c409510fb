//! HTTP semantics as pure functions: methods, headers, ranges, cache keys, caching directives.
//! Nothing here does I/O, reads the clock or uses async.

pub mod bearer;
pub mod cache_control;
pub mod cache_status;
pub mod chunked;
pub mod coding;
pub mod conditional;
pub mod cookies;
pub mod date;
pub mod field_block;
pub mod fields;
pub mod freshen;
pub mod freshness;
pub mod hop;
pub mod hosts;
pub mod interim;
pub mod key;
pub mod location;
pub mod method;
pub mod network;
pub mod path_regex;
pub mod pattern;
pub mod purge;
pub mod range;
pub mod reference;
pub mod request_id;
mod status;
pub mod surrogate;
pub mod tags;
pub mod target;
pub mod targeted;
pub mod trace_context;
pub mod trailers;
pub mod url;
pub mod vary;
pub mod wanted;

pub use cache_status::{CacheStatus, Fwd, Outcome};
pub use field_block::FieldBlock;
pub use fields::Fields;
pub use interim::InterimHeads;
pub use method::{Method, Methods};
pub use network::{ClientId, Network};
pub use request_id::RequestId;
pub use status::Status;
pub use trace_context::TraceContext;

/// The protocol version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0 (RFC 1945).
    Http10,
    /// HTTP/1.1 (RFC 9112).
    Http11,
    /// HTTP/2 (RFC 9113).
    Http2,
    /// HTTP/3 (RFC 9114).
    #[allow(dead_code, reason = "no listener speaks HTTP/3 yet")]
    Http3,
}

impl Version {
    /// Whether the version has interim (1xx) responses (RFC 9110 15.2).
    pub fn has_interim(self) -> bool {
        self > Version::Http10
    }

    /// Returns the version as written in a request line, in `Via` and in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
            Version::Http3 => "HTTP/3.0",
        }
    }
}

/// The scheme under which a request arrived (RFC 9110 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

impl Scheme {
    /// Returns the scheme as written in a URI.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}
