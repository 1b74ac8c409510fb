//! The description of a metric: its name, kind, unit, scope and meaning.

/// A counter, a gauge or a histogram, as shown in the status, in Prometheus' format and in the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name in the status (JSON). Names of workers' gauges end in `_now`.
    pub name: &'static str,
    /// Whether the metric is a counter, a gauge or a histogram.
    pub kind: Kind,
    /// Unit of the value.
    pub unit: Unit,
    /// The kind of thing that is measured.
    pub scope: Scope,
    /// Meaning, as a sentence or phrase that ends in a full stop.
    pub help: &'static str,
    /// Line and label in the output of `sluice status`, for metrics of workers that are shown
    /// there.
    pub summary: Option<(&'static str, &'static str)>,
}

/// Whether a metric is a counter, a gauge or a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only rises, until the process ends.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// Numbers of durations by their length, or of bodies by their size, which only rise.
    Histogram,
}

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things, without a unit.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// 1 for yes, 0 for no.
    Flag,
}

/// The kind of thing that a metric measures.
///
/// The members of a scope, such as all routes, are named by the configuration and never by a
/// client, so that their number is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole process.
    Process,
    /// One worker thread. The status also shows the sum over all workers.
    Worker,
    /// One site: the sum over its routes.
    Site,
    /// One route.
    Route,
    /// One named reason for which requests were refused, failed or were forwarded, over all workers.
    Reason,
    /// One cache.
    Cache,
    /// The buffers of bodies of all routes together.
    Buffers,
    /// The compressed content of all routes together.
    Compress,
    /// One volume.
    Volume,
    /// One folder of static files.
    Files,
    /// One upstream.
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "the numbers of upstreams, which are sums over their servers, are only in the history"
        )
    )]
    Upstream,
    /// One server of an upstream, over all workers.
    Server,
    /// All certificates of listeners, sites and the admin address.
    Certificates,
    /// One of these certificates.
    Certificate,
}

/// The values of all metrics of one member of a scope at one moment, each of type `u64`.
pub trait Numbers: Copy + Default + 'static {
    /// Descriptions of these metrics.
    const METRICS: &'static [Metric];

    /// Returns the values, in the order of `METRICS`.
    fn values(&self) -> impl Iterator<Item = u64>;

    /// Creates the values from `get`, which returns the value of the metric with the given name.
    fn read(get: impl Fn(&'static str) -> u64) -> Self;

    /// Adds another member's values to these.
    fn add(&mut self, other: &Self);

    /// Subtracts earlier values of the same member from these.
    fn subtract(&mut self, earlier: &Self);
}

/// Returns the description of each metric with its value.
pub fn described<N: Numbers>(numbers: &N) -> impl Iterator<Item = (&'static Metric, u64)> {
    N::METRICS.iter().zip(numbers.values())
}

impl Metric {
    /// Returns the description of the same metric of another scope, such as the sum over the routes of a cache.
    pub fn of_scope(self, scope: Scope) -> Metric {
        Metric { scope, ..self }
    }
}

impl Kind {
    /// Returns the kind's name in Prometheus' text format.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

impl Unit {
    /// Returns the unit's name in documents and in the history, empty for `Count`.
    pub fn as_str(self) -> &'static str {
        match self {
            Unit::Count => "",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
            Unit::Milliseconds => "milliseconds",
            Unit::Flag => "0 or 1",
        }
    }
}

impl Scope {
    /// Returns the labels that identify a member of the scope in Prometheus' text format.
    pub fn labels(self) -> &'static [&'static str] {
        match self {
            Scope::Process | Scope::Buffers | Scope::Compress | Scope::Certificates => &[],
            Scope::Worker => &["worker"],
            Scope::Site => &["site"],
            Scope::Route => &["route"],
            Scope::Reason => &["reason"],
            Scope::Cache => &["cache"],
            Scope::Volume => &["volume"],
            Scope::Files => &["root"],
            Scope::Upstream => &["upstream"],
            Scope::Server => &["upstream", "server"],
            Scope::Certificate => &["source", "certificate"],
        }
    }

    /// Returns the beginning of the metrics' names in Prometheus' text format, after `sluice_`.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Scope::Process | Scope::Worker | Scope::Reason => "",
            Scope::Site => "site_",
            Scope::Route => "route_",
            Scope::Cache => "cache_",
            Scope::Buffers => "buffers_",
            Scope::Compress => "compress_",
            Scope::Volume => "volume_",
            Scope::Files => "files_",
            Scope::Upstream => "upstream_",
            Scope::Server => "server_",
            Scope::Certificates => "certificates_",
            Scope::Certificate => "certificate_",
        }
    }
}
