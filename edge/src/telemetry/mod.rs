//! Telemetry: the metrics and the table that describes them, the access log, and messages.

mod access;
mod access_format;
mod access_options;
mod access_record;
mod access_writer;
mod counter;
mod exposed_name;
mod failures;
mod histogram;
pub mod history;
pub mod messages;
mod metric;
mod recent;
mod registry;
mod selection;
mod server;
mod server_state;
mod table;
mod table_macros;
mod template;

#[cfg(test)]
mod documentation;

pub use access::AccessLog;
pub use access_options::{AccessFormat, AccessOptions, AccessTarget};
pub use access_record::{AccessRecord, AccessTls, AccessUpstream};
pub use access_writer::AccessWriter;
pub use counter::Counter;
pub use failures::Failures;
pub use histogram::{Histogram, Percentiles};
pub use metric::{Kind, Metric, Numbers, Unit, described};
pub use recent::{Rates, Recent};
pub use registry::Telemetry;
pub use selection::{LogRule, Selection};
pub use server::ServerMeasures;
pub use server_state::EffectiveState;
pub use table::{
    BufferNumbers, CacheNumbers, CertificateNumbers, CertificateTotals, CompressNumbers, Counters,
    FilesNumbers, ProcessNumbers, ServerCounters, ServerNumbers, VolumeFlags, VolumeNumbers,
    WorkerNumbers,
};
pub use template::{FIELD_NAMES, Template, TemplateError, TemplateFault};
