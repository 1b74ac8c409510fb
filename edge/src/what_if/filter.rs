//! The spatial filter (SHARDS): all references to a sampled unit are followed, and none to other units.

use std::sync::atomic::{AtomicU64, Ordering};

/// A share of all units, as a limit for their hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold(u64);

impl Threshold {
    /// The threshold that samples every unit.
    pub const ALL: Threshold = Threshold(u64::MAX);
    /// The threshold that samples the fewest units: one in 2^24.
    const LEAST: u64 = u64::MAX >> 24;

    /// Whether units with this hash are sampled.
    #[inline]
    pub fn samples(self, hash: u64) -> bool {
        hash <= self.0
    }

    /// Returns the share of units that are sampled, above 0 and at most 1.
    pub fn share(self) -> f64 {
        (self.0 as f64 + 1.0) / 2f64.powi(64)
    }

    /// Returns a threshold that samples `numerator/8` of the units that this one samples.
    pub(super) fn eighths(self, numerator: u64) -> Threshold {
        Threshold((self.0 / 8).saturating_mul(numerator).max(Threshold::LEAST))
    }

    /// Returns a threshold that samples twice the units, or all.
    pub(super) fn doubled(self) -> Threshold {
        Threshold(self.0.saturating_mul(2))
    }
}

/// The filter of one cache, which workers read and the simulation changes.
pub(super) struct Filter {
    /// Secret that is mixed into hashes. Otherwise clients could choose URLs that are all sampled.
    secret: u64,
    threshold: AtomicU64,
}

impl Filter {
    /// Creates a filter that samples every unit.
    pub(super) fn new(secret: u64) -> Filter {
        Filter {
            secret,
            threshold: AtomicU64::new(Threshold::ALL.0),
        }
    }

    /// Returns the hash of unit number `block` of the object with this hash.
    #[inline]
    pub(super) fn hash(&self, object: u64, block: u64) -> u64 {
        mix(object ^ self.secret ^ block.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Whether units with this hash are sampled.
    #[inline]
    pub(super) fn samples(&self, hash: u64) -> bool {
        Threshold(self.threshold.load(Ordering::Relaxed)).samples(hash)
    }

    /// Changes the share of units that are sampled.
    pub(super) fn set(&self, threshold: Threshold) {
        self.threshold.store(threshold.0, Ordering::Relaxed);
    }
}

/// Distributes the bits of a number over all positions (the finalizer of SplitMix64), so that comparing the result with a limit selects
/// units at random.
#[inline]
pub fn mix(z: u64) -> u64 {
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_samples_about_its_share_and_a_lower_one_a_subset() {
        let filter = Filter::new(7);
        let hashes: Vec<u64> = (0..100_000).map(|n| filter.hash(n, n % 3)).collect();
        assert!(hashes.iter().all(|hash| filter.samples(*hash)));
        let mut threshold = Threshold::ALL;
        assert_eq!(threshold.share(), 1.0);
        for _ in 0..3 {
            let lower = threshold.eighths(4);
            let inside = |hash: &&u64| lower.samples(**hash);
            let count = hashes.iter().filter(inside).count() as f64;
            let expected = lower.share() * hashes.len() as f64;
            assert!((count / expected - 1.0).abs() < 0.05, "{count} {expected}");
            assert!(
                hashes
                    .iter()
                    .filter(inside)
                    .all(|hash| threshold.samples(*hash))
            );
            threshold = lower;
            filter.set(threshold);
        }
        assert!(
            hashes
                .iter()
                .all(|hash| filter.samples(*hash) == threshold.samples(*hash))
        );
    }

    #[test]
    fn thresholds_stay_between_the_least_and_all() {
        let mut threshold = Threshold::ALL;
        for _ in 0..200 {
            threshold = threshold.eighths(6);
        }
        assert!(threshold.share() > 0.0);
        assert_eq!(threshold, threshold.eighths(6));
        for _ in 0..64 {
            threshold = threshold.doubled();
        }
        assert_eq!(threshold.share(), 1.0);
    }
}
