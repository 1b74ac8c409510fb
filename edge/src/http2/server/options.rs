//! Limits of a connection to a client.

use crate::http2::endpoint::{Limits, Rate};
use crate::http2::header_block;
use crate::http2::settings::Settings;

/// Limits and sizes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The limits that both roles have.
    pub limits: Limits,
    /// Requests that the client resets, and errors for which this side resets a stream.
    pub resets: Rate,
    /// Whether extended CONNECT is supported (RFC 8441).
    pub extended_connect: bool,
}

impl Default for Options {
    fn default() -> Options {
        let streams = 128;
        let stream_window = 64 << 10;
        let limits = Limits {
            streams,
            header_list: 16 << 10,
            block: header_block::Limits {
                bytes: 32 << 10,
                continuations: 8,
            },
            stream_window,
            connection_window: streams * stream_window,
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
