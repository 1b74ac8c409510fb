//! Recall: reads the head of an object from a volume and inserts the object into the table.
//!
//! Meanwhile a placeholder is in the table, so that all requests for the object wait for one read. Afterwards they look the key up again.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use smallvec::SmallVec;

use super::disk_copy::{DiskCopy, LOOKUPS_MAX};
use super::meta;
use super::volumes::{FoundOn, Volumes, tag_of, written};
use crate::store::arrange::ObjectView;
use crate::store::landing::Landing;
use crate::store::object::{Abandoned, Object};
use crate::store::object_store::Store;
use crate::store::page::{PAGE, Page};
use crate::store::slots::PageState;
use crate::store::table_key::TableKey;
use crate::sys::buffer::Buffer;
use crate::volume::{Found, HeadRead, Id, Missing, Volume};

/// A recall of one object, ready to begin. The caller must run it.
pub struct Recall {
    landing: Landing,
    volumes: Arc<Volumes>,
    heads: SmallVec<[FoundOn; 2]>,
}

/// The result of trying to recall an object from one head.
enum HeadOutcome {
    /// The recalled object is in the table.
    Restored,
    /// The head is unusable and was deleted; another head may be usable.
    Unusable,
    /// The record has been moved or deleted, so it must be looked up again.
    Moved,
    /// The head can't be read now.
    Failed,
}

impl Store {
    /// Whether the volumes have a head of this key.
    pub fn is_on_disk(&self, primary: u128) -> bool {
        let volumes = self.volumes();
        volumes.is_some_and(|volumes| !volumes.heads(primary).is_empty())
    }

    /// Prepares the recall of an object that may answer a request with this table key, if the volumes have a head of it. `placeholder` is a
    /// new object in the table, marked as a placeholder.
    pub fn recall(
        self: &Arc<Self>,
        placeholder: &Arc<Object>,
        table_key: TableKey,
        now_us: u64,
    ) -> Option<Recall> {
        let volumes = self.volumes()?;
        let mut heads = volumes.heads(table_key.primary);
        // While no Vary names are known, every head may match the request or contain the names. The newest head has the Vary names that are
        // in force.
        if self.enter(table_key.primary, |locked| locked.vary().is_some()) {
            heads.retain(|(_, found)| found.tag == tag_of(table_key.variant));
        }
        heads.sort_by_key(|(_, found)| Reverse(written(found)));
        // The newest head is tried first, then copies of it on other volumes, then other heads.
        let newest = heads.first()?.1.tag;
        heads.sort_by_key(|(_, found)| found.tag != newest);
        let whole = |_: &ObjectView<'_>| (smallvec::smallvec![0..u64::MAX], ());
        let ((), mut landings) = self.arrange(placeholder, table_key, now_us, whole);
        Some(Recall {
            landing: landings.pop()?,
            volumes,
            heads,
        })
    }
}

impl Store {
    /// Counts a head read from a volume for the status page.
    fn count_recalled(&self, read: &HeadRead) {
        let bytes = (read.meta.len() + read.data.len()) as u64;
        self.volume_hits.fetch_add(1, Ordering::Relaxed);
        self.volume_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Removes a placeholder; requests that wait for it look their key up again.
    pub fn give_up_recall(self: &Arc<Self>, table_key: TableKey, placeholder: &Arc<Object>) {
        self.withdraw(table_key, placeholder);
        placeholder.retire().wake();
    }
}

impl Recall {
    /// Reads the head. Afterwards, waiting requests look their key up again.
    pub async fn run(self) {
        let table_key = self.landing.table_key();
        let mut slow = None;
        for &(number, found) in &self.heads {
            if slow.is_some_and(|tag| tag != found.tag) {
                break; // after a slow read, only copies of the same head are tried
            }
            let (volume, space) = (&self.volumes.volumes[number], self.volumes.space);
            let read = match volume.read_head(found, space, table_key.primary).await {
                Ok(read) => read,
                // The record can't be used any more and has already been deleted from the index.
                Err(Missing::Gone | Missing::Damaged) => continue,
                Err(_) => {
                    slow = Some(found.tag);
                    continue;
                }
            };
            match self.restore(volume, found, &read) {
                HeadOutcome::Restored => {
                    self.landing.store().count_recalled(&read);
                    return self.landing.give_back();
                }
                HeadOutcome::Moved => break,
                HeadOutcome::Failed => {
                    slow = Some(found.tag);
                    break;
                }
                HeadOutcome::Unusable => {
                    volume.forget(&read.id);
                }
            }
        }
        match slow {
            // Failing the placeholder keeps the waiting requests from trying the slow volume again.
            Some(_) => self.landing.fail(Arc::new(Abandoned)),
            None => self.landing.give_back(),
        }
    }

