//! Names of metrics in Prometheus' text format.

use super::metric::{Kind, Metric, Numbers, Scope, Unit};
use super::table::WorkerNumbers;

impl Metric {
    /// Returns the metric's name in Prometheus' text format. A worker's `requests` is the counter
    /// `sluice_requests_total`, its `requests_now` the gauge `sluice_requests`, and a cache's
    /// `limit` the gauge `sluice_cache_limit_bytes`.
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
            Unit::Seconds if !name.contains("seconds") => "_seconds",
            _ => "",
        };
        let total = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge | Kind::Histogram => "",
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
