//! What is counted: one set of counters per worker, written without contention, merged on reading.

mod access;
mod access_format;
mod access_writer;
mod counters;

pub use access::{AccessLog, AccessRecord, AccessUpstream};
pub use access_writer::AccessWriter;
pub use counters::{Counter, Counters, Telemetry};

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

/// `[log]`, as far as it is about the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessOptions {
    /// Where the lines go.
    pub target: AccessTarget,
    /// What they look like.
    pub format: AccessFormat,
    /// A worker hands its lines over when it has this many bytes of them …
    pub buffer: usize,
    /// … or after this time.
    pub flush: Duration,
}

/// `access = "…"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessTarget {
    /// `-`: standard output.
    Stdout,
    /// Appended to this file.
    File(PathBuf),
}

impl std::fmt::Display for AccessTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AccessTarget::Stdout => f.write_str("standard output"),
            AccessTarget::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// `format = "…"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessFormat {
    /// nginx's `combined`.
    #[default]
    Combined,
    /// One JSON object a line, with cache status, reason and timings.
    Json,
}

impl Default for AccessOptions {
    fn default() -> AccessOptions {
        AccessOptions {
            target: AccessTarget::Stdout,
            format: AccessFormat::default(),
            buffer: 64 << 10,
            flush: Duration::from_secs(1),
        }
    }
}
