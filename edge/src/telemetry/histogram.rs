//! The values of a histogram at one moment, their sums and differences, and percentiles.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::buckets::{BUCKETS, first_from, middle};
use super::metric::Unit;

/// Powers of two that are the bounds of the exported histograms of durations, in microseconds.
const DURATION_BOUNDS: [u32; 15] = [4, 6, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 22, 24];
/// Powers of two below which the exported histograms of sizes have their bounds, in bytes.
const SIZE_BOUNDS: [u32; 15] = [8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36];

/// Bits of a packed bucket that hold its count; those above hold its number. A bucket never counts up to 2^52.
const COUNT_BITS: u32 = 52;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const _: () = assert!(BUCKETS < 1 << (64 - COUNT_BITS));

/// The values of a histogram at one moment, or the difference of two moments: microseconds of durations, or bytes of
/// sizes. Takes eight bytes for each bucket that counted a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Number and count of each bucket that is not empty, in the order of the buckets.
    buckets: Vec<u64>,
    /// Sum of all values.
    pub sum: u64,
}

/// Percentiles of durations in microseconds, each within 1/128 of the true one; `None` without durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// The median.
    pub p50_us: Option<u64>,
    /// The 95th percentile.
    pub p95_us: Option<u64>,
    /// The 99th percentile.
    pub p99_us: Option<u64>,
    /// The longest duration.
    pub max_us: Option<u64>,
}

impl Histogram {
    /// Appends the count of a bucket that follows all others.
    pub(super) fn push(&mut self, bucket: usize, count: u64) {
        if count > 0 {
            self.buckets.push(packed(bucket, count));
        }
    }

    /// Adds the values of another histogram to these.
    pub fn add(&mut self, other: &Histogram) {
        // A sum over many histograms soon has all their buckets.
        let rest = self.add_known(&other.buckets);
        self.combine(rest, u64::wrapping_add);
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// Subtracts earlier values of the same histogram from these.
    pub fn subtract(&mut self, earlier: &Histogram) {
        self.combine(&earlier.buckets, u64::saturating_sub);
        self.sum = self.sum.saturating_sub(earlier.sum);
    }

    /// Adds the counts of `others` to the same buckets, up to the first one that is missing here. Returns the ones from that on.
    fn add_known<'a>(&mut self, others: &'a [u64]) -> &'a [u64] {
        let mut at = 0;
        for (done, other) in others.iter().enumerate() {
            let (bucket, n) = unpacked(*other);
            at += self.buckets[at..].partition_point(|own| *own < packed(bucket, 0));
            match self.buckets.get_mut(at).map(|own| (unpacked(*own), own)) {
                Some(((same, count), own)) if same == bucket => {
                    *own = packed(bucket, count.wrapping_add(n));
                }
                _ => return &others[done..],
            }
        }
        &[]
    }

    /// Replaces each bucket's count by the result of `change` of both counts.
    fn combine(&mut self, others: &[u64], change: impl Fn(u64, u64) -> u64) {
        if others.is_empty() {
            return;
        }
        let mut both = Vec::with_capacity(self.buckets.len().max(others.len()));
        let mut others = others.iter().copied().map(unpacked).peekable();
        let mut put = |bucket: usize, count: u64| {
            if count > 0 {
                both.push(packed(bucket, count));
            }
        };
        for (bucket, count) in self.buckets.iter().copied().map(unpacked) {
            while let Some((before, n)) = others.next_if(|(other, _)| *other < bucket) {
                put(before, change(0, n));
            }
            let its = others.next_if(|(other, _)| *other == bucket);
            put(bucket, its.map_or(count, |(_, n)| change(count, n)));
        }
        others.for_each(|(bucket, n)| put(bucket, change(0, n)));
        self.buckets = both;
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        let counts = self.buckets.iter().map(|one| one & COUNT_MASK);
        counts.fold(0, u64::wrapping_add)
    }

    /// Returns the value below or at which this share of all values is, within 1/128. `None` without values.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let rank = (share * self.count() as f64).ceil() as u64;
        let mut up_to = 0;
        let mut buckets = self.buckets.iter().copied().map(unpacked);
        let found = buckets.find(|(_, count)| {
            up_to += count;
            up_to >= rank
        });
        found.map(|(bucket, _)| middle(bucket)).or(self.max())
    }

    /// Returns the largest value, within 1/128. `None` without values.
    pub fn max(&self) -> Option<u64> {
        self.buckets.last().map(|last| middle(unpacked(*last).0))
    }

    /// Returns the percentiles of durations.
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            p50_us: self.quantile(0.5),
            p95_us: self.quantile(0.95),
            p99_us: self.quantile(0.99),
            max_us: self.max(),
        }
    }

    /// Returns each exported bound in the metric's base unit (seconds or bytes) with the number of values up to it.
    pub fn exported(&self, unit: Unit) -> impl Iterator<Item = (f64, u64)> {
        let exponents = match unit {
            Unit::Bytes => SIZE_BOUNDS,
            _ => DURATION_BOUNDS,
        };
        let (mut next, mut all) = (0, 0u64);
        exponents.into_iter().map(move |exponent| {
            let end = first_from(exponent);
            while let Some((bucket, count)) = self.buckets.get(next).copied().map(unpacked)
                && bucket < end
            {
                (next, all) = (next + 1, all + count);
            }
            let bound = (1u64 << exponent) as f64;
            match unit {
                // Sizes are whole numbers, and the bound is included.
                Unit::Bytes => (bound - 1.0, all),
                // Durations are rounded down to microseconds, so all of them are below the bound.
                _ => (bound / 1e6, all),
            }
        })
    }

    /// Returns the sum of all values in the metric's base unit (seconds or bytes).
    pub fn base_sum(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Bytes => self.sum as f64,
            _ => self.sum as f64 / 1e6,
        }
    }
}

