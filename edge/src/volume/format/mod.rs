//! The bytes on a device, of format version 2: `docs/disk-format.md` describes them all.
//!
//! Everything is read as if an enemy had written it: what does not decode is not there.

pub mod record;
pub mod segment;
pub mod superblock;

/// Size of a block in bytes. Offsets and lengths of everything except records are multiples of it.
pub const BLOCK: u64 = 4096;

/// Alignment of records in bytes: records begin at multiples of it and their length is a multiple
/// of it.
pub const UNIT: u64 = 64;

/// The version of the format.
pub const VERSION: u32 = 2;

const MIB: u64 = 1 << 20;

/// The greatest lap, generation or sequence number, except for the one that means "none". A next
/// number always exists.
pub const NUMBER_MAX: u64 = 1 << 62;

/// Smallest volume in bytes.
pub const SIZE_MIN: u64 = 16 * MIB;
/// Largest volume in bytes.
pub const SIZE_MAX: u64 = 4 << 40;
/// Largest segment in bytes: offsets are stored in 20 bits, in units.
pub const SEGMENT_MAX: u64 = 64 * MIB;
/// Smallest number of segments.
pub const SEGMENTS_MIN: u64 = 8;
/// Largest number of segments: segment numbers are stored in 16 bits.
pub const SEGMENTS_MAX: u64 = 1 << 16;

/// The layout of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of each segment in bytes.
    pub segment: u64,
    /// Number of segments.
    pub segments: u32,
    /// Size of each half of the purge log in bytes.
    pub half: u64,
}

impl Geometry {
    /// The layout of a volume of `size` bytes with segments of `segment` bytes (0: a default for
    /// the size).
    ///
    /// # Errors
    /// A message for the operator if the sizes are not possible.
    pub fn of(size: u64, segment: u64) -> Result<Geometry, String> {
        if !(SIZE_MIN..=SIZE_MAX).contains(&size) {
            return Err(format!(
                "a volume has between 16 MiB and 4 TiB, and this one has {size} bytes"
            ));
        }
        let segment = match segment {
            0 => default_segment(size),
            given => given,
        };
        if segment % MIB != 0 || !(MIB..=SEGMENT_MAX).contains(&segment) {
            return Err(format!(
                "a segment has between 1 and 64 whole MiB, not {segment} bytes"
            ));
        }
        let half = half(size);
        let segments = room(size) / segment;
        if !(SEGMENTS_MIN..=SEGMENTS_MAX).contains(&segments) {
            return Err(format!(
                "{segments} segments of {segment} bytes fit into {size}, but it takes between 8 and 65536: \
                 set another segment size, or leave it out"
            ));
        }
        Ok(Geometry {
            segment,
            segments: segments as u32,
            half,
        })
    }

    /// Size of the whole volume in bytes.
    pub fn size(&self) -> u64 {
        self.segment_place(self.segments)
    }

    /// Offset of one of the two superblocks.
    pub fn superblock_place(which: usize) -> u64 {
        which as u64 * BLOCK
    }

    /// Offset of one of the two halves of the purge log.
    pub fn half_place(&self, which: usize) -> u64 {
        log_place(which as u64, self.half)
    }

    /// Offset of a segment.
    pub fn segment_place(&self, segment: u32) -> u64 {
        log_place(2, self.half) + u64::from(segment) * self.segment
    }
}

/// Default size of a segment in bytes: a 64th of the volume, but at least 4 MiB, which has space
/// for blocks of 1 MiB; in small volumes 2 or 1 MiB, so that there are enough segments.
pub fn default_segment(size: u64) -> u64 {
    let room = room(size);
    let fitting = [4 * MIB, 2 * MIB].into_iter();
    let least = fitting.filter(|least| room / least >= SEGMENTS_MIN).max();
    (size / 64 / MIB * MIB).clamp(least.unwrap_or(MIB), SEGMENT_MAX)
}

/// Number of bytes for segments in a volume of this size.
pub fn room(size: u64) -> u64 {
    size.saturating_sub(log_place(2, half(size)))
}

/// Size in bytes of half of the purge log in a volume of this size.
fn half(size: u64) -> u64 {
    (size / 128 / BLOCK * BLOCK).clamp(128 << 10, 16 * MIB)
}

/// Offset of a half of the purge log; half number 2 stands for the end of the log.
fn log_place(which: u64, half: u64) -> u64 {
    2 * BLOCK + which * half
}

pub(in crate::volume) fn up(bytes: u64, to: u64) -> u64 {
    bytes.div_ceil(to) * to
}

pub(in crate::volume) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

pub(in crate::volume) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

pub(in crate::volume) fn u128_at(bytes: &[u8], at: usize) -> u128 {
    let mut number = [0; 16];
    number.copy_from_slice(&bytes[at..at + 16]);
    u128::from_le_bytes(number)
}

pub(in crate::volume) fn put(bytes: &mut [u8], at: usize, number: &[u8]) {
    bytes[at..at + number.len()].copy_from_slice(number);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_uses_at_most_its_size_and_nearly_all_of_it() {
        for size in [16 * MIB, 17 * MIB + 5, 100 * MIB, 4 << 30, SIZE_MAX] {
            let geometry = Geometry::of(size, 0).expect("a size that does");
            assert!(geometry.size() <= size);
            assert!(size - geometry.size() < geometry.segment);
            assert!(geometry.segments >= 8);
        }
    }

    #[test]
    fn blocks_fit_into_the_segments_of_small_volumes() {
        for (size, segment) in [
            (16, 1),
            (17, 2),
            (32, 2),
            (33, 4),
            (256, 4),
            (320, 5),
            (8192, 64),
        ] {
            assert_eq!(default_segment(size * MIB), segment * MIB, "{size}");
        }
    }

    #[test]
    fn unusable_sizes_are_refused() {
        assert!(Geometry::of(16 * MIB - 1, 0).is_err());
        assert!(Geometry::of(SIZE_MAX + 1, 0).is_err());
        assert!(Geometry::of(64 * MIB, 8 * MIB).is_err(), "seven segments");
        assert!(Geometry::of(64 * MIB, MIB + 1).is_err());
        assert!(
            Geometry::of(SIZE_MAX, MIB).is_err(),
            "more than 16 bits count"
        );
    }
}
