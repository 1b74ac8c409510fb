//! The superblock: identity and layout of a volume, and the position of its log. A volume has two superblocks; the newer valid one is used.

use crate::volume::checksum::crc;

use super::{BLOCK, Geometry, VERSION, put, u32_at, u64_at, u128_at};

const MAGIC: &[u8; 8] = b"\x89SLUICE\n";
/// Length of a superblock in bytes. A superblock fits into one sector of 512 bytes, which the disk writes either completely or not at all,
/// even in a power failure.
const LENGTH: usize = 128;

/// The content of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// A random identifier, chosen when the volume is created.
    pub uuid: u128,
    /// Number of superblocks written to this volume so far. The superblock with the greater number is used.
    pub generation: u64,
    /// Layout of the volume on its device.
    pub geometry: Geometry,
    /// First sequence number of the present or last run of the program.
    pub sequence: u64,
    /// Whether the last run closed the volume properly.
    pub clean: bool,
    /// Number of the open segment.
    pub open: u32,
    /// Number of the pass over all segments in which the open segment is written (its lap).
    pub lap: u64,
    /// Lower bound for the generation of the purge log.
    pub log_generation: u64,
    /// Time at which the volume was created, in seconds since the Unix epoch. Times in the index are relative to this time.
    pub made_s: u64,
}

/// The reason why neither of the two superblocks is usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOurs {
    /// The block contains only zeros.
    Empty,
    /// The block has content that is not Sluice's.
    Foreign,
    /// The volume has this other format version.
    Version(u32),
    /// The superblock is damaged.
    Damaged,
}

impl Superblock {
    /// Encodes the superblock.
    pub fn encode(&self) -> [u8; BLOCK as usize] {
        let mut block = [0; BLOCK as usize];
        put(&mut block, 0, MAGIC);
        put(&mut block, 8, &VERSION.to_le_bytes());
        put(&mut block, 16, &self.uuid.to_le_bytes());
        put(&mut block, 32, &self.generation.to_le_bytes());
        put(&mut block, 40, &self.geometry.segment.to_le_bytes());
        put(&mut block, 48, &self.geometry.half.to_le_bytes());
        put(&mut block, 56, &self.geometry.segments.to_le_bytes());
        put(&mut block, 60, &self.open.to_le_bytes());
        put(&mut block, 64, &self.lap.to_le_bytes());
        put(&mut block, 72, &self.sequence.to_le_bytes());
        put(&mut block, 80, &self.log_generation.to_le_bytes());
        put(&mut block, 88, &self.made_s.to_le_bytes());
        put(&mut block, 96, &u32::from(self.clean).to_le_bytes());
        let crc = crc(&block[..LENGTH - 4]);
        put(&mut block, LENGTH - 4, &crc.to_le_bytes());
        block
    }

    /// Decodes a superblock.
    ///
    /// # Errors
    ///
    /// The block is not a valid superblock.
    pub fn decode(block: &[u8]) -> Result<Superblock, NotOurs> {
        if block.len() < LENGTH {
            return Err(NotOurs::Foreign);
        }
        if !block.starts_with(MAGIC) {
            let empty = block.iter().all(|byte| *byte == 0);
            return Err(if empty {
                NotOurs::Empty
            } else {
                NotOurs::Foreign
            });
        }
        // The version is checked before the checksum: other versions may store the checksum elsewhere, while all versions store their
        // number at this offset.
        let version = u32_at(block, 8);
        if version != VERSION {
            return Err(NotOurs::Version(version));
        }
        if crc(&block[..LENGTH - 4]) != u32_at(block, LENGTH - 4) {
            return Err(NotOurs::Damaged);
        }
        let superblock = Superblock {
            uuid: u128_at(block, 16),
            generation: u64_at(block, 32),
            geometry: Geometry {
                segment: u64_at(block, 40),
                half: u64_at(block, 48),
                segments: u32_at(block, 56),
            },
            open: u32_at(block, 60),
            lap: u64_at(block, 64),
            sequence: u64_at(block, 72),
            log_generation: u64_at(block, 80),
            made_s: u64_at(block, 88),
            clean: u32_at(block, 96) == 1,
        };
        if superblock.is_sound() {
            Ok(superblock)
        } else {
            Err(NotOurs::Damaged)
        }
    }