fn packed(bucket: usize, count: u64) -> u64 {
    (bucket as u64) << COUNT_BITS | (count & COUNT_MASK)
}

fn unpacked(packed: u64) -> (usize, u64) {
    ((packed >> COUNT_BITS) as usize, packed & COUNT_MASK)
}

/// A histogram as JSON: its percentiles, with the unit in their names.
pub(super) struct Shown<'a>(pub(super) Unit, pub(super) &'a Histogram);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Shown(unit, histogram) = self;
        let names = match unit {
            Unit::Bytes => ["p50_bytes", "p95_bytes", "p99_bytes", "max_bytes"],
            _ => ["p50_us", "p95_us", "p99_us", "max_us"],
        };
        let shares = [0.5, 0.95, 0.99, 1.0];
        let mut map = serializer.serialize_map(Some(names.len()))?;
        for (name, share) in names.iter().zip(shares) {
            map.serialize_entry(name, &histogram.quantile(share))?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::histogram_counters::HistogramCounters;
    use super::*;

    fn histogram(values: &[u64]) -> Histogram {
        let counters = HistogramCounters::default();
        values.iter().for_each(|value| counters.record(*value));
        counters.values()
    }

    #[test]
    fn all_exported_bounds_have_the_number_of_values_up_to_them() {
        let values = histogram(&[0, 15, 16, 63, 64, 16_777_215, 16_777_216, u64::MAX / 2]);
        assert_eq!(values.count(), 8);
        let exported: Vec<_> = values.exported(Unit::Seconds).collect();
        assert_eq!(
            exported[..3],
            [(0.000_016, 2), (0.000_064, 4), (0.000_256, 5)]
        );
        assert_eq!(exported.last(), Some(&(16.777_216, 6)));
        let sizes = histogram(&[255, 256, 1 << 20]);
        let exported: Vec<_> = sizes.exported(Unit::Bytes).collect();
        assert_eq!(exported[..2], [(255.0, 1), (1023.0, 2)]);
        assert_eq!(exported[6..8], [(1_048_575.0, 2), (4_194_303.0, 3)]);
    }

    #[test]
    fn a_histogram_without_values_has_no_percentiles() {
        assert_eq!(histogram(&[]).percentiles(), Percentiles::default());
        assert_eq!(histogram(&[0]).percentiles().p50_us, Some(0));
    }

    #[test]
    fn percentiles_are_shown_with_their_unit() {
        let json = |unit| serde_json::to_string(&Shown(unit, &histogram(&[7]))).expect("JSON");
        assert_eq!(
            json(Unit::Seconds),
            r#"{"p50_us":7,"p95_us":7,"p99_us":7,"max_us":7}"#
        );
        assert_eq!(
            json(Unit::Bytes),
            r#"{"p50_bytes":7,"p95_bytes":7,"p99_bytes":7,"max_bytes":7}"#
        );
    }

    /// Values of all magnitudes that a histogram distinguishes.
    fn values() -> impl Strategy<Value = Vec<u64>> {
        let value = (0u32..41).prop_flat_map(|bits| 0..1u64 << bits);
        prop::collection::vec(value, 1..200)
    }

    proptest! {
        #[test]
        fn percentiles_differ_from_those_of_all_values_by_less_than_one_percent(mut values in values()) {
            let histogram = histogram(&values);
            values.sort_unstable();
            for share in [0.01, 0.5, 0.9, 0.95, 0.99, 1.0] {
                let rank = (share * values.len() as f64).ceil() as usize;
                let expected = values[rank.max(1) - 1];
                let off = histogram.quantile(share).map(|estimate| estimate.abs_diff(expected));
                prop_assert!(off.is_some_and(|off| off * 128 <= expected), "{share} {expected} {off:?}");
            }
            prop_assert_eq!(histogram.max(), histogram.quantile(1.0));
        }

        #[test]
        fn sums_and_differences_are_those_of_the_values(first in values(), second in values()) {
            let mut both = histogram(&first);
            both.add(&histogram(&second));
            let all: Vec<u64> = first.iter().chain(&second).copied().collect();
            prop_assert_eq!(&both, &histogram(&all));
            prop_assert_eq!(both.count(), all.len() as u64);
            both.subtract(&histogram(&first));
            prop_assert_eq!(both, histogram(&second));
        }
    }
}
