//! Options of the access log (in `[log]`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::template::Template;

/// Options of the access log (in `[log]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessOptions {
    /// Destination of the lines.
    pub target: AccessTarget,
    /// Format of a line.
    pub format: AccessFormat,
    /// Bytes of lines after which a worker passes them to the writer.
    pub buffer: usize,
    /// Time after which a worker passes its lines to the writer, even if they are fewer than
    /// `buffer`.
    pub flush: Duration,
}

/// Destination of the access log (`access = "…"`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessTarget {
    /// Standard output, written `-`.
    Stdout,
    /// A file, to which lines are appended.
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

/// Format of the access log (`format = "…"`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessFormat {
    /// nginx's `combined` format.
    #[default]
    Combined,
    /// `combined` with the cache status at the end of each line.
    CombinedCache,
    /// One JSON object per line, with cache status, reason and timings.
    Json,
    /// Text with named fields in braces.
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
