//! The counters of the last seconds, from which rates are computed.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::Serialize;

use super::histogram::{Histogram, Percentiles};
use super::metric::Numbers;
use super::table::WorkerNumbers;

/// Number of samples that are kept, one per second.
const SAMPLES: usize = 10;

/// The counters and request durations of the last seconds, added up over all workers.
#[derive(Default)]
pub struct Recent(Mutex<VecDeque<(u64, WorkerNumbers, Histogram)>>);

/// Rates, hit ratios and request durations over the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Length of the period in seconds; at most about ten.
    pub seconds: f64,
    /// Requests per second.
    pub requests: f64,
    /// Bytes per second sent to clients.
    pub client_bytes_out: f64,
    /// Bytes per second received from origins.
    pub upstream_bytes_in: f64,
    /// Share of the requests to a cache that were served from stored bytes, from 0 to 1; `None`
    /// without such requests.
    pub hit_ratio: Option<f64>,
    /// Share of the body bytes that those requests received from stored bytes.
    pub byte_hit_ratio: Option<f64>,
    /// Percentiles of the durations of the requests that ended.
    pub request_duration: Percentiles,
}

impl Recent {
    /// Records the counters and request durations. Called once per second.
    pub fn note(&self, now_us: u64, numbers: WorkerNumbers, durations: Histogram) {
        let mut samples = self.0.lock();
        samples.truncate(SAMPLES - 1);
        samples.push_front((now_us, numbers, durations));
    }

    /// Computes the rates and percentiles since the oldest sample.
    pub fn rates(&self, now_us: u64, numbers: &WorkerNumbers, durations: &Histogram) -> Rates {
        let samples = self.0.lock();
        let Some((then_us, then, durations_then)) = samples.back() else {
            return Rates::default();
        };
        let mut since = *numbers;
        since.subtract(then);
        let mut durations = durations.clone();
        durations.subtract(durations_then);
        let seconds = now_us.saturating_sub(*then_us) as f64 / 1e6;
        let rate = |number: u64| match seconds > 0.0 {
            true => number as f64 / seconds,
            false => 0.0,
        };
        Rates {
            seconds,
            requests: rate(since.requests),
            client_bytes_out: rate(since.client_bytes_out),
            upstream_bytes_in: rate(since.upstream_bytes_in),
            hit_ratio: since.hit_ratio(),
            byte_hit_ratio: since.byte_hit_ratio(),
            request_duration: durations.percentiles(),
        }
    }
}

impl WorkerNumbers {
    /// Share of the requests to a cache that were served from stored bytes, from 0 to 1; `None`
    /// without such requests.
    pub fn hit_ratio(&self) -> Option<f64> {
        let hits = self.cache_hits.saturating_add(self.cache_validated);
        let others = [self.cache_misses, self.cache_collapsed, self.cache_passes];
        ratio(
            hits,
            others.iter().fold(hits, |all, n| all.saturating_add(*n)),
        )
    }

    /// Share of the body bytes of a cache's responses that were sent from stored bytes.
    pub fn byte_hit_ratio(&self) -> Option<f64> {
        ratio(self.cache_hit_bytes, self.cache_response_bytes)
    }
}

fn ratio(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::histogram_counters::HistogramCounters;

    #[test]
    fn rates_are_those_of_the_last_ten_samples() {
        let recent = Recent::default();
        let at = |second: u64| WorkerNumbers {
            requests: 100 * second,
            cache_hits: 30 * second,
            cache_misses: 10 * second,
            cache_response_bytes: 1000 * second,
            cache_hit_bytes: 500 * second,
            ..WorkerNumbers::default()
        };
        let durations = |second: u64| {
            let counters = HistogramCounters::default();
            (0..second).for_each(|at| counters.record(if at < 90 { 5_000_000 } else { 10 }));
            counters.values()
        };
        let none = Histogram::default();
        assert_eq!(recent.rates(0, &at(0), &none), Rates::default());
        for second in 0..100 {
            recent.note(second * 1_000_000, at(second), durations(second));
        }
        let rates = recent.rates(100_000_000, &at(100), &durations(100));
        assert_eq!((rates.seconds, rates.requests), (10.0, 100.0));
        assert_eq!(rates.hit_ratio, Some(0.75));
        assert_eq!(rates.byte_hit_ratio, Some(0.5));
        assert_eq!(rates.request_duration.p50_us, Some(10));
        // A sample of the same moment has no rate.
        let now = Recent::default();
        now.note(7, at(1), none.clone());
        assert_eq!(now.rates(7, &at(1), &none), Rates::default());
    }
}
