//! Sluice: a caching reverse proxy that sends any byte of a file as soon as it has arrived.
//!
//! `ARCHITECTURE.md` describes the folders, the permitted imports and the invariants.
//!
//! The library exports only the command line and the allocator, so that the compiler finds everything that the program doesn't use.

pub(crate) mod acme;
pub(crate) mod admin;
pub(crate) mod balance;
pub(crate) mod cache;
pub(crate) mod commands;
pub(crate) mod compress;
pub(crate) mod config;
pub(crate) mod downstream;
pub(crate) mod edit;
pub(crate) mod evict;
pub(crate) mod files;
pub(crate) mod fill;
pub(crate) mod gate;
pub(crate) mod handler;
pub(crate) mod http;
pub(crate) mod http2;
pub(crate) mod ranges;
pub(crate) mod reason;
pub(crate) mod resolve;
pub(crate) mod route;
mod sign;
mod spool;
pub(crate) mod store;
pub(crate) mod sys;
pub(crate) mod telemetry;
pub(crate) mod tls;
pub(crate) mod upstream;
pub(crate) mod volume;
pub(crate) mod what_if;
pub(crate) mod wiring;

pub use commands::run;
pub use sys::Allocator;

/// Parsers and test helpers that the fuzz targets use.
#[cfg(feature = "test-rigs")]
pub mod test_rigs {
    pub use crate::downstream::{proxy_protocol, tls_exercise};
    pub use crate::gate::signed;
    pub use crate::volume::exercise;

    /// The parser of HTTP/1 requests.
    pub mod http1 {
        pub use crate::downstream::http1::{chunked, head};
    }

    /// The parsers of HTTP/2.
    pub mod http2 {
        pub use crate::http2::hpack::{DecodeError, Encoder, Indexing};
        pub use crate::http2::violation::ErrorCode;
        pub use crate::http2::{client, exercise, request, response, server};
    }

    /// Parsers and rules of HTTP that all versions of HTTP share.
    pub mod http {
        pub use crate::http::{
            FieldBlock, Method, Scheme, bearer, cache_control, conditional, date, fields, freshen,
            freshness, key, location, pattern, range, reference, surrogate, target, targeted,
            trace_context, vary,
        };
    }

    /// The mapping of request paths to static files.
    pub mod files {
        pub use crate::files::{Located, locate};
    }
}
