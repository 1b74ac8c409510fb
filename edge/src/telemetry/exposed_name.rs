//! Names of metrics in Prometheus' text format.

use std::fmt::{self, Display, Formatter};

use super::metric::{Kind, Metric, Numbers, Scope, Unit};
use super::table::WorkerNumbers;

impl Metric {
    /// Returns the name of the metric's samples in Prometheus' text format. A worker's `requests` is the counter
    /// `sluice_requests_total`, its `requests_now` the gauge `sluice_requests_current`, and a cache's `limit` the gauge
    /// `sluice_cache_limit_bytes`.
    ///
    /// A worker's `cache_hits` and a cache's `hits` would both be `sluice_cache_hits_total`, and
    /// Prometheus allows one family per name. The worker's number keeps the name, the other one gets
    /// its label: `sluice_cache_hits_by_cache_total`.
    pub fn exposed_name(&self) -> String {
        let total = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge | Kind::Histogram => "",
        };
        self.family_name() + total
    }

    /// Returns the name of the metric's family in OpenMetrics: the same without `_total`.
    pub fn family_name(&self) -> String {
        let (name, now) = match self.name.strip_suffix("_now") {
            // Without this, a counter's family in OpenMetrics could have the name of a gauge.
            Some(name) => (name, "_current"),
            None => (self.name, ""),
        };
        let by = match self.scope.labels() {
            [.., label] if self.is_taken(name) => format!("_by_{label}"),
            _ => String::new(),
        };
        let (name, unit) = self.with_base_unit(name);
        format!("sluice_{}{name}{now}{by}{unit}", self.scope.prefix())
    }

    /// Returns the name without its unit, and the base unit as the end of a name (with `_`).
    fn with_base_unit(&self, name: &str) -> (String, String) {
        let Some(base) = self.unit.base() else {
            return (name.to_owned(), String::new());
        };
        let is_unit = |part: &&str| *part != base && *part != "ms";
        let rest: Vec<&str> = name.split('_').filter(is_unit).collect();
        match rest.is_empty() {
            // A cache's `bytes` has no other name.
            true => (base.to_owned(), String::new()),
            false => (rest.join("_"), format!("_{base}")),
        }
    }

    /// Returns a value of the metric in its base unit.
    pub fn in_base_unit(&self, value: u64) -> BaseValue {
        match self.unit {
            Unit::Milliseconds => BaseValue::Thousandths(value),
            _ => BaseValue::Whole(value),
        }
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

/// A value in the base unit of its metric.
#[derive(Clone, Copy, Debug)]
pub enum BaseValue {
    /// A whole number.
    Whole(u64),
    /// A number of thousandths.
    Thousandths(u64),
}

impl Display for BaseValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            BaseValue::Whole(value) => write!(f, "{value}"),
            BaseValue::Thousandths(value) => write!(f, "{}.{:03}", value / 1000, value % 1000),
        }
    }
}

impl Unit {
    /// Returns the base unit in which Prometheus gets the values, if it is part of the names.
    pub fn base(self) -> Option<&'static str> {
        match self {
            Unit::Bytes => Some("bytes"),
            Unit::Seconds | Unit::Milliseconds => Some("seconds"),
            Unit::Count | Unit::Flag => None,
        }
    }
}
