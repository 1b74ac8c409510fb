//! The write queue of a volume: first in, first out, with a limit in bytes.

use std::collections::VecDeque;
#[cfg(test)]
use std::sync::mpsc::Sender;
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::index::{Index, Key, RecordLocation};
use super::types::{Id, RecordSource};

/// Minimum number of bytes charged for a queued record.
const WEIGHT_MIN: u64 = 512;
/// Maximum number of bytes of a record that may use the reserved part of the queue. Small records are mostly heads, without which the
/// blocks of an object can't be found.
const SMALL: u64 = 2048;
/// Maximum size of the reserved part of the queue in bytes.
const RESERVED_MAX: u64 = 64 << 10;
/// Number of bytes that a tombstone counts as when items are taken for a batch.
const TOMBSTONE_WEIGHT: u64 = 128;
/// Maximum number of queued tombstones. So many can wait only if the disk no longer works.
const TOMBSTONES_MAX: usize = 1 << 18;

/// An item in the queue.
pub enum Item {
    /// A record to be written.
    Put {
        /// Number of the record in the order in which items were queued.
        ticket: u64,
        /// Number of bytes charged to the queue for the record.
        weight: u64,
        /// Id of the record when it was queued.
        id: Id,
        /// Provides the record's bytes, and receives the result of the write.
        source: Box<dyn RecordSource>,
    },
    /// A tombstone to be written.
    Tombstone {
        /// Number of the tombstone in the order in which items were queued.
        ticket: u64,
        /// Id of the deleted record.
        id: Id,
    },
    /// A test waits until everything queued earlier is on the device.
    #[cfg(test)]
    Flush(Sender<()>),
}

/// The writes for one id that are queued or in progress.
#[derive(Default)]
struct Pending {
    /// Number of records that are queued or being written, and not in the index yet.
    puts: u32,
    /// Number of the last tombstone that has not been written yet, in the order in which items were queued; 0: none.
    forgotten: u64,
    /// Number of the last record, in the order in which items were queued.
    put: u64,
}

struct State {
    items: VecDeque<Item>,
    /// Number of bytes of items that are queued or being written.
    bytes: u64,
    /// Number of bytes of items that are queued.
    waiting: u64,
    tickets: u64,
    tombstones: usize,
    flushes: usize,
    pending: HashMap<Id, Pending>,
    /// Whether the queue refuses new records.
    is_closed: bool,
    /// Whether the queue refuses all items.
    is_ended: bool,
    /// Lower bound for the `born_seq` of the records that the writer took last and that may not be in a segment yet.
    taken_born: u64,
    /// Whether the writer was woken for another reason than a new item.
    is_rung: bool,
}

impl Default for State {
    fn default() -> State {
        State {
            items: VecDeque::new(),
            bytes: 0,
            waiting: 0,
            tickets: 0,
            tombstones: 0,
            flushes: 0,
            pending: HashMap::default(),
            is_closed: false,
            is_ended: false,
            taken_born: u64::MAX,
            is_rung: false,
        }
    }
}

/// The write queue of a volume.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    bell: Condvar,
}

/// Error: too many tombstones are queued, so the disk seems not to work any more.
pub struct Overrun;

impl Queue {
    /// Queues a record. Returns the record if `most` bytes are queued already or the queue is closed.
    pub fn put(
        &self,
        source: Box<dyn RecordSource>,
        most: u64,
    ) -> Result<(), Box<dyn RecordSource>> {
        let (id, weight) = (source.id(), source.bytes().max(WEIGHT_MIN));
        let most = match weight > SMALL {
            true => most - RESERVED_MAX.min(most / 16),
            false => most,
        };
        let mut state = self.state.lock();
        if state.is_closed || (state.bytes > 0 && state.bytes + weight > most) {
            return Err(source);
        }
        let ticket = state.ticket();
        state.bytes += weight;
        state.waiting += weight;
        let pending = state.pending.entry(id).or_default();
        pending.puts += 1;
        pending.put = ticket;
        state.items.push_back(Item::Put {
            ticket,
            weight,
            id,
            source,
        });
        drop(state);
        self.bell.notify_one();
        Ok(())
    }

