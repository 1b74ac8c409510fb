//! CRC-32C with a salt, so that a checksum matches its bytes only on the same volume, at the same position, and in the same pass over the
//! volume.

/// Returns the checksum of these bytes without a salt (CRC-32/ISCSI).
#[inline]
pub fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The salt of checksums. The salt of a volume is combined with further numbers into those of its records and pages: the number of the pass
/// over the volume, the record's sequence number, the page's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt(u64);

impl Salt {
    /// Returns the salt of the volume with this identifier.
    pub fn of(uuid: u128) -> Salt {
        Salt(scramble(uuid as u64 ^ scramble((uuid >> 64) as u64)))
    }

    /// Derives a salt from this one and a number.
    #[must_use]
    pub fn with(self, number: u64) -> Salt {
        Salt(scramble(
            self.0 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        ))
    }

    /// Returns the checksum of these bytes with this salt, as it is stored on the device.
    #[inline]
    pub fn crc(self, bytes: &[u8]) -> u32 {
        crc(bytes) ^ (self.0 >> 32) as u32
    }
}

/// The finalizer of SplitMix64: each bit of the result depends on each bit of `z`.
fn scramble(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc_32c() {
        assert_eq!(crc(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn another_lap_has_another_checksum() {
        let salt = Salt::of(7);
        assert_ne!(salt.with(1).crc(b"page"), salt.with(2).crc(b"page"));
        assert_ne!(
            Salt::of(7 << 64).crc(b"page"),
            Salt::of(7).crc(b"page"),
            "both halves of the name count"
        );
    }
}