    /// Chooses the newer of the two superblocks, or the only valid one.
    ///
    /// # Errors
    ///
    /// Neither superblock is valid.
    pub fn newest(blocks: [&[u8]; 2]) -> Result<Superblock, NotOurs> {
        match blocks.map(Superblock::decode) {
            [Ok(a), Ok(b)] => Ok(if a.generation >= b.generation { a } else { b }),
            [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(one),
            [Err(a), Err(b)] => Err(worse(a, b)),
        }
    }

    fn is_sound(&self) -> bool {
        let Geometry {
            segment,
            segments,
            half,
        } = self.geometry;
        let sizes = segment.is_multiple_of(1 << 20)
            && (1 << 20..=super::SEGMENT_MAX).contains(&segment)
            && (super::SEGMENTS_MIN..=super::SEGMENTS_MAX).contains(&u64::from(segments))
            && half.is_multiple_of(BLOCK)
            && (128 << 10..=16 << 20).contains(&half);
        let most = self.generation.max(self.lap).max(self.sequence);
        let numbers = self.lap > 0 && most.max(self.log_generation) <= super::NUMBER_MAX;
        sizes && numbers && self.open < segments
    }
}

/// Chooses the reason to report if neither superblock is valid: a reason that shows a volume of Sluice takes precedence.
fn worse(a: NotOurs, b: NotOurs) -> NotOurs {
    let rank = |not: &NotOurs| match not {
        NotOurs::Empty => 0,
        NotOurs::Foreign => 1,
        NotOurs::Damaged => 2,
        NotOurs::Version(_) => 3,
    };
    if rank(&a) >= rank(&b) { a } else { b }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Superblock {
        Superblock {
            uuid: 77,
            generation: 3,
            geometry: Geometry::of(64 << 20, 0).expect("a size that does"),
            sequence: 1 << 44,
            clean: true,
            open: 5,
            lap: 9,
            log_generation: 2,
            made_s: 1_700_000_000,
        }
    }

    #[test]
    fn the_newer_valid_copy_is_used() {
        let old = sample();
        let new = Superblock {
            generation: 4,
            ..old
        };
        let mut torn = new.encode();
        torn[70] ^= 1;
        let found = |a: &[u8], b: &[u8]| Superblock::newest([a, b]);
        assert_eq!(found(&old.encode(), &new.encode()), Ok(new));
        assert_eq!(found(&new.encode(), &old.encode()), Ok(new));
        assert_eq!(found(&old.encode(), &torn), Ok(old));
        assert_eq!(found(&torn, &torn), Err(NotOurs::Damaged));
        assert_eq!(found(&[0; 4096], &torn), Err(NotOurs::Damaged));
        assert_eq!(found(&[0; 4096], &[0; 4096]), Err(NotOurs::Empty));
        assert_eq!(found(&[1; 4096], &[0; 4096]), Err(NotOurs::Foreign));
    }

    #[test]
    fn another_version_is_distinguished_from_damage() {
        let mut other = sample().encode();
        for version in [1, VERSION + 1] {
            put(&mut other, 8, &version.to_le_bytes());
            assert_eq!(
                Superblock::newest([&other, &[0; 4096]]),
                Err(NotOurs::Version(version))
            );
        }
    }

    proptest! {
        #[test]
        fn an_encoded_superblock_is_decoded(generation in 0..=super::super::NUMBER_MAX, uuid: u128, lap in 1..=super::super::NUMBER_MAX, clean: bool, made_s: u64) {
            let written = Superblock { generation, uuid, lap, clean, made_s, ..sample() };
            prop_assert_eq!(Superblock::decode(&written.encode()), Ok(written));
        }

        #[test]
        fn any_flipped_bit_is_detected(bit in 0usize..LENGTH * 8) {
            let mut block = sample().encode();
            block[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Superblock::decode(&block).is_err());
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(mut block in proptest::collection::vec(any::<u8>(), 0..300), ours: bool) {
            if ours && block.len() >= 12 {
                put(&mut block, 0, MAGIC);
                put(&mut block, 8, &VERSION.to_le_bytes());
            }
            prop_assert!(Superblock::decode(&block).is_err());
        }
    }
}
