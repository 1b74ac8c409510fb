//! The disk tier: chooses which objects are written to volumes, and where, and reads them again.
//!
//! An object on volumes consists of a head and blocks; the head's record of a small object contains the content too. The ids of blocks
//! contain the object's version. If a head is lost and fetched again, its blocks can therefore still be found. Bytes are read from a volume
//! as from an origin: a flight claims them, and fills pages.

mod admission;
pub(super) mod disk_copy;
mod durable_purge;
mod meta;
pub mod placement;
mod reads;
mod recall;
mod usage;
pub(super) mod volumes;
mod writing;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use durable_purge::{DurablePurge, NotDurable};
pub use placement::{Kind as PlacementKind, Placement};
pub use reads::DiskRead;
pub use volumes::{Admit, Options, Volumes};

use super::head::Head;
use super::object::Object;
use super::object_store::Store;
use super::page::PAGE;
use super::table_key::TableKey;
use disk_copy::{DiskCopy, LOOKUPS_MAX};

impl Store {
    /// Creates the disk copy of an object that is about to be opened with this head; `None` if the cache has no volumes. Deletes older
    /// heads of the object from the volumes, and heads that the new head's Vary makes unreachable.
    pub(super) fn disk_copy(
        &self,
        object: &Arc<Object>,
        table_key: TableKey,
        head: &Head,
    ) -> Option<DiskCopy> {
        let volumes = self.volumes()?;
        let varies = head.vary.is_some();
        // The head of an object that is being replaced stays until the body of the new object is complete.
        if !object.is_replacing() {
            volumes.forget_heads(table_key.primary, |tag| (tag != 0) != varies);
            // The index may not list the head while it loads, so the head is also deleted by its id.
            if varies {
                volumes.forget(&volumes.id_of_head(table_key.primary, 0));
            }
            volumes.forget(&volumes.head_id(table_key));
        }
        volumes.bound_heads(table_key.primary);
        let since = self.purges.newest_hard(table_key.primary, &object.key);
        let blocks = (u64::from(self.block()?.get()), since);
        let mut disk = DiskCopy::new(volumes.clone(), table_key, head, object.born_seq, blocks);
        disk.admitted = volumes.admits_key(table_key.primary);
        if let Some(length) = head
            .length
            .filter(|&length| head.generation != 0 && length > PAGE)
        {
            disk.consult(0..length, length, LOOKUPS_MAX);
        }
        Some(disk)
    }

    /// Drops queued writes that hold this many bytes of memory. Returns whether there were any.
    pub(super) fn shed_writes(&self, bytes: u64) -> bool {
        let volumes = self.volumes();
        let all = volumes.iter().flat_map(|volumes| volumes.all());
        all.map(|volume| volume.shed(bytes)).sum::<u64>() > 0
    }

    /// Deletes the head of this object from the volumes.
    pub fn forget_head(&self, table_key: TableKey) {
        if let Some(volumes) = self.volumes() {
            // The index may not list the head while it loads, so the head is deleted by its id.
            volumes.forget(&volumes.head_id(table_key));
        }
    }

    /// Whether the index of any volume is still loading.
    pub fn is_loading(&self) -> bool {
        self.volumes().is_some_and(|volumes| volumes.is_loading())
    }

    /// Deletes all heads of this key from the volumes.
    pub fn forget_on_disk(&self, primary: u128) {
        if let Some(volumes) = self.volumes() {
            volumes.forget_heads(primary, |_| true);
        }
    }
}
