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
            growth: Growth::NONE,
            table: 4096,
            frames: Rate {
                most: 2000,
                per_second: 200,
            },
        };
        Options { limits }
    }
}

impl Options {
    /// Returns the settings that announce these limits.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            enable_push: false,
            ..self.limits.settings()
        }
    }
}
