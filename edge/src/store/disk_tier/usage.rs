//! Reports to volumes which of their records are in use in memory. Unused records are dropped when their segment is reclaimed.

use std::sync::atomic::Ordering;

use crate::store::object::Object;
use crate::store::object_store::Store;
use crate::volume::{Id, Witness};

/// Maximum number of blocks of one object reported as used when it leaves memory.
const TOUCHED_MAX: usize = 256;

impl Object {
    /// Reports the records of an object as used, if a request used the object in memory. Called when the object leaves memory; the volumes
    /// can't see such uses themselves.
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
            .take(TOUCHED_MAX)
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
    /// Whether any object of this key is in memory.
    fn is_in_memory(&self, primary: u128) -> bool {
        let shard = self.shard(primary).lock();
        shard.entries.contains_key(&primary)
    }
}