    /// Removes a record from the index, and queues a tombstone if needed. Returns whether the record was in the index or queued.
    pub fn forget(&self, id: &Id, index: &Index, is_loading: bool) -> Result<bool, Overrun> {
        let mut state = self.state.lock();
        let was_there = index.remove(id).is_some();
        let may_be_back = is_loading || (!was_there && index.is_lost(id));
        let (on_its_way, deleted) = state.pending.get(id).map_or((false, false), |pending| {
            let later = pending.put > pending.forgotten;
            (pending.puts > 0 && later, pending.forgotten > 0 && !later)
        });
        if state.is_ended || deleted || !(was_there || on_its_way || may_be_back) {
            return Ok(was_there);
        }
        state.push_tombstone(id)?;
        index.forget_lost(index.key(id));
        drop(state);
        self.bell.notify_one();
        Ok(was_there || on_its_way)
    }

    /// Removes the record with this key from the index if it is at this location, and queues a tombstone, unless a newer record with the
    /// same id is queued.
    pub fn forget_at(
        &self,
        id: &Id,
        key: Key,
        at: RecordLocation,
        index: &Index,
    ) -> Result<(), Overrun> {
        let mut state = self.state.lock();
        if !state.is_ended && !state.pending.contains_key(id) && index.remove_if(key, at) {
            state.push_tombstone(id)?;
            drop(state);
            self.bell.notify_one();
        }
        Ok(())
    }

    /// Whether a record or tombstone with this id is queued or being written.
    pub fn is_pending(&self, id: &Id) -> bool {
        self.state.lock().pending.contains_key(id)
    }

    /// Sends a message to `sender` when everything queued earlier is on the device; drops `sender` if that will not happen.
    #[cfg(test)]
    pub fn flush(&self, sender: Sender<()>) {
        let mut state = self.state.lock();
        if !state.is_closed {
            state.flushes += 1;
            state.items.push_back(Item::Flush(sender));
        }
        drop(state);
        self.bell.notify_one();
    }

    /// Removes the oldest queued records until the queue is `bytes` smaller. Returns these records and the number of bytes freed.
    pub fn shed(&self, bytes: u64) -> (Vec<Box<dyn RecordSource>>, u64) {
        let mut state = self.state.lock();
        let (mut kept, mut given_up, mut freed) = (VecDeque::new(), Vec::new(), 0);
        while freed < bytes {
            match state.items.pop_front() {
                Some(Item::Put {
                    weight, id, source, ..
                }) => {
                    freed += weight;
                    state.waiting -= weight;
                    state.end_put(&id, weight);
                    given_up.push(source);
                }
                Some(other) => kept.push_back(other),
                None => break,
            }
        }
        kept.append(&mut state.items);
        state.items = kept;
        (given_up, freed)
    }

    /// Takes the next items from the queue, about `bytes` of them.
    pub fn take(&self, bytes: u64) -> Vec<Item> {
        let mut state = self.state.lock();
        let (mut taken, mut sum) = (Vec::new(), 0);
        // The items taken before are in a segment by now, so their `born_seq` is counted there.
        state.taken_born = u64::MAX;
        while sum < bytes {
            let Some(item) = state.items.pop_front() else {
                break;
            };
            let weight = match &item {
                Item::Put { weight, .. } => *weight,
                Item::Tombstone { .. } => TOMBSTONE_WEIGHT,
                #[cfg(test)]
                Item::Flush(_) => 0,
            };
            match &item {
                Item::Tombstone { .. } => state.tombstones -= 1,
                #[cfg(test)]
                Item::Flush(_) => state.flushes -= 1,
                Item::Put { source, .. } => {
                    state.taken_born = state.taken_born.min(source.born_seq());
                }
            }
            sum += weight;
            state.waiting -= weight;
            taken.push(item);
        }
        taken
    }

