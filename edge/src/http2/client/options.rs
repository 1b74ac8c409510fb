//! Limits of a connection to a server.

use crate::http2::endpoint::{Growth, Limits, Rate};
use crate::http2::header_block;
use crate::http2::settings::Settings;

/// Limits and sizes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The limits that both roles have.
    pub limits: Limits,
    /// Streams that this side resets, beyond which the connection should get no more requests. Servers end connections with
    /// more resets than they permit, and all exchanges with them.
    pub resets: Rate,
}

impl Default for Options {
    fn default() -> Options {
        let streams = 100;
        let limits = Limits {
            streams,
            header_list: 32 << 10,
            block: header_block::Limits {
                bytes: 128 << 10,
                continuations: 16,
            },
            // Memory that a client can hold whose own window is closed.
            stream_window: 32 << 10,
            growth: Growth {
                read: 256 << 10,
                most: 4 << 20,
                pool: 16 << 20,
            },
            table: 4096,
            frames: Rate {
                most: 2000,
                per_second: 200,
            },
        };
        // Together with the streams that are open when it is used up, these are fewer than servers permit.
        let resets = Rate {
            most: 100,
            per_second: 10,
        };
        Options { limits, resets }
    }
}

/// Size of a frame of a header block (RFC 9113 6.5.2): no larger ones are announced.
const FRAME: u32 = 16 << 10;

impl Options {
    /// Returns the default limits with this one for the header list of a response, in bytes.
    pub fn with_header_list(most: u32) -> Options {
        let mut options = Options::default();
        let limits = &mut options.limits;
        limits.header_list = most;
        // A block above the limit ends the connection, and a list above its limit only the stream.
        limits.block.bytes = limits.block.bytes.max(2 * most as usize);
        // Blocks that are sent in smaller frames than necessary are accepted, too.
        limits.block.continuations = limits.block.continuations.max(4 * most / FRAME);
        options
    }

    /// Returns the settings that announce these limits.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            enable_push: false,
            ..self.limits.settings()
        }
    }
}
