//! References: the uses of stored responses that the simulation replays.

/// Number of 64-bit words in which a reference is packed.
pub(super) const WORDS: usize = 5;
/// Number of bits of a time in milliseconds since the Unix epoch. The rest of its word holds other data.
const TIME_BITS: u32 = 48;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// Bit that marks the first unit of a request.
const FIRST: u64 = 1 << 8;

/// The result of a use of a unit in the real cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The unit was stored, or another request was fetching it already.
    Hit,
    /// The unit was stored, and the origin had to confirm it first.
    Validated,
    /// The unit had to be fetched.
    Missed,
}

/// One use of a unit: an object, or one block of an object whose blocks are evicted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Hash that identifies the unit, from `Filter::hash`.
    pub hash: u64,
    /// Number of the cache.
    pub cache: u16,
    /// Time of the use, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// End of the freshness lifetime of the response that was used, in milliseconds since the Unix epoch.
    pub fresh_until_ms: u64,
    /// Memory that the unit takes, in bytes.
    pub weight: u64,
    /// Content of the unit, in bytes.
    pub bytes: u64,
    /// The result in the real cache.
    pub outcome: Outcome,
    /// Whether the unit is the first one of its request.
    pub first: bool,
}

impl Reference {
    /// Packs the reference into words. Times beyond the year 10889 become that time.
    pub(super) fn pack(&self) -> [u64; WORDS] {
        let outcome = match self.outcome {
            Outcome::Hit => 0,
            Outcome::Validated => 1,
            Outcome::Missed => 2,
        };
        let flags = outcome | if self.first { FIRST } else { 0 };
        [
            self.hash,
            self.now_ms.min(TIME_MASK) | u64::from(self.cache) << TIME_BITS,
            self.fresh_until_ms.min(TIME_MASK) | flags << TIME_BITS,
            self.weight,
            self.bytes,
        ]
    }

    /// Unpacks the words of `pack`.
    pub(super) fn unpack(words: [u64; WORDS]) -> Reference {
        let [hash, now, fresh, weight, bytes] = words;
        let flags = fresh >> TIME_BITS;
        Reference {
            hash,
            cache: (now >> TIME_BITS) as u16,
            now_ms: now & TIME_MASK,
            fresh_until_ms: fresh & TIME_MASK,
            weight,
            bytes,
            outcome: match flags & 3 {
                0 => Outcome::Hit,
                1 => Outcome::Validated,
                _ => Outcome::Missed,
            },
            first: flags & FIRST != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn unpacking_reverses_packing(
            (hash, cache, now_ms, fresh_until_ms) in (any::<u64>(), any::<u16>(), 0..=TIME_MASK, 0..=TIME_MASK),
            (weight, bytes, first) in (any::<u64>(), any::<u64>(), any::<bool>()),
            outcome in prop_oneof![Just(Outcome::Hit), Just(Outcome::Validated), Just(Outcome::Missed)],
        ) {
            let reference = Reference {
                hash, cache, now_ms, fresh_until_ms, weight, bytes, outcome, first,
            };
            prop_assert_eq!(Reference::unpack(reference.pack()), reference);
        }
    }

    #[test]
    fn times_beyond_the_range_become_the_last_time() {
        let reference = Reference {
            hash: 1,
            cache: 2,
            now_ms: 3,
            fresh_until_ms: u64::MAX,
            weight: 4,
            bytes: 5,
            outcome: Outcome::Validated,
            first: true,
        };
        let unpacked = Reference::unpack(reference.pack());
        assert_eq!(unpacked.fresh_until_ms, TIME_MASK);
        assert_eq!((unpacked.cache, unpacked.outcome), (2, Outcome::Validated));
    }
}