    /// Ends the write of a record. Calls `insert`, which adds the record to the index, unless the record has been deleted meanwhile.
    /// Returns whether the record can be found now.
    pub fn settle(&self, id: &Id, ticket: u64, weight: u64, insert: impl FnOnce()) -> bool {
        let mut state = self.state.lock();
        let forgotten = state.pending.get(id).map_or(0, |pending| pending.forgotten);
        let stands = forgotten < ticket;
        if stands {
            insert();
        }
        state.end_put(id, weight);
        stands
    }

    /// Ends the write of a record that failed or was dropped.
    pub fn give_up(&self, id: &Id, weight: u64) {
        self.state.lock().end_put(id, weight);
    }

    /// Ends the write of a tombstone, whether it was written or not.
    pub fn settle_tombstone(&self, id: &Id, ticket: u64) {
        let mut state = self.state.lock();
        if let Some(pending) = state.pending.get_mut(id)
            && pending.forgotten == ticket
        {
            pending.forgotten = 0;
            if pending.puts == 0 {
                state.pending.remove(id);
            }
        }
    }

    /// Refuses new records from now on. Tombstones are still accepted while queued items are written.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.ring();
    }

    /// Refuses all new items from now on.
    pub fn end(&self) {
        self.state.lock().is_ended = true;
        self.close();
    }

    /// Refuses all new items from now on, provided that the queue is empty. Returns whether it was empty.
    pub fn end_if_empty(&self) -> bool {
        let mut state = self.state.lock();
        state.is_ended |= state.items.is_empty();
        state.is_ended
    }

    /// Wakes all threads that wait for the queue.
    pub fn ring(&self) {
        self.state.lock().is_rung = true;
        self.bell.notify_all();
    }

    /// Waits until `ring` is called, until `enough` bytes or a flush are queued, or until the time `most` has passed.
    pub fn wait(&self, enough: u64, most: Duration) {
        let mut state = self.state.lock();
        if !state.is_ready(enough) {
            self.bell
                .wait_while_for(&mut state, |state| !state.is_ready(enough), most);
        }
        state.is_rung = false;
    }

    /// Returns the number of queued bytes, whether a flush is queued, and whether the queue is closed.
    pub fn waiting(&self) -> (u64, bool, bool) {
        let state = self.state.lock();
        (state.waiting, state.flushes > 0, state.is_closed)
    }

    /// Returns the number of bytes that are queued or being written.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Returns the smallest `born_seq` of all records that are queued, or that the writer took last and that may not be in a segment yet.
    pub fn oldest_born(&self) -> u64 {
        let state: MutexGuard<'_, State> = self.state.lock();
        let born = state.items.iter().map(|item| match item {
            Item::Put { source, .. } => source.born_seq(),
            _ => u64::MAX,
        });
        born.min().unwrap_or(u64::MAX).min(state.taken_born)
    }
}

impl State {
    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    fn push_tombstone(&mut self, id: &Id) -> Result<(), Overrun> {
        if self.tombstones >= TOMBSTONES_MAX {
            return Err(Overrun);
        }
        let ticket = self.ticket();
        self.tombstones += 1;
        self.waiting += TOMBSTONE_WEIGHT;
        self.pending.entry(*id).or_default().forgotten = ticket;
        self.items.push_back(Item::Tombstone { ticket, id: *id });
        Ok(())
    }

    fn end_put(&mut self, id: &Id, weight: u64) {
        self.bytes -= weight;
        if let Some(pending) = self.pending.get_mut(id) {
            pending.puts -= 1;
            if pending.puts == 0 && pending.forgotten == 0 {
                self.pending.remove(id);
            }
        }
    }

    fn is_ready(&self, enough: u64) -> bool {
        self.is_rung || self.is_closed || self.flushes > 0 || self.waiting >= enough
    }
}
