//! Limits of a connection to a client.

use crate::http2::endpoint::{Growth, Limits, Rate};
use crate::http2::header_block;
use crate::http2::settings::Settings;

/// Limits and sizes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The limits that both roles have.
    pub limits: Limits,
    /// Requests that the client resets, and errors for which this side resets a stream.
    pub resets: Rate,
    /// Longest time in milliseconds, and most bytes, for which the rest of a request is discarded after its response.
    pub linger_ms: u64,
    /// See `linger_ms`.
    pub linger_bytes: u32,
    /// Whether extended CONNECT is supported (RFC 8441).
    pub extended_connect: bool,
}

impl Default for Options {
    fn default() -> Options {
        let streams = 128;
        let limits = Limits {
            streams,
            header_list: 16 << 10,
            block: header_block::Limits {
                bytes: 32 << 10,
                continuations: 8,
            },
            stream_window: 16 << 10,
            growth: Growth {
                // The size that every window has until the client knows these settings.
                read: 65_535,
                most: 1 << 20,
                pool: 2 << 20,
            },
            table: 512,
            frames: Rate {
                most: 1000,
                per_second: 100,
            },
        };
        Options {
            limits,
            resets: Rate {
                most: 2 * streams,
                per_second: 20,
            },
            linger_ms: 2000,
            linger_bytes: 256 << 10,
            extended_connect: false,
        }
    }
}

impl Options {
    /// Returns the settings that announce these limits.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            // A server does not send SETTINGS_ENABLE_PUSH, and the default is left out of the frame.
            max_concurrent_streams: self.limits.streams,
            enable_connect_protocol: self.extended_connect,
            no_rfc7540_priorities: true,
            ..self.limits.settings()
        }
    }
}
