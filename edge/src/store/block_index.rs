//! The index of the blocks of one object that hold bytes, shared by the table and the eviction policy.

use std::collections::BTreeMap;

/// Memory charged for the bookkeeping of one block, in bytes: its rows in the block index, the list of ids and the eviction policy.
pub(super) const BLOCK_OVERHEAD: u64 = 256;

/// The blocks of one object that have pages in memory.
pub(super) struct Blocks {
    /// Size of a block in bytes.
    pub(super) block: u64,
    /// Sum of the weights of all blocks, in bytes.
    pub(super) weight: u64,
    /// The blocks by the offset of their first byte.
    pub(super) list: BTreeMap<u64, Block>,
}

/// One block: its id in the eviction policy, the bytes with which the policy weighs it, and the time of its last use in
/// seconds of the store's time.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) id: u32,
    pub(super) used_s: u32,
    pub(super) weight: u64,
}

impl Blocks {
    pub(super) fn of(block: u64) -> Blocks {
        Blocks {
            block,
            weight: 0,
            list: BTreeMap::new(),
        }
    }

    /// Returns the block that contains the byte at this offset.
    pub(super) fn at(&mut self, at: u64) -> Option<&mut Block> {
        self.list.get_mut(&(at / self.block * self.block))
    }
}
