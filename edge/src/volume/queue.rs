//! What waits to be written: bounded in bytes, and what came first is written first.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::index::{Index, Key, RecordLocation};
use super::{Id, Source};

/// The least that a waiting record counts for.
const WEIGHT_MIN: u64 = 512;
/// Records up to this weight are let in when the last of the room is for them: without their heads,
/// objects that are on the device are not found.
const SMALL: u64 = 2048;
/// The most that is left for those.
const SPARED: u64 = 64 << 10;
/// What a tombstone counts for when a batch is taken.
const TOMBSTONE_WEIGHT: u64 = 128;
/// More tombstones than this can't wait: such a volume has lost its disk.
const TOMBSTONES_MAX: usize = 1 << 18;

/// One thing to write.
pub enum Item {
    /// A record.
    Put {
        /// Its place in line.
        ticket: u64,
        /// What it counts for.
        weight: u64,
        /// What it was found by when it came.
        id: Id,
        /// What brings it.
        source: Box<dyn Source>,
    },
    /// A record is forgotten.
    Tombstone {
        /// Its place in line.
        ticket: u64,
        /// Whose.
        id: Id,
    },
    /// Somebody wants to know when all before is on the device.
    Flush(Sender<()>),
}

/// What is under way for an id.
#[derive(Default)]
struct Pending {
    /// Records that are not in the index yet.
    puts: u32,
    /// The ticket of the last tombstone that is not written yet; 0: none.
    forgotten: u64,
    /// The ticket of the last record.
    put: u64,
}

struct State {
    items: VecDeque<Item>,
    /// Of those in line, and of those being written.
    bytes: u64,
    /// Of those in line.
    waiting: u64,
    tickets: u64,
    tombstones: usize,
    flushes: usize,
    pending: HashMap<Id, Pending>,
    /// No more records are taken.
    is_closed: bool,
    /// Nothing is taken any more.
    is_ended: bool,
    /// No record that was taken out last, and may not be in a segment yet, was born before this.
    taken_born: u64,
    /// Something else than an item happened.
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

/// What waits to be written.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    bell: Condvar,
}

/// Too many tombstones wait.
pub struct Overrun;

impl Queue {
    /// Takes a record, unless `most` bytes wait already or it is closed; gives it back otherwise.
    pub fn put(&self, source: Box<dyn Source>, most: u64) -> Result<(), Box<dyn Source>> {
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

    /// Takes a record out of the index and has that written; whether it was there, or on its way.
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

    /// The same of one that is found by this key at this place, unless a newer one is on its way.
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

    /// Whether a record of this id, or a tombstone, is on its way.
    pub fn is_pending(&self, id: &Id) -> bool {
        self.state.lock().pending.contains_key(id)
    }

    /// Rings `sender` when all before is on the device; drops it when that will not be.
    pub fn flush(&self, sender: Sender<()>) {
        let mut state = self.state.lock();
        if !state.is_closed {
            state.flushes += 1;
            state.items.push_back(Item::Flush(sender));
        }
        drop(state);
        self.bell.notify_one();
    }

    /// Gives up records that wait, the oldest first, until so many bytes wait less: those records.
    pub fn shed(&self, bytes: u64) -> (Vec<Box<dyn Source>>, u64) {
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

    /// The next items, of about so many bytes; fewer if there are no more.
    pub fn take(&self, bytes: u64) -> Vec<Item> {
        let mut state = self.state.lock();
        let (mut taken, mut sum) = (Vec::new(), 0);
        // What was taken before is in a segment by now.
        state.taken_born = u64::MAX;
        while sum < bytes {
            let Some(item) = state.items.pop_front() else {
                break;
            };
            let weight = match &item {
                Item::Put { weight, .. } => *weight,
                Item::Tombstone { .. } => TOMBSTONE_WEIGHT,
                Item::Flush(_) => 0,
            };
            match &item {
                Item::Tombstone { .. } => state.tombstones -= 1,
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

    /// A record was written, or not: puts it into the index by `insert` unless it was forgotten
    /// meanwhile; whether it can be found now.
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

    /// A record will not be written.
    pub fn give_up(&self, id: &Id, weight: u64) {
        self.state.lock().end_put(id, weight);
    }

    /// A tombstone was written, or will not be.
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

    /// Takes no more records. What is forgotten is still taken, while what waits is written.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.ring();
    }

    /// Takes nothing more.
    pub fn end(&self) {
        self.state.lock().is_ended = true;
        self.close();
    }

    /// The same, if nothing is in line; whether it is so.
    pub fn end_if_empty(&self) -> bool {
        let mut state = self.state.lock();
        state.is_ended |= state.items.is_empty();
        state.is_ended
    }

    /// Wakes whoever waits for something.
    pub fn ring(&self) {
        self.state.lock().is_rung = true;
        self.bell.notify_all();
    }

    /// Waits until somebody rings, or `enough` bytes wait, or a flush, or for so long at most.
    pub fn wait(&self, enough: u64, most: Duration) {
        let mut state = self.state.lock();
        if !state.is_ready(enough) {
            self.bell
                .wait_while_for(&mut state, |state| !state.is_ready(enough), most);
        }
        state.is_rung = false;
    }

    /// Bytes in line, whether a flush is, and whether it is closed.
    pub fn waiting(&self) -> (u64, bool, bool) {
        let state = self.state.lock();
        (state.waiting, state.flushes > 0, state.is_closed)
    }

    /// Bytes that wait or are being written.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// The least number at which any of what waits, or was taken last, was born; asked under the lock.
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
