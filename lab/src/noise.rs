//! Noise: bytes that are a function of file, version and offset. A response that mixes two versions or two files is
//! therefore detected. Bytes are generated and verified on the fly, without storing them.
//!
//! Each word of eight bytes is a hash of (file, version, offset / 8). Single bytes of two bodies are equal by chance
//! once in 256, whole words practically never.

use crate::offset::Mismatch;

/// Size of a word in bytes.
const WORD: u64 = 8;

/// The odd number next to 2^64 divided by the golden ratio. Multiplying by it spreads small numbers over all 64 bits.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Maps 64 bits to 64 bits bijectively: the finalizer of SplitMix64.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A pseudorandom generator, determined by a seed and a stream number.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Returns the generator of stream `stream` for `seed`.
    pub fn new(seed: u64, stream: u64) -> Dice {
        Dice(mix(mix(seed).wrapping_add(stream.wrapping_mul(GOLDEN))))
    }

    /// Returns the next 64 random bits.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Returns a random number below `bound`; 0 for a bound of 0. The distribution is slightly uneven for bounds near
    /// 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a random number from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below((most - least).saturating_add(1))
    }
}

/// Fills `buffer` with the noise of this version of a file, from offset `position` on.
pub fn fill(file: u64, version: u32, position: u64, buffer: &mut [u8]) {
    let seed = mix(mix(file) ^ (u64::from(version) << 32 | 0x5eed));
    let mut index = position / WORD;
    let mut rest = buffer;
    let skip = (position % WORD) as usize;
    if skip > 0 {
        let piece = rest.len().min(WORD as usize - skip);
        let (head, tail) = rest.split_at_mut(piece);
        head.copy_from_slice(&word(seed, index)[skip..skip + piece]);
        index += 1;
        rest = tail;
    }
    let mut words = rest.chunks_exact_mut(WORD as usize);
    for piece in &mut words {
        piece.copy_from_slice(&word(seed, index));
        index += 1;
    }
    let last = words.into_remainder();
    last.copy_from_slice(&word(seed, index)[..last.len()]);
}

fn word(seed: u64, index: u64) -> [u8; WORD as usize] {
    mix(seed.wrapping_add(index.wrapping_mul(GOLDEN))).to_le_bytes()
}

/// Checks that `bytes` are the noise of this version of a file, from offset `position` on.
pub fn verify(file: u64, version: u32, position: u64, bytes: &[u8]) -> Result<(), Mismatch> {
    let mut expected = [0; 4096];
    let mut position = position;
    for piece in bytes.chunks(expected.len()) {
        let expected = &mut expected[..piece.len()];
        fill(file, version, position, expected);
        if piece != expected
            && let Some(at) = (0..piece.len()).find(|&at| piece[at] != expected[at])
        {
            return Err(Mismatch {
                position: position + at as u64,
                expected: expected[at],
                found: piece[at],
            });
        }
        position += piece.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noise(file: u64, version: u32, position: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        fill(file, version, position, &mut bytes);
        bytes
    }

    #[test]
    fn noise_differs_between_files_and_versions() {
        let plain = noise(1, 0, 0, 4096);
        for other in [
            noise(1, 1, 0, 4096),
            noise(2, 0, 0, 4096),
            noise(1, 0, 8, 4096),
        ] {
            let same = plain.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(same < 64, "{same} of 4096 bytes are the same");
        }
    }

    #[test]
    fn random_numbers_stay_within_bounds_and_reach_both() {
        let mut dice = Dice::new(7, 3);
        let seen: Vec<u64> = (0..200).map(|_| dice.between(5, 8)).collect();
        assert!(seen.iter().all(|value| (5..=8).contains(value)));
        assert!(seen.contains(&5) && seen.contains(&8));
        assert_eq!(dice.below(0), 0);
    }

    proptest! {
        #[test]
        fn any_range_equals_the_same_range_of_the_whole(
            file in 0u64..30, version in 0u32..9, position in 0u64..9000, length in 0usize..9000,
        ) {
            let whole = noise(file, version, 0, position as usize + length);
            let piece = noise(file, version, position, length);
            prop_assert_eq!(&whole[position as usize..], &piece[..]);
            prop_assert_eq!(verify(file, version, position, &piece), Ok(()));
        }

        #[test]
        fn one_wrong_byte_is_found_at_its_position(
            position in 0u64..1 << 40, length in 1usize..9000, at in any::<prop::sample::Index>(),
        ) {
            let mut piece = noise(3, 4, position, length);
            let at = at.index(length);
            piece[at] ^= 1;
            let wrong = verify(3, 4, position, &piece).expect_err("a byte was changed");
            prop_assert_eq!(wrong.position, position + at as u64);
        }
    }
}
