//! HTTP/2 (RFC 9113) without connections: frames, HPACK (RFC 7541), settings, flow control, priorities (RFC 9218), and
//! the rules for header sections. Downstream uses it as server, upstream as client.
//!
//! Everything here is a pure function or a state without I/O: bytes come in as slices and go out into a `Vec`.

pub mod client;
mod endpoint;
#[cfg(any(test, feature = "test-rigs"))]
pub mod exercise;
pub mod field;
pub mod frame;
pub mod header_block;
pub mod hpack;
pub mod inbound;
pub mod malformed;
pub mod payload;
pub mod priority;
pub mod request;
pub mod response;
pub mod server;
pub mod settings;
pub mod violation;
pub mod wakeups;
pub mod window;
pub mod write;

/// The bytes with which a client begins a connection (RFC 9113 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
