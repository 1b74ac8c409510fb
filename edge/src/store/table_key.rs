//! The key of an object in the table.

use std::hash::Hasher;

use super::page::PAGE;

/// Variants kept of one primary key: more would let a hostile client fill a cache with one page.
pub const VARIANTS_MAX: usize = 64;

/// Where an object stands: its primary key and its variant, both hashes of 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableKey {
    /// Hash of the primary key.
    pub primary: u128,
    /// Hash of the selecting fields; 0 where Vary names none.
    pub variant: u128,
}

impl TableKey {
    pub(super) fn hash(self) -> u64 {
        (self.primary ^ self.variant) as u64
    }

    /// Names one block of the object here.
    pub(super) fn hash_of(self, block: u64) -> u64 {
        // Blocks are whole pages; the constant is odd, so no two of them get one name.
        self.hash() ^ (block / PAGE + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// Keys are uniform hashes already.
#[derive(Default)]
pub(super) struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_le_bytes(word);
        }
    }

    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}
