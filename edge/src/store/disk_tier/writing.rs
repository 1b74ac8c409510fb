//! Writes to volumes: when which parts of an object are queued.
//!
//! A block is queued when it is complete. The head is queued with the first block, or, if other fetches can't add bytes to the object, at
//! the end of the response. Queued parts stay in memory until they are written.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::disk_copy::DiskCopy;
use super::meta;
use super::volumes::Volumes;
use crate::store::head::Head;
use crate::store::object::{Object, Phase, State};
use crate::store::object_store::Store;
use crate::store::page::PAGE;
use crate::store::table_key::TableKey;
use crate::volume::{Content, Id, RecordSource, Volume};

/// Approximate size of a queued head in bytes.
const HEAD_BYTES: u64 = 1024;
/// Maximum number of blocks queued at once; more would not fit into any queue.
const QUEUED_BLOCKS_MAX: usize = 256;

/// A part of an object that is written as one record.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RecordPart {
    /// The head, with the content of a small object.
    Head,
    /// One block.
    Block(u64, Range<u64>),
}

/// A record of an object in a volume's write queue.
struct PendingWrite {
    store: Arc<Store>,
    volume: Arc<Volume>,
    object: Arc<Object>,
    table_key: TableKey,
    id: Id,
    what: RecordPart,
    bytes: u64,
    born_seq: u64,
    reported: bool,
}

impl RecordSource for PendingWrite {
    fn id(&self) -> Id {
        self.id
    }

    fn born_seq(&self) -> u64 {
        self.born_seq
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn record(&mut self) -> Option<Content> {
        if !self.store.holds(self.table_key, &self.object) {
            return None;
        }
        let head = match self.object.phase() {
            Phase::Open(head) => head,
            _ => return None,
        };
        if self
            .store
            .is_gone(self.table_key.primary, &self.object, &head)
        {
            return None;
        }
        let state = self.object.lock();
        match &self.what {
            RecordPart::Head => {
                let disk = state.disk.as_ref()?;
                let object = &self.object;
                let (key, blocks) = (&*object.key, (disk.block, disk.since));
                let length = head.length.or(state.length);
                let meta = meta::encode((key, object.born_seq), blocks, &head, length);
                let small = state.length.is_some_and(|length| length <= PAGE);
                let data = match small {
                    true => state.pieces(0..state.length?)?,
                    false => SmallVec::new(),
                };
                Some(Content { meta, data })
            }
            RecordPart::Block(_, range) => Some(Content {
                meta: Vec::new(),
                data: state.pieces(range.clone())?,
            }),
        }
    }

    fn done(mut self: Box<Self>, written: bool) {
        self.report(written);
    }
}

impl PendingWrite {
    fn report(&mut self, written: bool) {
        if std::mem::replace(&mut self.reported, true) {
            return;
        }
        if let Some(disk) = &mut self.object.lock().disk {
            disk.settle(&self.what, written);
        }
        if self.what != RecordPart::Head {
            return;
        }
        // If the record was not written, an older head on the volume is obsolete. If it was written but the object has left the table
        // meanwhile, the new record is obsolete, unless another object of the same key has written a head since.
        let obsolete = match self.store.holds(self.table_key, &self.object) {
            true => !written,
            false => written && !self.store.another_head_is_written(self.table_key),
        };
        if obsolete {
            self.volume.forget(&self.id);
        }
    }
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        self.report(false);
    }
}

impl DiskCopy {
    /// Records in the disk copy whether a queued record was written.
    fn settle(&mut self, what: &RecordPart, written: bool) {
        match what {
            RecordPart::Head => self.head &= written,
            RecordPart::Block(_, range) => {
                let waiting = self.queued.iter().position(|queued| queued == range);
                if let Some(waiting) = waiting {
                    self.queued.swap_remove(waiting);
                }
                if written {
                    self.there.insert(range.clone());
                    self.known.insert(range.clone());
                }
            }
        }
    }

    /// Whether the volumes have any block of the object: such blocks can't be found without the head.
    fn has_any(&self) -> bool {
        !self.there.is_empty() || !self.aside.is_empty()
    }

    /// Whether this block is queued or on volumes.
    pub(super) fn has(&self, range: &Range<u64>) -> bool {
        let is_there = self.there.covers(range) || self.aside.covers(range);
        is_there || self.queued.iter().any(|queued| queued == range)
    }
}

impl State {
    /// Returns the parts to queue after the bytes of this range have arrived.
    fn due(&mut self, come: &Range<u64>) -> SmallVec<[RecordPart; 2]> {
        let mut due = SmallVec::new();
        // Until the body is complete, the volumes keep the object that this one is to replace.
        if self.is_replacing() {
            return due;
        }
        let complete = self.is_complete();
        let length = self.length;
        let (Some(disk), Phase::Open(head)) = (&mut self.disk, &self.phase) else {
            return due;
        };
        if !disk.admitted || self.passes_through || !disk.volumes.admits(length, come.end) {
            return due;
        }
        if length.is_some_and(|length| length <= PAGE) {
            if complete && !disk.head {
                disk.head = true;
                due.push(RecordPart::Head);
            }
            return due;
        }
        let first = come.start / disk.block;
        let last = come.end.saturating_sub(1) / disk.block;
        for number in (first..=last).take(QUEUED_BLOCKS_MAX) {
            let range = disk.range_of(number, length.unwrap_or(u64::MAX));
            if !range.is_empty() && self.present.covers(&range) && !disk.has(&range) {
                due.push(RecordPart::Block(number, range));
            }
        }
        // If other fetches can't add bytes to the object, it is useful only as a whole.
        let useful = complete || head.joinable && !due.is_empty();
        if useful && !disk.head {
            disk.head = true;
            due.push(RecordPart::Head);
        }
        due
    }

