//! `[log]`, as far as it concerns the access log.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::template::Template;

/// `[log]`, as far as it concerns the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessOptions {
    /// Where the lines go.
    pub target: AccessTarget,
    /// The form of a line.
    pub format: AccessFormat,
    /// A worker passes its lines to the writer when it has this many bytes of them …
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessFormat {
    /// nginx's `combined`.
    #[default]
    Combined,
    /// One JSON object per line, with cache status, reason and timings.
    Json,
    /// Text with named fields.
    Template(Arc<Template>),
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
