//! How a number is described: its name, kind, unit, scope and meaning.

use super::table::WorkerNumbers;

/// A counter or a gauge, as status, Prometheus and the documentation show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in the status (JSON). Gauges of workers end in `_now`.
    pub name: &'static str,
    /// How it changes.
    pub kind: Kind,
    /// Its unit.
    pub unit: Unit,
    /// The kind of thing it is measured of.
    pub scope: Scope,
    /// Its meaning, a full sentence or phrase with a full stop.
    pub help: &'static str,
    /// Line and label in the output of `sluice status`, for numbers of workers that are shown there.
    pub summary: Option<(&'static str, &'static str)>,
}

/// How a number changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A counter only rises, until the process ends.
    Counter,
    /// A gauge rises and falls.
    Gauge,
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
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

/// The kind of thing that a number is measured of.
///
/// A scope's members are named by the configuration, never by a client, so that their number is
/// bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole process.
    Process,
    /// One worker thread. The status also shows the sum over all workers.
    Worker,
    /// One route.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "no number is measured per route yet")
    )]
    Route,
    /// One cache.
    Cache,
    /// The compressed content of all routes together.
    Compress,
    /// One volume.
    Volume,
    /// One folder of static files.
    Files,
    /// One upstream.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "no number is measured per upstream yet")
    )]
    Upstream,
    /// One server of an upstream, over all workers.
    Server,
}

/// The numbers of one member of a scope at one moment, all of type `u64`.
pub trait Numbers: Copy + Default + 'static {
    /// Their descriptions.
    const METRICS: &'static [Metric];

    /// Their values, in the order of `METRICS`.
    fn values(&self) -> impl Iterator<Item = u64>;

    /// The numbers whose values `get` returns by their names.
    fn read(get: impl Fn(&'static str) -> u64) -> Self;

    /// Adds another member's numbers to these.
    fn add(&mut self, other: &Self);
}

/// All descriptions with their values.
pub fn described<N: Numbers>(numbers: &N) -> impl Iterator<Item = (&'static Metric, u64)> {
    N::METRICS.iter().zip(numbers.values())
}

impl Kind {
    /// Its name in Prometheus' text format.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

#[cfg(test)]
impl Unit {
    /// Its name in the documentation; empty for things.
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
    /// The labels that name a member of it in Prometheus' text format.
    pub fn labels(self) -> &'static [&'static str] {
        match self {
            Scope::Process | Scope::Compress => &[],
            Scope::Worker => &["worker"],
            Scope::Route => &["route"],
            Scope::Cache => &["cache"],
            Scope::Volume => &["volume"],
            Scope::Files => &["root"],
            Scope::Upstream => &["upstream"],
            Scope::Server => &["upstream", "server"],
        }
    }

    /// The beginning of names in Prometheus' text format, after `sluice_`.
    fn prefix(self) -> &'static str {
        match self {
            Scope::Process | Scope::Worker => "",
            Scope::Route => "route_",
            Scope::Cache => "cache_",
            Scope::Compress => "compress_",
            Scope::Volume => "volume_",
            Scope::Files => "files_",
            Scope::Upstream => "upstream_",
            Scope::Server => "server_",
        }
    }
}

impl Metric {
    /// Its name in Prometheus' text format: the worker's `requests` is the counter
    /// `sluice_requests_total`, `requests_now` the gauge `sluice_requests`, a cache's `limit` the gauge
    /// `sluice_cache_limit_bytes`.
    ///
    /// A worker's `cache_hits` and a cache's `hits` would both be `sluice_cache_hits_total`, and
    /// Prometheus allows one family per name. The worker's number keeps the name, the other one gets
    /// its label: `sluice_cache_hits_by_cache_total`.
    pub fn exposed_name(&self) -> String {
        let name = self.name.strip_suffix("_now").unwrap_or(self.name);
        let by = match self.scope.labels() {
            [.., label] if self.is_taken(name) => format!("_by_{label}"),
            _ => String::new(),
        };
        let unit = match self.unit {
            Unit::Bytes if !name.contains("bytes") => "_bytes",
            _ => "",
        };
        let total = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge => "",
        };
        format!("sluice_{}{name}{by}{unit}{total}", self.scope.prefix())
    }

    /// Whether a number of workers already has this number's name with the scope's prefix.
    fn is_taken(&self, name: &str) -> bool {
        let name = |worker: &str| {
            worker
                .strip_suffix("_now")
                .unwrap_or(worker)
                .strip_prefix(self.scope.prefix())
                == Some(name)
        };
        self.scope != Scope::Worker && WorkerNumbers::METRICS.iter().any(|m| name(m.name))
    }
}
