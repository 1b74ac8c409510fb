//! The bytes on a device in format version 2, which `docs/disk-format.md` describes completely.
//!
//! Everything is decoded as if an attacker had written it. Bytes that can't be decoded are treated as missing.

pub mod record;
pub mod segment;
pub mod superblock;

/// Size of a block of the device in bytes. Offsets and lengths of everything except records are multiples of this size.
pub const BLOCK: u64 = 4096;

/// Alignment of records in bytes: each record begins at a multiple of `UNIT`, and its length is a multiple of `UNIT`.
pub const UNIT: u64 = 64;

/// The version of the format.
pub const VERSION: u32 = 2;

const MIB: u64 = 1 << 20;

/// Greatest valid lap (number of a pass over the volume), generation or sequence number. It is far below the largest `u64`, so that there
/// is always a next number. A `born_seq` of `u64::MAX` means none.
pub const NUMBER_MAX: u64 = 1 << 62;

/// Minimum size of a volume in bytes.
pub const SIZE_MIN: u64 = 16 * MIB;
/// Maximum size of a volume in bytes.
pub const SIZE_MAX: u64 = 4 << 40;
/// Maximum size of a segment in bytes: the index stores offsets in units of 64 bytes, in 20 bits.
pub const SEGMENT_MAX: u64 = 64 * MIB;
/// Minimum number of segments in a volume.
pub const SEGMENTS_MIN: u64 = 8;
/// Maximum number of segments in a volume: the index stores segment numbers in 16 bits.
pub const SEGMENTS_MAX: u64 = 1 << 16;

/// The layout of a volume on its device.
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
    /// Computes the layout of a volume of `size` bytes with segments of `segment` bytes (0: a default for the size).
    ///
    /// # Errors
    ///
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

    /// Returns the size of the whole volume in bytes.
    pub fn size(&self) -> u64 {
        self.segment_place(self.segments)
    }

    /// Returns the offset on the device of one of the two superblocks.
    pub fn superblock_place(which: usize) -> u64 {
        which as u64 * BLOCK
    }

    /// Returns the offset on the device of one of the two halves of the purge log.
    pub fn half_place(&self, which: usize) -> u64 {
        log_place(which as u64, self.half)
    }

    /// Returns the offset on the device of a segment.
    pub fn segment_place(&self, segment: u32) -> u64 {
        log_place(2, self.half) + u64::from(segment) * self.segment
    }
}

/// Returns the default size of a segment in bytes: a 64th of the volume, but at least 4 MiB, which has space for blocks of 1 MiB. In small
/// volumes, the default is 2 or 1 MiB, so that there are enough segments.
pub fn default_segment(size: u64) -> u64 {
    let room = room(size);
    let fitting = [4 * MIB, 2 * MIB].into_iter();
    let least = fitting.filter(|least| room / least >= SEGMENTS_MIN).max();
    (size / 64 / MIB * MIB).clamp(least.unwrap_or(MIB), SEGMENT_MAX)
}

/// Returns the number of bytes for segments in a volume of `size` bytes.
pub fn room(size: u64) -> u64 {
    size.saturating_sub(log_place(2, half(size)))
}

/// Returns the size in bytes of each half of the purge log in a volume of `size` bytes.
fn half(size: u64) -> u64 {
    (size / 128 / BLOCK * BLOCK).clamp(128 << 10, 16 * MIB)
}

/// Returns the offset on the device of a half of the purge log. For `which` = 2: the offset of the end of the log.
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
