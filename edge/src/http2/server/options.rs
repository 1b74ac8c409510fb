//! Limits of a connection to a client.

use crate::http2::header_block;
use crate::http2::hpack::DEFAULT_TABLE_SIZE;
use crate::http2::settings::Settings;

use super::allowance::Rate;

/// Limits and sizes of a connection. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most open streams.
    pub streams: u32,
    /// Largest header list (RFC 9113 6.5.2).
    pub header_list: u32,
    /// Limits of a header block before it is decoded.
    pub block: header_block::Limits,
    /// Window of a stream: most bytes of a request's content that are buffered.
    pub stream_window: u32,
    /// Window of the connection.
    pub connection_window: u32,
    /// Largest dynamic table for responses.
    pub table: u32,
    /// Frames that bring nothing.
    pub frames: Rate,
    /// Requests that the client resets, and errors for which this side resets a stream.
    pub resets: Rate,
    /// Whether extended CONNECT is supported (RFC 8441).
    pub extended_connect: bool,
}

impl Default for Options {
    fn default() -> Options {
        let streams = 128;
        let stream_window = 64 << 10;
        Options {
            streams,
            header_list: 16 << 10,
            block: header_block::Limits {
                bytes: 32 << 10,
                continuations: 8,
            },
            stream_window,
            // All streams together can never exhaust it, so that a stream that is not read holds up no other one.
            connection_window: streams * stream_window,
            table: 512,
            frames: Rate {
                most: 1000,
                per_second: 100,
            },
            resets: Rate {
                most: 2 * streams,
                per_second: 20,
            },
            extended_connect: false,
        }
    }
}

impl Options {
    /// Returns the settings that announce these limits.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            header_table_size: DEFAULT_TABLE_SIZE,
            // A server does not send it; the default is left out of the frame.
            enable_push: true,
            max_concurrent_streams: self.streams,
            initial_window_size: self.stream_window,
            max_header_list_size: self.header_list,
            enable_connect_protocol: self.extended_connect,
            no_rfc7540_priorities: true,
            ..Settings::default()
        }
    }
}
