//! Histograms of durations: counters per bucket that one worker writes, their sums, and percentiles.

use serde::Serialize;

use super::counter::Counter;

/// Upper bounds in microseconds of the buckets that `/metrics` exports.
const EXPORTED_US: [u64; 21] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000,
    500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000,
];

/// Bounds below 10 microseconds.
const FIRST_US: [u64; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

/// Bounds of each decade from 10 microseconds on, in hundredths of its beginning. Each is at most a
/// quarter above the one before.
const STEPS: [u64; 13] = [
    100, 125, 150, 175, 200, 250, 300, 350, 400, 500, 600, 700, 800,
];

/// Number of bounds from 10 microseconds to 50 seconds: six decades, and the bounds of the seventh
/// up to 500 hundredths.
const LATER: usize = 6 * STEPS.len() + 10;

/// Number of bounds of all buckets.
const BOUNDS: usize = FIRST_US.len() + LATER;

/// Number of buckets. The last one counts longer durations than all bounds.
const BUCKETS: usize = BOUNDS + 1;

/// Upper bounds of the buckets in microseconds, each included in its bucket. They contain all
/// exported bounds.
const BOUNDS_US: [u64; BOUNDS] = bounds();

/// For each number of significant bits, the first bucket of a duration with so many bits.
const FIRST_BUCKET: [u8; 65] = first_buckets();

const fn bounds() -> [u64; BOUNDS] {
    let mut bounds = [0; BOUNDS];
    let mut at = 0;
    while at < FIRST_US.len() {
        bounds[at] = FIRST_US[at];
        at += 1;
    }
    let mut decade = 10;
    let mut step = 0;
    while at < BOUNDS {
        bounds[at] = decade * STEPS[step] / 100;
        at += 1;
        step += 1;
        if step == STEPS.len() {
            (decade, step) = (decade * 10, 0);
        }
    }
    bounds
}

const fn first_buckets() -> [u8; 65] {
    let mut first = [0; 65];
    let mut bits = 1;
    while bits < first.len() {
        let smallest = 1 << (bits - 1);
        let mut bucket = first[bits - 1];
        while (bucket as usize) < BOUNDS && BOUNDS_US[bucket as usize] < smallest {
            bucket += 1;
        }
        first[bits] = bucket;
        bits += 1;
    }
    first
}

/// Returns the bucket that counts a duration.
fn bucket_of(duration_us: u64) -> usize {
    let bits = u64::BITS - duration_us.leading_zeros();
    let first = usize::from(FIRST_BUCKET[bits as usize]);
    // A number of bits covers at most five buckets.
    let beyond = BOUNDS_US[first..]
        .iter()
        .take_while(|bound| **bound < duration_us);
    first + beyond.count()
}

/// A histogram of durations that one worker writes and any thread reads.
pub struct HistogramCounters {
    buckets: [Counter; BUCKETS],
    sum_us: Counter,
}

/// The values of a histogram of durations at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    /// Sum of all durations in microseconds.
    pub sum_us: u64,
}

/// Percentiles of durations in microseconds, estimated from a histogram; `None` without durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// The median.
    pub p50_us: Option<u64>,
    /// The 90th percentile.
    pub p90_us: Option<u64>,
    /// The 99th percentile.
    pub p99_us: Option<u64>,
}

impl Default for HistogramCounters {
    fn default() -> HistogramCounters {
        HistogramCounters {
            buckets: std::array::from_fn(|_| Counter::default()),
            sum_us: Counter::default(),
        }
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: [0; BUCKETS],
            sum_us: 0,
        }
    }
}

impl HistogramCounters {
    /// Counts a duration. Only the owning worker may call this, as with `Counter::add`.
    #[inline]
    pub fn record(&self, duration_us: u64) {
        self.buckets[bucket_of(duration_us)].add(1);
        self.sum_us.add(duration_us);
    }

    /// Returns the current values.
    pub fn values(&self) -> Histogram {
        Histogram {
            buckets: std::array::from_fn(|i| self.buckets[i].get()),
            sum_us: self.sum_us.get(),
        }
    }
}

impl Histogram {
    /// Adds another worker's values to these.
    pub fn add(&mut self, other: &Histogram) {
        for (bucket, n) in self.buckets.iter_mut().zip(other.buckets) {
            *bucket = bucket.wrapping_add(n);
        }
        self.sum_us = self.sum_us.wrapping_add(other.sum_us);
    }

