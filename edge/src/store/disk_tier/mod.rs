//! The disk tier: which objects are written to volumes, where, and how they are read again.
//!
//! An object on volumes consists of a head and blocks; the head of a small object contains its
//! content. The ids of blocks contain the object's version, so that a head that was lost and fetched
//! again finds its blocks. Bytes are read from a volume like from an origin: a flight claims them,
//! and fills pages.

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
pub use volumes::{Admit, Options, Volumes};

use super::head::Head;
use super::object::Object;
use super::object_store::Store;
use super::page::PAGE;
use super::table_key::TableKey;
use disk_copy::{DiskCopy, LOOKED_UP};

impl Store {
    /// What is on volumes of an object about to be opened with this head; `None` without volumes.
    /// Deletes older heads of the object, and those that its Vary makes unreachable.
    pub(super) fn disk_copy(
        &self,
        object: &Arc<Object>,
        table_key: TableKey,
        head: &Head,
    ) -> Option<DiskCopy> {
        let volumes = self.volumes()?;
        let varies = head.vary.is_some();
        volumes.forget_heads(table_key.primary, |tag| (tag != 0) != varies);
        // Also by id: the index may not know them yet while it loads.
        if varies {
            volumes.forget(&volumes.id_of_head(table_key.primary, 0));
        }
        volumes.forget(&volumes.head_id(table_key));
        volumes.bound_heads(table_key.primary);
        let since = self.purges.newest_hard(table_key.primary, &object.key);
        let blocks = (u64::from(self.block()?.get()), since);
        let mut disk = DiskCopy::new(volumes.clone(), table_key, head, object.born_seq, blocks);
        disk.admitted = volumes.admits_key(table_key.primary);
        if let Some(length) = head
            .length
            .filter(|&length| head.generation != 0 && length > PAGE)
        {
            disk.consult(0..length, length, LOOKED_UP);
        }
        Some(disk)
    }

    /// Drops queued writes that hold this many bytes. Returns whether there were any.
    pub(super) fn shed_writes(&self, bytes: u64) -> bool {
        let volumes = self.volumes();
        let all = volumes.iter().flat_map(|volumes| volumes.all());
        all.map(|volume| volume.shed(bytes)).sum::<u64>() > 0
    }

    /// Deletes the head of this object from volumes.
    pub fn forget_head(&self, table_key: TableKey) {
        if let Some(volumes) = self.volumes() {
            // By id, since the index may not know it yet while it loads.
            volumes.forget(&volumes.head_id(table_key));
        }
    }

    /// Whether the index of a volume still loads.
    pub fn is_loading(&self) -> bool {
        self.volumes().is_some_and(|volumes| volumes.is_loading())
    }

    /// Deletes all heads of this key from volumes.
    pub fn forget_on_disk(&self, primary: u128) {
        if let Some(volumes) = self.volumes() {
            volumes.forget_heads(primary, |_| true);
        }
    }
}
