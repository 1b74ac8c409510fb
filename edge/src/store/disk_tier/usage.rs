//! What is in use in memory, as volumes have to know: what nobody uses goes when the log comes round.

use std::sync::atomic::Ordering;

use crate::store::object::Object;
use crate::store::object_store::Store;
use crate::volume::{Id, Witness};

/// Blocks of one object that are told to be in use when it leaves memory, at most.
const TOUCHED: usize = 256;

impl Object {
    /// It leaves memory: if it was asked for there, volumes are told that what they have of it is in
    /// use, which they can't have seen.
    pub(in crate::store) fn note_use(&self) {
        if !self.used.load(Ordering::Relaxed) {
            return;
        }
        let disk = self.lock().disk.as_ref().map(|disk| disk.seen());
        let Some(disk) = disk else {
            return;
        };
        disk.volumes.touch(&disk.volumes.head_id(disk.table_key));
        let blocks = disk.there.iter().flat_map(|range| disk.blocks(&range));
        for id in blocks
            .take(TOUCHED)
            .filter_map(|number| disk.block_id(number))
        {
            disk.volumes.touch(&id);
        }
    }
}

impl Witness for Store {
    fn is_in_use(&self, id: &Id) -> bool {
        self.is_in_memory(id.key)
    }

    fn is_out(&self) {
        self.purges.wake_sweeper();
    }
}

impl Store {
    /// Whether anything of this key is in memory.
    fn is_in_memory(&self, primary: u128) -> bool {
        let shard = self.shard(primary).lock();
        shard.entries.contains_key(&primary)
    }
}
