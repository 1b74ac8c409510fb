//! Telemetry: counters and the table that describes them, the access log, messages.

mod access;
mod access_format;
mod access_writer;
mod counter;
pub mod messages;
mod metric;
mod registry;
mod selection;
mod table;
mod template;

#[cfg(test)]
mod documentation;

pub use access::{AccessLog, AccessRecord, AccessUpstream};
pub use access_writer::AccessWriter;
pub use counter::Counter;
pub use metric::{Kind, Metric, Numbers, Scope, Unit, described};
pub use registry::Telemetry;
pub use selection::{LogRule, Selection};
pub use table::{
    CacheNumbers, CompressNumbers, Counters, FilesNumbers, ProcessNumbers, ServerCounters,
    ServerNumbers, VolumeFlags, VolumeNumbers, WorkerNumbers,
};
pub use template::{FIELD_NAMES, Template, TemplateError, TemplateFault};

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessFormat {
    /// nginx's `combined`.
    #[default]
    Combined,
    /// One JSON object a line, with cache status, reason and timings.
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
