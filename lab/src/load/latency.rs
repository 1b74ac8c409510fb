//! A distribution of latencies, and its form in JSON.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Distribution of latencies in microseconds. All values are 0 if there are no latencies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Smallest latency.
    pub min_us: f64,
    /// Mean latency.
    pub mean_us: f64,
    /// Standard deviation of the latency.
    pub deviation_us: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 90th percentile of the latency.
    pub p90_us: f64,
    /// 95th percentile of the latency.
    pub p95_us: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
    /// 99.9th percentile of the latency.
    pub p999_us: f64,
    /// 99.99th percentile of the latency.
    #[serde(default)]
    pub p9999_us: f64,
    /// Largest latency.
    pub max_us: f64,
}

impl Latency {
    /// Whether there are no latencies.
    pub fn is_empty(&self) -> bool {
        // Each latency is at least a nanosecond.
        self.max_us == 0.0
    }

    pub(super) fn of(nanoseconds: &Histogram<u64>) -> Latency {
        if nanoseconds.is_empty() {
            return Latency::default();
        }
        let at = |quantile| nanoseconds.value_at_quantile(quantile) as f64 / 1000.0;
        Latency {
            min_us: nanoseconds.min() as f64 / 1000.0,
            mean_us: nanoseconds.mean() / 1000.0,
            deviation_us: nanoseconds.stdev() / 1000.0,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            p9999_us: at(0.9999),
            max_us: nanoseconds.max() as f64 / 1000.0,
        }
    }
}

/// The form of a distribution in JSON: `null` if there are no latencies, because zeros would look like fast responses.
pub(crate) mod or_null {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::Latency;

    pub(crate) fn serialize<S: Serializer>(
        latency: &Latency,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let some = Some(latency).filter(|latency| !latency.is_empty());
        some.serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Latency, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::LoadResult;

    #[test]
    fn a_result_without_latencies_has_null_in_json() {
        let empty = LoadResult::default();
        let json = serde_json::to_value(&empty).expect("JSON");
        assert!(
            json["latency"].is_null() && json["connect"].is_null(),
            "{json}"
        );
        let read: LoadResult = serde_json::from_value(json).expect("a result");
        assert!(read.latency.is_empty() && read.connect.is_empty());
        let mut histogram = Histogram::<u64>::new(3).expect("a precision");
        // The shortest time.
        histogram.record(1).expect("in bounds");
        let some = LoadResult {
            latency: Latency::of(&histogram),
            ..LoadResult::default()
        };
        let json = serde_json::to_value(&some).expect("JSON");
        assert_eq!(json["latency"]["max_us"], 0.001);
        let read: LoadResult = serde_json::from_value(json).expect("a result");
        assert_eq!(read.latency, some.latency);
    }
}
