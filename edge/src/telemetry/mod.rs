//! Telemetry: the metrics and the table that describes them, the access log, and messages.

mod access;
mod access_format;
mod access_options;
mod access_record;
mod access_writer;
mod buckets;
mod counter;
mod exchange_record;
mod exchange_ring;
mod exposed_name;
mod failures;
mod histogram;
mod histogram_counters;
pub mod history;
mod measures;
mod memory;
pub mod messages;
mod metric;
mod observed;
mod reading;
mod reasons;
mod recent;
mod registry;
mod routes;
mod selection;
mod server_state;
mod table;
mod table_macros;
mod template;
mod traffic_table;
mod turns;

#[cfg(test)]
mod documentation;

pub use access::AccessLog;
pub use access_options::{AccessFormat, AccessOptions, AccessTarget};
pub use access_record::{AccessRecord, AccessTls, AccessUpstream};
pub use access_writer::AccessWriter;
pub use counter::Counter;
pub use exchange_record::{ClosedBy, ConnectionFacts, ExchangeEnd, ExchangeRecord, ExchangeResult};
pub use exchange_ring::ExchangeRing;
pub use failures::Failures;
pub use histogram::Histogram;
pub use measures::Measures;
pub use memory::{MemoryMax, counters_max, observed_max};
pub use metric::{Kind, Metric, Numbers, Scope, Unit, described};
pub use observed::{
    MINUTES_MAX, Measure, NOTICES_MAX, Notice, Notices, Observed, Sample, SampleResult, Sampler,
    UrlMask, event_layer, installed as installed_notices, json_text, shown_url,
};
pub use reading::{
    CacheReading, CoarseReading, FineReading, RouteReading, ServerReading, WorkerReading,
};
pub use reasons::Reasons;
pub use recent::{Rates, Recent};
pub use registry::Telemetry;
pub use routes::{ChosenRoute, RouteKey, RouteSums, RouteTelemetry, WorkerRoutes};
pub use selection::{LogRule, Selection};
pub use server_state::EffectiveState;
pub use table::{
    BufferNumbers, CacheNumbers, CertificateNumbers, CertificateTotals, CompressNumbers, Counters,
    FilesNumbers, ProcessNumbers, VolumeFlags, VolumeNumbers, WorkerMeasures, WorkerNumbers,
};
pub use template::{FIELD_NAMES, Template, TemplateError, TemplateFault};
pub use traffic_table::{
    RouteCounters, RouteNumbers, ServerCounters, ServerMeasures, ServerNumbers,
};
pub use turns::Turns;
