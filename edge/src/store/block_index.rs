//! The blocks of one object that hold bytes, as the table and the eviction policy know them.

use std::collections::BTreeMap;

/// Bytes charged for the bookkeeping of one block: its rows in the block index, the list of ids and
/// the eviction policy.
pub(super) const BLOCK_OVERHEAD: u64 = 256;

/// The blocks of one object that hold bytes.
pub(super) struct Blocks {
    /// Bytes of a block.
    pub(super) block: u64,
    /// Weight of all blocks.
    pub(super) weight: u64,
    /// By first byte.
    pub(super) list: BTreeMap<u64, Block>,
}

/// One block: its id and weight in the policy.
pub(super) struct Block {
    pub(super) id: u32,
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

    /// The block that contains this byte.
    pub(super) fn at(&self, at: u64) -> Option<&Block> {
        self.list.get(&(at / self.block * self.block))
    }
}