    /// Returns the pages of a range; `None` if one is missing or not full.
    fn pieces(&self, range: Range<u64>) -> Option<SmallVec<[bytes::Bytes; 16]>> {
        let mut pieces = SmallVec::new();
        let mut at = range.start;
        while at < range.end {
            let piece = self.slice(at, range.end)?;
            at += piece.len() as u64;
            let whole = piece.len() as u64 == PAGE || at == range.end;
            if !whole {
                return None;
            }
            pieces.push(piece);
        }
        Some(pieces)
    }
}

impl Store {
    /// Queues the parts that are complete after the bytes of this range have arrived. Never waits: parts that do not fit into the queue are
    /// not written.
    pub(in crate::store) fn enqueue_writes(
        self: &Arc<Self>,
        table_key: TableKey,
        object: &Arc<Object>,
        come: Range<u64>,
    ) {
        let mut state = object.lock();
        let due = state.due(&come);
        let Some(disk) = state.disk.as_ref().filter(|_| !due.is_empty()) else {
            return;
        };
        let volumes = disk.volumes.clone();
        drop(state);
        for what in due {
            self.hand_over(&volumes, table_key, object, what);
        }
    }

    /// Whether the table has an object under this key that has queued a head of its own.
    fn another_head_is_written(self: &Arc<Self>, table_key: TableKey) -> bool {
        let all = self.enter(table_key.primary, |locked| locked.all());
        let mut here = all
            .iter()
            .filter(|(variant, _)| *variant == table_key.variant);
        here.any(|(_, object)| object.lock().disk.as_ref().is_some_and(|disk| disk.head))
    }

    /// Queues the object's new head.
    pub(in crate::store) fn enqueue_head(
        self: &Arc<Self>,
        table_key: TableKey,
        object: &Arc<Object>,
    ) {
        let mut state = object.lock();
        let (complete, length) = (state.is_complete(), state.length);
        if state.is_replacing() {
            return;
        }
        let wanted = |disk: &&mut Box<DiskCopy>| {
            let worth = disk.head || complete || disk.has_any();
            disk.admitted && worth && disk.volumes.admits(length, 0)
        };
        let Some(disk) = state.disk.as_mut().filter(wanted) else {
            return;
        };
        disk.head = true;
        let volumes = disk.volumes.clone();
        drop(state);
        self.hand_over(&volumes, table_key, object, RecordPart::Head);
    }

    /// Admits an object to volumes after its second request, and queues the parts that have arrived.
    pub(in crate::store) fn admit(self: &Arc<Self>, table_key: TableKey, object: &Arc<Object>) {
        let mut state = object.lock();
        let Some(disk) = &mut state.disk else {
            return;
        };
        disk.admitted = true;
        drop(state);
        self.enqueue_all(table_key, object);
    }

    /// Queues the parts of an object that have arrived.
    pub(in crate::store) fn enqueue_all(
        self: &Arc<Self>,
        table_key: TableKey,
        object: &Arc<Object>,
    ) {
        let come: SmallVec<[_; 2]> = object.lock().present.iter().collect();
        for range in come {
            self.enqueue_writes(table_key, object, range);
        }
    }

    fn hand_over(
        self: &Arc<Self>,
        volumes: &Arc<Volumes>,
        table_key: TableKey,
        object: &Arc<Object>,
        what: RecordPart,
    ) {
        let (id, bytes) = {
            let mut state = object.lock();
            let small = state.length.filter(|length| *length <= PAGE);
            let Some(disk) = &mut state.disk else {
                return;
            };
            match &what {
                RecordPart::Head => {
                    let head = TableKey {
                        variant: disk.table_key.variant,
                        ..table_key
                    };
                    let content = small.unwrap_or(0);
                    (volumes.head_id(head), HEAD_BYTES + content)
                }
                RecordPart::Block(number, range) => {
                    let Some(id) = disk.block_id(*number) else {
                        return;
                    };
                    (id, range.end - range.start)
                }
            }
        };
        let homes = volumes.homes(&id);
        if homes.is_empty()
            && let Some(disk) = &mut object.lock().disk
        {
            disk.settle(&what, false);
        }
        for number in homes {
            if let (RecordPart::Block(_, range), Some(disk)) = (&what, &mut object.lock().disk) {
                disk.queued.push(range.clone());
            }
            let pending = Box::new(PendingWrite {
                store: self.clone(),
                volume: volumes.volumes[number].clone(),
                object: object.clone(),
                table_key,
                id,
                what: what.clone(),
                bytes,
                born_seq: object.born_seq,
                reported: false,
            });
            // If the queue refuses the record, dropping the record notifies the object.
            let _ = volumes.volumes[number].put(pending);
        }
    }

    /// Whether a purge covers an object, so that it must not be written to volumes.
    fn is_gone(&self, primary: u128, object: &Object, head: &Head) -> bool {
        !self.purges.is_settled(object) && self.purges.covers(primary, object, head)
    }
}
