//! The write queue of a volume: bounded in bytes, first in, first out.

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
/// Records charged with up to this many bytes may use the reserved part of the queue. These are
/// mostly heads, without which the other records of an object are not found.
const SMALL: u64 = 2048;
/// Maximum size of the reserved part in bytes.
const SPARED: u64 = 64 << 10;
/// Bytes charged for a tombstone when a batch is taken.
const TOMBSTONE_WEIGHT: u64 = 128;
/// Maximum number of queued tombstones. With more, the disk is no longer working.
const TOMBSTONES_MAX: usize = 1 << 18;

/// An item in the queue.
pub enum Item {
    /// A record to be written.
    Put {
        /// Position in the queue.
        ticket: u64,
        /// Bytes charged to the queue.
        weight: u64,
        /// Id of the record when it was queued.
        id: Id,
        /// The source of the record's bytes.
        source: Box<dyn RecordSource>,
    },
    /// A tombstone to be written.
    Tombstone {
        /// Position in the queue.
        ticket: u64,
        /// Id of the deleted record.
        id: Id,
    },
    /// A test waits until everything queued earlier is on the device.
    #[cfg(test)]
    Flush(Sender<()>),
}

/// The state of the writes for one id.
#[derive(Default)]
struct Pending {
    /// Number of records that are not in the index yet.
    puts: u32,
    /// Position of the last tombstone that has not been written; 0: none.
    forgotten: u64,
    /// Position of the last record.
    put: u64,
}

struct State {
    items: VecDeque<Item>,
    /// Bytes of items that are queued or being written.
    bytes: u64,
    /// Bytes of items that are queued.
    waiting: u64,
    tickets: u64,
    tombstones: usize,
    flushes: usize,
    pending: HashMap<Id, Pending>,
    /// Whether the queue refuses new records.
    is_closed: bool,
    /// Whether the queue refuses all items.
    is_ended: bool,
    /// Lower bound for the `born_seq` of the records that were taken last and may not be in a
    /// segment yet.
    taken_born: u64,
    /// Whether the writer was woken for another reason than an item.
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

/// The write queue.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    bell: Condvar,
}

/// Too many tombstones are queued.
pub struct Overrun;

impl Queue {
    /// Queues a record, unless `most` bytes are queued already or the queue is closed; then returns
    /// the record.
    pub fn put(
        &self,
        source: Box<dyn RecordSource>,
        most: u64,
    ) -> Result<(), Box<dyn RecordSource>> {
        let (id, weight) = (source.id(), source.bytes().max(WEIGHT_MIN));
        let most = match weight > SMALL {
            true => most - SPARED.min(most / 16),
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

    /// Removes a record from the index and queues a tombstone. Returns whether the record existed
    /// or was queued.
    pub fn forget(&self, id: &Id, index: &Index, is_loading: bool) -> Result<bool, Overrun> {
        let mut state = self.state.lock();
        let was_there = index.remove(id).is_some();
        let may_be_back = is_loading || (!was_there && index.is_lost(id));
        let (on_its_way, told) = state.pending.get(id).map_or((false, false), |pending| {
            let later = pending.put > pending.forgotten;
            (pending.puts > 0 && later, pending.forgotten > 0 && !later)
        });
        if state.is_ended || told || !(was_there || on_its_way || may_be_back) {
            return Ok(was_there);
        }
        state.push_tombstone(id)?;
        index.forget_lost(index.key(id));
        drop(state);
        self.bell.notify_one();
        Ok(was_there || on_its_way)
    }

    /// The same for the record with this key at this location, unless a newer one is queued.
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

    /// Signals `sender` when everything queued earlier is on the device; drops it if that will not
    /// happen.
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

    /// Removes the oldest queued records until the queue is `bytes` smaller. Returns them.
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

    /// Takes the next items, about `bytes` of them.
    pub fn take(&self, bytes: u64) -> Vec<Item> {
        let mut state = self.state.lock();
        let (mut taken, mut sum) = (Vec::new(), 0);
        // The items taken before are in a segment by now.
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

    /// Records the result of a write. If the record has been written and not deleted meanwhile,
    /// calls `insert`, which adds it to the index. Returns whether the record can be found now.
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

    /// Records that a record will not be written.
    pub fn give_up(&self, id: &Id, weight: u64) {
        self.state.lock().end_put(id, weight);
    }

    /// Records that a tombstone has been written or will not be.
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

    /// Refuses new records. Tombstones are still accepted while queued items are written.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.ring();
    }

    /// Refuses all new items.
    pub fn end(&self) {
        self.state.lock().is_ended = true;
        self.close();
    }

    /// Refuses all new items if the queue is empty. Returns whether it was empty.
    pub fn end_if_empty(&self) -> bool {
        let mut state = self.state.lock();
        state.is_ended |= state.items.is_empty();
        state.is_ended
    }

    /// Wakes all waiting threads.
    pub fn ring(&self) {
        self.state.lock().is_rung = true;
        self.bell.notify_all();
    }

    /// Waits until woken, until `enough` bytes or a flush are queued, or until `most` has passed.
    pub fn wait(&self, enough: u64, most: Duration) {
        let mut state = self.state.lock();
        if !state.is_ready(enough) {
            self.bell
                .wait_while_for(&mut state, |state| !state.is_ready(enough), most);
        }
        state.is_rung = false;
    }

    /// Queued bytes, whether a flush is queued, and whether the queue is closed.
    pub fn waiting(&self) -> (u64, bool, bool) {
        let state = self.state.lock();
        (state.waiting, state.flushes > 0, state.is_closed)
    }

    /// Bytes that are queued or being written.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// The smallest `born_seq` of all records that are queued or were taken last. The caller holds
    /// the lock.
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
