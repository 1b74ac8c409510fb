//! The key of an object in the table.

use super::page::PAGE;

/// Maximum number of variants per primary key. Without a maximum, a hostile client could fill a cache with variants of one page.
pub const VARIANTS_MAX: usize = 64;

/// Hashes keys with a secret of the process. The keys are hashes without a secret, so a client can find many that are equal in the bits
/// that choose a row of a table.
pub(super) type Seeded = foldhash::fast::RandomState;

/// The key of an object in the table: primary key and variant, both 128-bit hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableKey {
    /// Hash of the primary key.
    pub primary: u128,
    /// Hash of the request headers named by Vary; 0 if Vary names none.
    pub variant: u128,
}

impl TableKey {
    /// Returns a hash that identifies the object.
    pub fn hash(self) -> u64 {
        (self.primary ^ self.variant) as u64
    }

    /// Returns a hash that identifies the block of this object that begins at offset `block`.
    pub(super) fn hash_of(self, block: u64) -> u64 {
        // Block offsets are multiples of the page size and the constant is odd, so no two blocks get the same value.
        self.hash() ^ (block / PAGE + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}
