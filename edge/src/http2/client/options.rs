//! Limits of a connection to a server.

use crate::http2::endpoint::{Growth, Limits, Rate};
use crate::http2::header_block;
use crate::http2::settings::Settings;

/// Limits and sizes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The limits that both roles have.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Options {
        let streams = 100;
        let limits = Limits {
            streams,
            header_list: 32 << 10,
            block: header_block::Limits {
                bytes: 64 << 10,
                continuations: 16,
            },
            stream_window: 256 << 10,
            growth: Growth {
                // A window that has not grown is large enough for most responses.
                read: 0,
                most: 4 << 20,
                pool: 8 << 20,
            },
            table: 4096,
            frames: Rate {
                most: 2000,
                per_second: 200,
            },
        };
        Options { limits }
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
        limits.block.bytes = limits.block.bytes.max(most as usize);
        // Blocks that are sent in smaller frames than necessary are accepted, too.
        limits.block.continuations = limits.block.continuations.max(2 * most / FRAME);
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
