//! Random numbers, which all code generates through this module, so that tests can repeat a run with the same seed.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A generator of random numbers that several threads may use (SplitMix64). Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(Arc<AtomicU64>);

impl Random {
    /// Creates a generator with a seed from the operating system.
    pub fn system() -> Random {
        // The keys of the standard library's hasher come from the operating system's random generator.
        let seed = std::collections::hash_map::RandomState::new()
            .build_hasher()
            .finish();
        Random::seeded(seed)
    }

    /// Creates a generator that returns the same numbers for the same seed.
    pub fn seeded(seed: u64) -> Random {
        Random(Arc::new(AtomicU64::new(seed)))
    }

    /// Returns the next number.
    pub fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which is at least 1.
    #[cfg(test)]
    pub fn below(&self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (a, b) = (Random::seeded(7), Random::seeded(7));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
        assert!((0..1000).all(|_| a.below(10) < 10));
    }
}
