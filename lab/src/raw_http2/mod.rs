//! A client of HTTP/2 that sends any frames, in any order: for malformed requests, and for attacks.
//!
//! ```
//! use sluice_lab::raw_http2::{Frames, GET};
//! let mut frames = Frames::new();
//! frames.preface().settings(&[]).headers(1, &[(":method", GET), (":path", "/")], true);
//! assert!(frames.bytes().starts_with(b"PRI * HTTP/2.0"));
//! ```

mod connection;
mod frames;

pub use connection::{Frame, RawHttp2};
pub(crate) use frames::indexed_literal;
pub use frames::{Frames, GET, POST, block, get};

/// The bytes with which a client begins a connection (RFC 9113 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113 6, RFC 9218 7.1).
pub mod kind {
    /// Content.
    pub const DATA: u8 = 0;
    /// The beginning of a field section.
    pub const HEADERS: u8 = 1;
    /// A priority of RFC 7540.
    pub const PRIORITY: u8 = 2;
    /// The reset of a stream.
    pub const RST_STREAM: u8 = 3;
    /// Settings, or their acknowledgement.
    pub const SETTINGS: u8 = 4;
    /// A ping, or the answer to it.
    pub const PING: u8 = 6;
    /// The announcement of the connection's end.
    pub const GOAWAY: u8 = 7;
    /// More room in a window.
    pub const WINDOW_UPDATE: u8 = 8;
    /// A further part of a field section.
    pub const CONTINUATION: u8 = 9;
    /// A priority of RFC 9218.
    pub const PRIORITY_UPDATE: u8 = 16;
}

/// Flags of frames (RFC 9113 6).
pub mod flag {
    /// The frame is the last one of its stream.
    pub const END_STREAM: u8 = 1;
    /// The frame acknowledges settings, or answers a ping.
    pub const ACK: u8 = 1;
    /// The frame ends its field section.
    pub const END_HEADERS: u8 = 4;
}

/// Identifiers of settings (RFC 9113 6.5.2).
pub mod setting {
    /// Whether the server may push.
    pub const ENABLE_PUSH: u16 = 2;
    /// The window of new streams.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
}

/// Error codes (RFC 9113 7).
pub mod code {
    /// No error.
    pub const NO_ERROR: u32 = 0;
    /// The peer violates the protocol.
    pub const PROTOCOL_ERROR: u32 = 1;
    /// The peer violates flow control.
    pub const FLOW_CONTROL_ERROR: u32 = 3;
    /// The stream was refused before it was handled.
    pub const REFUSED_STREAM: u32 = 7;
    /// The stream is no longer needed.
    pub const CANCEL: u32 = 8;
    /// Field sections can't be decoded any more.
    pub const COMPRESSION_ERROR: u32 = 9;
    /// The peer causes too much load.
    pub const ENHANCE_YOUR_CALM: u32 = 11;
}
