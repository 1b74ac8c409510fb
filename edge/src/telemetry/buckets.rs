//! The buckets of histograms: 64 of the same width per power of two, and their bounds.

/// Bits of a value that its bucket keeps, after the first one.
const KEPT_BITS: u32 = 6;
/// Number of buckets in a page: those of one power of two.
pub(super) const PAGE: usize = 1 << KEPT_BITS;
/// Number of pages. The first one has the values below 64, the second one those below 128, the last one those below 2^41.
pub(super) const PAGES: usize = 36;
/// Number of buckets. Longer values than all of them are counted in the last one.
pub(super) const BUCKETS: usize = PAGE * PAGES;

/// Returns the bucket that counts a value. Values below 128 have a bucket of their own.
#[inline]
pub(super) fn bucket_of(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    let shift = bits.saturating_sub(KEPT_BITS + 1);
    // The first bit of a value from 64 on counts as one page.
    let bucket = PAGE * shift as usize + (value >> shift) as usize;
    bucket.min(BUCKETS - 1)
}

/// Returns the smallest value of a bucket.
fn lowest(bucket: usize) -> u64 {
    match bucket / PAGE {
        0 => bucket as u64,
        page => ((PAGE + bucket % PAGE) as u64) << (page - 1),
    }
}

/// Returns the middle of a bucket, which differs from each of its values by at most 1/128.
pub(super) fn middle(bucket: usize) -> u64 {
    let lowest = lowest(bucket);
    let width = match bucket / PAGE {
        0 => 1,
        page => 1u64 << (page - 1),
    };
    lowest + (width - 1) / 2
}

/// Returns the first bucket whose values are all at least 2^`exponent`.
pub(super) fn first_from(exponent: u32) -> usize {
    bucket_of(1 << exponent)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_one_another_without_a_gap() {
        assert_eq!((lowest(0), bucket_of(0)), (0, 0));
        for bucket in 1..BUCKETS {
            let first = lowest(bucket);
            assert_eq!(
                (bucket_of(first - 1), bucket_of(first)),
                (bucket - 1, bucket)
            );
        }
        assert_eq!(bucket_of((1 << 41) - 1), BUCKETS - 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(first_from(10) % PAGE, 0);
    }

    proptest! {
        #[test]
        fn the_middle_of_a_bucket_differs_by_less_than_one_percent(value in 0u64..1 << 41) {
            let off = middle(bucket_of(value)).abs_diff(value);
            prop_assert!(off * 128 <= value, "{value}: {off}");
        }
    }
}
