//! Zipf's distribution, and the pseudorandom numbers by which it is drawn.

/// Zipf's distribution: the object of rank n is requested n^exponent times less often than the first.
#[derive(Debug)]
pub struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    /// Prepares the distribution of this many objects.
    pub fn new(objects: u32, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let weights = (1..=objects).map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        });
        Zipf {
            sums: weights.collect(),
        }
    }

    /// Returns the number of objects.
    pub fn objects(&self) -> u32 {
        self.sums.len() as u32
    }

    /// Returns the rank that corresponds to `unit`, a uniform random number from 0 to 1.
    pub fn rank(&self, unit: f64) -> u32 {
        let at = unit * self.sums.last().copied().unwrap_or_default();
        let rank = self.sums.partition_point(|sum| *sum <= at);
        rank.min(self.sums.len().saturating_sub(1)) as u32
    }
}

/// A pseudorandom generator (SplitMix64).
#[derive(Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// Returns a number from 0 to just below 1.
    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rank_is_drawn_most_often() {
        let (zipf, mut random) = (Zipf::new(100, 1.0), SplitMix(1));
        let mut drawn = [0; 100];
        for _ in 0..100_000 {
            drawn[zipf.rank(random.unit()) as usize] += 1;
        }
        // The harmonic number of 100 is 5.19.
        assert!((18_500..20_100).contains(&drawn[0]), "{}", drawn[0]);
        assert!((9_000..10_300).contains(&drawn[1]), "{}", drawn[1]);
        assert!(drawn.iter().all(|count| *count > 0));
    }
}