    /// Subtracts earlier values of the same histogram from these.
    pub fn subtract(&mut self, earlier: &Histogram) {
        for (bucket, n) in self.buckets.iter_mut().zip(earlier.buckets) {
            *bucket = bucket.wrapping_sub(n);
        }
        self.sum_us = self.sum_us.wrapping_sub(earlier.sum_us);
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |all, n| all.wrapping_add(*n))
    }

    /// Returns the largest value.
    pub fn max(&self) -> Option<u64> {
        let top = self.buckets.iter().rposition(|n| *n > 0)?;
        BOUNDS_US.get(top).or(BOUNDS_US.last()).copied()
    }

    /// Returns each exported bound in microseconds with the number of durations up to it.
    pub fn exported(&self) -> impl Iterator<Item = (u64, u64)> {
        let exported = |bound_us: &u64| EXPORTED_US.contains(bound_us);
        self.cumulative()
            .filter(move |(bound_us, _)| exported(bound_us))
    }

    /// Returns each upper bound in microseconds with the number of durations up to it.
    fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut all = 0u64;
        BOUNDS_US.iter().zip(self.buckets).map(move |(bound, n)| {
            all = all.wrapping_add(n);
            (*bound, all)
        })
    }

    /// Returns the percentiles.
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            p50_us: self.quantile(0.5),
            p90_us: self.quantile(0.9),
            p99_us: self.quantile(0.99),
        }
    }

    /// Estimates a quantile in microseconds by linear interpolation within its bucket. The estimate
    /// differs from the quantile by at most a quarter. Durations above the last bound count as that
    /// bound. Returns `None` without durations.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let rank = share * self.count() as f64;
        let (mut from_us, mut before) = (0, 0);
        for (bound_us, up_to) in self.cumulative() {
            if up_to > before && up_to as f64 >= rank {
                let part = (rank - before as f64) / (up_to - before) as f64;
                return Some(from_us + ((bound_us - from_us) as f64 * part).round() as u64);
            }
            (from_us, before) = (bound_us, up_to);
        }
        (self.count() > 0).then_some(from_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(durations_us: &[u64]) -> Histogram {
        let counters = HistogramCounters::default();
        for duration_us in durations_us {
            counters.record(*duration_us);
        }
        counters.values()
    }

    #[test]
    fn a_bucket_includes_its_upper_bound() {
        for duration_us in (0..2_000).chain(BOUNDS_US.iter().flat_map(|at| [at - 1, *at, at + 1])) {
            let bucket = BOUNDS_US.partition_point(|bound| *bound < duration_us);
            assert_eq!(bucket_of(duration_us), bucket, "{duration_us}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_bound_is_at_most_a_quarter_above_the_one_before() {
        for pair in BOUNDS_US.windows(2).filter(|pair| pair[0] >= 4) {
            assert!(pair[0] < pair[1] && pair[1] * 4 <= pair[0] * 5, "{pair:?}");
        }
        assert_eq!(BOUNDS_US.last(), EXPORTED_US.last());
    }

    #[test]
    fn all_exported_bounds_have_the_number_of_durations_up_to_them() {
        let values = histogram(&[0, 10, 11, 20, 21, 50_000_000, 50_000_001, u64::MAX / 2]);
        assert_eq!(values.count(), 8);
        let exported: Vec<_> = values.exported().collect();
        assert_eq!(exported[..3], [(10, 2), (20, 4), (50, 5)]);
        assert_eq!(exported.last(), Some(&(50_000_000, 6)));
        let bounds: Vec<u64> = exported.iter().map(|(bound_us, _)| *bound_us).collect();
        assert_eq!(bounds, EXPORTED_US);
    }

    #[test]
    fn values_are_added_and_subtracted() {
        let (first, second) = (histogram(&[5, 700]), histogram(&[700, 3_000]));
        let mut both = first;
        both.add(&second);
        assert_eq!((both.count(), both.sum_us), (4, 4_405));
        both.subtract(&first);
        assert_eq!(both, second);
    }

    #[test]
    fn percentiles_are_interpolated_within_their_bucket() {
        let mut durations = vec![190; 90];
        durations.extend([30_000; 10]);
        let percentiles = histogram(&durations).percentiles();
        // 50 of the 90 durations in the bucket from 175 to 200 µs.
        assert_eq!(percentiles.p50_us, Some(189));
        assert_eq!(percentiles.p90_us, Some(200));
        // 9 of the 10 durations in the bucket from 25 to 30 ms.
        assert_eq!(percentiles.p99_us, Some(29_500));
    }

    #[test]
    fn percentiles_differ_from_the_durations_by_at_most_a_quarter() {
        for duration_us in (4..100).chain([4_321, 999_999, 1_200_000, 10_100_000, 49_000_000]) {
            let percentiles = histogram(&[duration_us; 20]).percentiles();
            for estimate_us in [percentiles.p50_us, percentiles.p90_us, percentiles.p99_us] {
                let off = estimate_us.map(|estimate_us| estimate_us.abs_diff(duration_us));
                assert!(
                    off.is_some_and(|off| off * 4 <= duration_us),
                    "{duration_us}: {off:?}"
                );
            }
        }
    }

    #[test]
    fn percentiles_above_the_last_bound_are_that_bound() {
        assert_eq!(histogram(&[]).percentiles(), Percentiles::default());
        let percentiles = histogram(&[3_600_000_000]).percentiles();
        assert_eq!(percentiles.p50_us, Some(50_000_000));
    }
}
