//! The key of an object in the table.

use std::hash::Hasher;

use super::page::PAGE;

/// Maximum number of variants per primary key. Without a maximum, a hostile client could fill a cache with variants of one page.
pub const VARIANTS_MAX: usize = 64;

/// The key of an object in the table: primary key and variant, both 128-bit hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableKey {
    /// Hash of the primary key.
    pub primary: u128,
    /// Hash of the request headers named by Vary; 0 if Vary names none.
    pub variant: u128,
}

impl TableKey {
    pub(super) fn hash(self) -> u64 {
        (self.primary ^ self.variant) as u64
    }

    /// Returns a hash that identifies the block of this object that begins at offset `block`.
    pub(super) fn hash_of(self, block: u64) -> u64 {
        // Block offsets are multiples of the page size and the constant is odd, so no two blocks get the same value.
        self.hash() ^ (block / PAGE + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// A hasher that returns its input, for keys that are uniform hashes already.
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
