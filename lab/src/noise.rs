//! Noise: bytes that are a function of file, version and place, so that a response that mixes two versions or two files
//! can't pass for right. Cheap to make and to check, and nothing of it is ever held.
//!
//! Eight bytes at a time are a hash of (file, version, place / 8). Two bodies agree in a byte by chance once in 256, in
//! a whole word practically never.

use crate::offset::Mismatch;

/// Bytes of one word.
const WORD: u64 = 8;

/// The odd number next to 2^64 over the golden ratio: spreads what is counted over all 64 bits.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Scrambles 64 bits, one to one: the finalizer of splitmix64.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Numbers that a seed and a stream number determine.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The numbers of stream `stream` under `seed`.
    pub fn new(seed: u64, stream: u64) -> Dice {
        Dice(mix(mix(seed).wrapping_add(stream.wrapping_mul(GOLDEN))))
    }

    /// The next 64 bits.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number below `bound`; 0 for a bound of 0. Slightly uneven for bounds near 2^64, which nothing here needs.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below((most - least).saturating_add(1))
    }
}

/// Fills `buffer` with the noise of a file's version from `position` on.
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

/// Checks that `bytes` are the noise of a file's version from `position` on.
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
    fn files_and_versions_differ_everywhere() {
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
    fn dice_stay_within_bounds_and_reach_both() {
        let mut dice = Dice::new(7, 3);
        let seen: Vec<u64> = (0..200).map(|_| dice.between(5, 8)).collect();
        assert!(seen.iter().all(|value| (5..=8).contains(value)));
        assert!(seen.contains(&5) && seen.contains(&8));
        assert_eq!(dice.below(0), 0);
    }

    proptest! {
        #[test]
        fn any_piece_is_what_the_whole_has_there(
            file in 0u64..30, version in 0u32..9, position in 0u64..9000, length in 0usize..9000,
        ) {
            let whole = noise(file, version, 0, position as usize + length);
            let piece = noise(file, version, position, length);
            prop_assert_eq!(&whole[position as usize..], &piece[..]);
            prop_assert_eq!(verify(file, version, position, &piece), Ok(()));
        }

        #[test]
        fn one_wrong_byte_is_found_where_it_is(
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
