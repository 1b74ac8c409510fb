//! The measures of the last minutes, one per second, from which the charts of `sluice top` are drawn.

use std::collections::VecDeque;

use super::snapshot::Traffic;

/// Seconds that are kept.
pub const SECONDS_MAX: usize = 600;

/// The measures of the last seconds. Seconds without an answer have none.
#[derive(Clone, Debug, Default)]
pub struct Series {
    values: VecDeque<Option<f64>>,
    /// Number of seconds recorded since the start, including those that are no longer kept.
    recorded: u64,
}

impl Series {
    /// Records the measure of one second.
    pub fn push(&mut self, value: Option<f64>) {
        if self.values.len() == SECONDS_MAX {
            self.values.pop_front();
        }
        self.values
            .push_back(value.filter(|value| value.is_finite()));
        self.recorded += 1;
    }

    /// Returns the means of the last `span` seconds in at most this many columns, the newest last. Columns begin at
    /// fixed seconds, so that a chart moves only by whole columns.
    pub fn columns(&self, width: usize, span: usize) -> Vec<Option<f64>> {
        let (width, span) = (width.max(1), span.clamp(1, SECONDS_MAX));
        let seconds = span.div_ceil(width) as u64;
        let first = self.recorded - self.values.len() as u64;
        let newest = self.recorded.saturating_sub(1) / seconds;
        let oldest = (newest + 1).saturating_sub(span.div_ceil(seconds as usize) as u64);
        let column = |column: u64| {
            let from = (column * seconds).max(first);
            let to = ((column + 1) * seconds).min(self.recorded);
            let known = (from..to).filter_map(|second| self.values[(second - first) as usize]);
            mean(known)
        };
        (oldest..=newest).map(column).collect()
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The series of all charts.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub requests: Series,
    pub hit_ratio: Series,
    pub latency: Series,
    pub client_bytes: Series,
    pub upstream_bytes: Series,
    pub failed: Series,
}

impl History {
    /// Records one second.
    pub fn push(&mut self, traffic: &Traffic) {
        self.requests.push(traffic.requests_per_s);
        self.hit_ratio.push(traffic.hit_ratio_now);
        let latency = traffic.latency.p99_us;
        self.latency.push(latency.map(|us| us as f64));
        self.client_bytes.push(traffic.client_bytes_per_s);
        self.upstream_bytes.push(traffic.upstream_bytes_per_s);
        self.failed.push(traffic.responses_5xx_per_s);
    }

    /// Records seconds without an answer. More than are kept make no difference.
    pub fn push_gap(&mut self, seconds: u64) {
        let nothing = Traffic::default();
        (0..seconds.min(SECONDS_MAX as u64)).for_each(|_| self.push(&nothing));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn series(values: impl IntoIterator<Item = Option<f64>>) -> Series {
        let mut series = Series::default();
        values.into_iter().for_each(|value| series.push(value));
        series
    }

    #[test]
    fn columns_are_means_and_the_newest_is_last() {
        let known = series([1.0, 3.0, 5.0, 7.0].map(Some));
        assert_eq!(known.columns(4, 4), [1.0, 3.0, 5.0, 7.0].map(Some));
        assert_eq!(known.columns(2, 4), [2.0, 6.0].map(Some));
        assert_eq!(known.columns(9, 2), [5.0, 7.0].map(Some));
        let gap = series([Some(1.0), None, None, None]);
        assert_eq!(gap.columns(2, 4), [Some(1.0), None]);
        assert_eq!(Series::default().columns(5, 60), [None]);
    }

    #[test]
    fn columns_stay_when_a_second_is_added() {
        let mut all = series((0..100).map(|n| Some(f64::from(n))));
        let before = all.columns(10, 60);
        all.push(Some(0.0));
        all.push(Some(0.0));
        assert_eq!(all.columns(10, 60)[..9], before[..9]);
        all.push(Some(0.0));
        assert_eq!(all.columns(10, 60)[..8], before[1..9]);
    }

    proptest! {
        #[test]
        fn columns_are_bounded(count in 0usize..1500, width in 0usize..300, span in 0usize..2000) {
            let all = series((0..count).map(|n| (n % 3 > 0).then_some(n as f64)));
            let columns = all.columns(width, span);
            prop_assert!(!columns.is_empty() && columns.len() <= width.max(1));
            let newest = count as f64;
            prop_assert!(columns.iter().flatten().all(|value| (0.0..newest).contains(value)));
            prop_assert!(all.values.len() <= SECONDS_MAX);
        }
    }
}
