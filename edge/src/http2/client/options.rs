//! Limits of a connection to a server.

use crate::http2::header_block;
use crate::http2::server::Rate;
use crate::http2::settings::Settings;

/// Limits and sizes of a connection. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most open streams, even if the server permits more.
    pub streams: u32,
    /// Largest header list (RFC 9113 6.5.2).
    pub header_list: u32,
    /// Limits of a header block before it is decoded.
    pub block: header_block::Limits,
    /// Window of a stream: most bytes of a response's content that are buffered.
    pub stream_window: u32,
    /// Window of the connection.
    pub connection_window: u32,
    /// Largest dynamic table for requests.
    pub table: u32,
    /// Frames that bring nothing.
    pub frames: Rate,
}

impl Default for Options {
    fn default() -> Options {
        let streams = 100;
        let stream_window = 256 << 10;
        Options {
            streams,
            header_list: 32 << 10,
            block: header_block::Limits {
                bytes: 64 << 10,
                continuations: 16,
            },
            stream_window,
            // All streams together can never exhaust it, so that a response that is not read holds up no other one.
            connection_window: streams * stream_window,
            table: 4096,
            frames: Rate {
                most: 2000,
                per_second: 200,
            },
        }
    }
}

impl Options {
    /// Returns the settings that announce these limits.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            enable_push: false,
            initial_window_size: self.stream_window,
            max_header_list_size: self.header_list,
            ..Settings::default()
        }
    }
}
