//! Placement: which volumes get an object's head and its blocks.

use smallvec::SmallVec;

/// The rule by which objects are distributed over volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// There is only one volume.
    #[default]
    Single,
    /// Each object is on one volume, chosen by the hash of its key and the weights.
    Hash,
    /// The blocks of an object are distributed over all volumes in turn.
    Stripe,
    /// Each object is on two volumes.
    Mirror,
}

/// A distribution of objects over volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Kind of the distribution.
    pub kind: Kind,
    /// For `Hash`, the relative share of each volume; if empty, all shares are equal.
    pub weights: Vec<u32>,
}

impl Placement {
    /// Returns the numbers of the volumes in service that get a record of the object with this hash: one of its blocks, or its head if
    /// `block` is `None`. Reads try the first of these volumes first.
    pub fn choose(&self, hash: u64, block: Option<u32>, up: &[bool]) -> SmallVec<[usize; 2]> {
        let count = up.len();
        if count == 0 {
            return SmallVec::new();
        }
        let first = match self.kind {
            Kind::Single => 0,
            Kind::Hash => self.weighed(hash, count),
            Kind::Stripe => {
                let turn = block.map_or(0, u64::from);
                (hash.wrapping_add(turn) % count as u64) as usize
            }
            Kind::Mirror => (hash % count as u64) as usize,
        };
        let copies = if self.kind == Kind::Mirror { 2 } else { 1 };
        // A volume out of service is skipped, so that the next one takes its records.
        let order = (0..count).map(|step| (first + step) % count);
        order.filter(|&volume| up[volume]).take(copies).collect()
    }

    fn weighed(&self, hash: u64, count: usize) -> usize {
        let weight = |volume| u64::from(self.weights.get(volume).copied().unwrap_or(1));
        let all: u64 = (0..count).map(weight).sum();
        // The hash is scaled to the sum of all weights, and then each volume takes a part as large as its weight.
        let mut at = ((u128::from(hash) * u128::from(all)) >> 64) as u64;
        (0..count)
            .find(|&volume| match at.checked_sub(weight(volume)) {
                Some(rest) => {
                    at = rest;
                    false
                }
                None => true,
            })
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    fn hashes() -> impl Iterator<Item = u64> {
        (0..100_000_u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn placed(kind: Kind, weights: &[u32], up: &[bool]) -> Vec<usize> {
        let placement = Placement {
            kind,
            weights: weights.to_vec(),
        };
        let mut counts = vec![0; up.len()];
        for hash in hashes() {
            for volume in placement.choose(hash, None, up) {
                counts[volume] += 1;
            }
        }
        counts
    }

    #[test]
    fn weights_determine_the_shares() {
        let counts = placed(Kind::Hash, &[3, 1], &[true, true]);
        assert!((74_000..76_000).contains(&counts[0]), "{counts:?}");
        assert_eq!(counts[0] + counts[1], 100_000);
    }

    #[test]
    fn other_volumes_replace_one_that_is_out_of_service() {
        assert_eq!(placed(Kind::Hash, &[], &[false, true]), [0, 100_000]);
        assert_eq!(placed(Kind::Single, &[], &[false]), [0]);
        let mirrored = placed(Kind::Mirror, &[], &[true, false, true]);
        assert_eq!(mirrored, [100_000, 0, 100_000]);
    }

    #[test]
    fn the_blocks_of_an_object_are_placed_in_turn() {
        let stripe = Placement {
            kind: Kind::Stripe,
            weights: Vec::new(),
        };
        let at = |block| stripe.choose(7, Some(block), &[true, true, true])[0];
        assert_eq!([at(0), at(1), at(2), at(3)], [1, 2, 0, 1]);
        let both: SmallVec<[usize; 2]> = smallvec![1];
        assert_eq!(stripe.choose(7, None, &[true, true, true]), both);
    }
}
