//! Telemetry: the metrics and the table that describes them, the access log, and messages.

mod access;
mod access_format;
mod access_options;
mod access_record;
mod access_writer;
mod counter;
mod exposed_name;
pub mod messages;
mod metric;
mod registry;
mod selection;
mod table;
mod template;

#[cfg(test)]
mod documentation;

pub use access::AccessLog;
pub use access_options::{AccessFormat, AccessOptions, AccessTarget};
pub use access_record::{AccessRecord, AccessUpstream};
pub use access_writer::AccessWriter;
pub use counter::Counter;
pub use metric::{Kind, Metric, Numbers, Unit, described};
pub use registry::Telemetry;
pub use selection::{LogRule, Selection};
pub use table::{
    CacheNumbers, CompressNumbers, Counters, FilesNumbers, ProcessNumbers, ServerCounters,
    ServerNumbers, VolumeFlags, VolumeNumbers, WorkerNumbers,
};
pub use template::{FIELD_NAMES, Template, TemplateError, TemplateFault};