    /// Inserts the object of a head that was read into the table.
    fn restore(&self, volume: &Volume, found: Found, read: &HeadRead) -> HeadOutcome {
        let store = self.landing.store();
        let placeholder = self.landing.object();
        let primary = self.landing.table_key().primary;
        let Some(kept) = meta::decode(&read.meta).filter(|kept| kept.key == placeholder.key) else {
            return HeadOutcome::Unusable;
        };
        let head = kept.head;
        let variant = head.vary.as_ref().map_or(0, |vary| vary.variant);
        let table_key = TableKey { primary, variant };
        let fits = u64::from(tag_of(variant)) == read.id.version
            && kept.block.is_multiple_of(PAGE)
            && store.purges.names.is_sound(&head);
        let inline = head.length == Some(read.data.len() as u64);
        let Some(length) = head
            .length
            .filter(|_| fits && (inline || read.data.is_empty()))
        else {
            return HeadOutcome::Unusable;
        };
        if read.data.len() as u64 > PAGE || (!head.joinable && length > store.object_max()) {
            return HeadOutcome::Unusable;
        }
        let mut disk = DiskCopy::new(
            self.volumes.clone(),
            table_key,
            &head,
            kept.born_seq,
            (kept.block, kept.since),
        );
        disk.head = true;
        if !inline {
            let is_loading = self.volumes.is_loading();
            let at_most = if head.joinable { LOOKUPS_MAX } else { u64::MAX };
            disk.consult(0..length, length, at_most);
            if !head.joinable && !disk.there.covers(&(0..length)) {
                return match is_loading {
                    true => HeadOutcome::Failed,
                    false => HeadOutcome::Unusable, // the missing blocks can't be fetched from the origin
                };
            }
        }
        match store.restored(kept.key, kept.born_seq, head, disk, &read.data) {
            Some(restored) => self.put(volume, (&read.id, found), variant, restored),
            None => HeadOutcome::Failed,
        }
    }

    /// Inserts a restored object into the table, if its head is still at the same location on the volume.
    fn put(
        &self,
        volume: &Volume,
        (id, found): (&Id, Found),
        variant: u128,
        (object, weight): (Arc<Object>, u64),
    ) -> HeadOutcome {
        let (store, placeholder) = (self.landing.store(), self.landing.object());
        let (from, primary) = (self.landing.table_key(), self.landing.table_key().primary);
        store.enter(primary, |locked| {
            if !locked.holds(from.variant, placeholder) {
                return HeadOutcome::Failed; // the placeholder was removed meanwhile
            }
            // Purges are checked before the volume's index: once the index no longer contains the record, a rule that covers the record may
            // be dropped, and would be missed here.
            let purged = store.purges.judge(primary, &object);
            let Some(head) = object.head() else {
                return HeadOutcome::Failed;
            };
            if volume.find(id) != Some(found) {
                return HeadOutcome::Moved;
            }
            if purged {
                return HeadOutcome::Unusable;
            }
            let names = head.vary.as_ref().map(|vary| &vary.names);
            if locked.vary().is_some() && locked.vary() != names {
                return HeadOutcome::Unusable; // the record is older than the present Vary names
            }
            if variant != from.variant && locked.has(variant) {
                return HeadOutcome::Restored; // a newer object has been inserted meanwhile
            }
            if variant != from.variant {
                locked.remove(from.variant, placeholder);
            }
            locked.insert(variant, object.clone(), weight);
            locked.set_vary(names);
            HeadOutcome::Restored
        })
    }
}

impl Store {
    /// Creates the object of a head that was read, with its weight; returns `None` if there is no memory for it.
    fn restored(
        &self,
        key: Bytes,
        born_seq: u64,
        head: super::Head,
        disk: DiskCopy,
        data: &Bytes,
    ) -> Option<(Arc<Object>, u64)> {
        let object = self.create_with(&key, born_seq)?;
        let charge = self.charge_head(head.memory())?;
        let mut weight = self.weight(&key) + charge.bytes();
        let sparse = head.joinable && head.length > Some(disk.block);
        let block = std::num::NonZeroU32::new(disk.block.try_into().ok()?);
        let page = match data.is_empty() {
            true => None,
            false => {
                let charge = self.make_room(Page::footprint(data.len() as u64))?;
                weight += charge.bytes();
                let mut buffer = Buffer::new(data.len());
                buffer.append(data);
                Some(Page::filled(buffer, charge))
            }
        };
        object
            .open(Arc::new(head), charge, block.filter(|_| sparse), Some(disk))
            .wake();
        if let Some(bytes) = page {
            let mut state = object.lock();
            state.present.insert(0..bytes.len() as u64);
            state.pages.insert(0, PageState::Full(bytes));
        }
        Some((object, weight))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;
    use super::*;
    use crate::store::tests::{content, table_key};

    #[test]
    fn a_head_that_moved_during_its_read_is_looked_up_again() {
        let (_folder, volumes, store) = with_one_volume();
        let put = || {
            bring(&store, 1, versioned(5000, 9), 0..5000);
            flush(&volumes);
            forget_memory(&store, 1);
        };
        put();
        let spare = placed(&store, 1);
        let recall = store
            .recall(&spare, table_key(1), 0)
            .expect("the object is on a volume");
        let (_, found) = recall.heads[0];
        let read = block_on(volumes[0].read_head(found, 7, 1)).expect("the record exists");
        put();
        let spare = placed(&store, 1);
        let again = store
            .recall(&spare, table_key(1), 0)
            .expect("the object is on a volume");
        assert_ne!(again.heads[0].1, found);
        assert!(matches!(
            again.restore(&volumes[0], found, &read),
            HeadOutcome::Moved
        ));
        block_on(again.run());
        let object = store
            .enter(1, |locked| locked.find(0))
            .expect("the record exists");
        assert!(!Arc::ptr_eq(&object, &spare));
        drop(recall);
        let bytes = super::super::tests::read(&store, &object, 0..5000);
        assert_eq!(bytes, Some(content(0, 5000)));
    }
}
