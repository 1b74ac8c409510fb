//! The table of contents: which encodings of each content exist, and which are queued. The table
//! has shards, each with a lock that is held for a single lookup, and one limit of bytes for all
//! shards.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use slab::Slab;

use super::lines::{self, Mark};
use crate::evict::{self, Policy};
use crate::handler::{Choice, Encoded};
use crate::http::FieldBlock;
use crate::http::coding::{Accepted, Coding};

/// Number of shards, large enough that two workers seldom need the same one.
const SHARDS: usize = 16;

/// Bytes of an entry in addition to header lines and contents: its slots in the map, the slab and
/// the eviction policy.
const BOOKKEEPING: u64 = 384;
/// Bytes of a compressed form in addition to its header lines and content.
const OF_CODED: u64 = 128;

pub(super) struct Table {
    shards: Box<[Mutex<Shard>]>,
    hasher: foldhash::fast::RandomState,
    /// Memory used by entries, bytes.
    bytes: AtomicU64,
    limit: u64,
    /// The shard that evicts next; ids are evenly distributed.
    next: AtomicUsize,
    evicted: AtomicU64,
}

struct Shard {
    ids: HashMap<u128, u32, foldhash::fast::RandomState>,
    entries: Slab<Entry>,
    policy: Box<dyn Policy + Send>,
}

/// One content.
struct Entry {
    id: u128,
    /// The content's header lines at its last lookup.
    fields: FieldBlock,
    /// The same lines with Accept-Encoding in Vary.
    varying: FieldBlock,
    /// Whether compression shortens the content, as far as known.
    is_worth: bool,
    /// The state of each encoding.
    codings: [Made; 3],
}

#[derive(Default)]
enum Made {
    #[default]
    Not,
    /// A job is queued or running.
    Queued,
    Done(Arc<Encoded>, Mark),
}

/// The result of a lookup.
pub(super) enum Lookup {
    /// The content is known: which form to send, and which encoding to make.
    Known(Choice, Option<Coding>),
    /// The content is known with other header lines.
    OtherFields,
    Unknown,
}

/// The result of a compression job.
#[derive(Debug)]
pub(super) enum Outcome {
    Made(Bytes, Mark),
    /// The result is not short enough, or no codec supports the content: never try again.
    NotWorth,
    /// The job failed this time.
    Failed,
}

/// Memory and counters of the table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    pub contents: u64,
    pub bytes: u64,
    pub evicted: u64,
}

impl Table {
    /// Creates a table limited to this many bytes.
    pub fn new(limit: u64) -> Table {
        let shard = |_| {
            Mutex::new(Shard {
                ids: HashMap::default(),
                entries: Slab::new(),
                policy: evict::Kind::S3Fifo.build(),
            })
        };
        Table {
            shards: (0..SHARDS).map(shard).collect(),
            hasher: foldhash::fast::RandomState::default(),
            bytes: AtomicU64::new(0),
            limit,
            next: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    /// Chooses the form of a content with these header lines for a client with these accepted
    /// encodings. `order` contains the encodings that can be made.
    #[inline]
    pub fn look_up(
        &self,
        id: u128,
        fields: &FieldBlock,
        accepted: &Accepted,
        order: &[Coding],
    ) -> Lookup {
        let shard = &mut *self.shard(id).lock();
        let Some(&at) = shard.ids.get(&id) else {
            return Lookup::Unknown;
        };
        let Some(entry) = shard.entries.get_mut(at as usize) else {
            return Lookup::Unknown;
        };
        if !entry.is_under(fields) {
            return Lookup::OtherFields;
        }
        shard.policy.touch(at);
        entry.given(accepted, order)
    }

    /// Marks an encoding of a content as queued; returns whether the caller must queue it.
    pub fn mark_queued(&self, id: u128, fields: &FieldBlock, coding: Coding) -> bool {
        self.with(id, fields, |entry| {
            let made = &mut entry.codings[coding as usize];
            let is_first = entry.is_worth && matches!(made, Made::Not);
            if is_first {
                *made = Made::Queued;
            }
            is_first
        })
    }

    /// Removes the mark of a job that was not queued.
    pub fn unmark_queued(&self, id: u128, coding: Coding) {
        let shard = &mut *self.shard(id).lock();
        let at = shard.ids.get(&id).map(|at| *at as usize);
        if let Some(entry) = at.and_then(|at| shard.entries.get_mut(at)) {
            entry.set(coding, Made::Not);
        }
    }

    /// Stores the result of a job. `fields` are the content's header lines, for a content that was
    /// evicted meanwhile.
    pub fn finish(&self, id: u128, fields: &FieldBlock, coding: Coding, outcome: Outcome) {
        if let Outcome::Made(content, _) = &outcome {
            self.make_room((content.len() + 2 * fields.memory()) as u64 + BOOKKEEPING);
        }
        // The result is prepared before the lock is taken: this thread has a low priority, and
        // workers would have to wait for it.
        let ready = match &outcome {
            Outcome::Made(content, mark) => Some(encoded(fields, coding, content.clone(), *mark)),
            _ => None,
        };
        self.with(id, fields, |entry| match outcome {
            Outcome::Made(content, mark) => {
                let encoded = match ready {
                    Some(ready) if entry.fields == *fields => ready,
                    _ => encoded(&entry.fields, coding, content, mark),
                };
                entry.set(coding, Made::Done(encoded, mark));
            }
            Outcome::NotWorth => {
                entry.is_worth = false;
                entry.set(coding, Made::Not);
            }
            Outcome::Failed => entry.set(coding, Made::Not),
        });
    }

    /// Replaces the header lines of a known content, with `varying` for responses that vary.
    pub fn renew(&self, id: u128, fields: &FieldBlock, varying: &FieldBlock) {
        self.with(id, fields, |entry| {
            entry.fields = fields.clone();
            entry.varying = varying.clone();
            for made in &mut entry.codings {
                if let Made::Done(old, mark) = made {
                    let content = old.content.clone();
                    *made = Made::Done(encoded(fields, old.coding, content, *mark), *mark);
                }
            }
        });
    }

    pub fn held(&self) -> Held {
        let contents = self.shards.iter().map(|shard| shard.lock().entries.len());
        Held {
            contents: contents.sum::<usize>() as u64,
            bytes: self.bytes.load(Ordering::Relaxed),
            evicted: self.evicted.load(Ordering::Relaxed),
        }
    }

    /// Changes the entry of a content, or a new entry with these header lines.
    fn with<T>(&self, id: u128, fields: &FieldBlock, change: impl FnOnce(&mut Entry) -> T) -> T {
        let hash = self.hasher.hash_one(id);
        let mut locked = self.shard(id).lock();
        let shard = &mut *locked;
        let at = match shard.ids.get(&id) {
            Some(at) => *at,
            None => {
                let at = shard.entries.insert(Entry::new(id, fields)) as u32;
                shard.ids.insert(id, at);
                shard.policy.track(at, hash, 0);
                at
            }
        };
        let entry = &mut shard.entries[at as usize];
        let before = shard.policy.weight();
        let changed = change(entry);
        shard.policy.resize(at, entry.weight());
        let after = shard.policy.weight();
        self.bytes
            .fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        drop(locked);
        self.make_room(0);
        changed
    }

    /// Evicts contents until the rest fits with this many more bytes.
    fn make_room(&self, more: u64) {
        let mut empty = 0;
        while self.bytes.load(Ordering::Relaxed) + more > self.limit && empty < SHARDS {
            let next = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let mut locked = self.shards[next].lock();
            let shard = &mut *locked;
            let before = shard.policy.weight();
            let Some(victim) = shard.policy.evict() else {
                empty += 1;
                continue;
            };
            empty = 0;
            let gone = shard.entries.try_remove(victim as usize);
            if let Some(entry) = &gone {
                shard.ids.remove(&entry.id);
            }
            let less = before - shard.policy.weight();
            self.bytes.fetch_sub(less, Ordering::Relaxed);
            self.evicted.fetch_add(1, Ordering::Relaxed);
            drop(locked);
            // Freeing memory must not hold the lock.
            drop(gone);
        }
    }

    fn shard(&self, id: u128) -> &Mutex<Shard> {
        // The map inside a shard uses the low bits.
        let at = (self.hasher.hash_one(id) >> 57) as usize % SHARDS;
        &self.shards[at]
    }
}

impl Entry {
    fn new(id: u128, fields: &FieldBlock) -> Entry {
        Entry {
            id,
            fields: fields.clone(),
            varying: lines::varying(fields),
            is_worth: true,
            codings: Default::default(),
        }
    }

    /// Whether these are the content's header lines. Equal lines at another address are remembered,
    /// so that the next comparison is by address.
    #[inline]
    fn is_under(&mut self, fields: &FieldBlock) -> bool {
        let is_it = |own: &FieldBlock| own.is_same(fields);
        if is_it(&self.fields) {
            return true;
        }
        let is_same = self.fields == *fields;
        if is_same {
            self.fields = fields.clone();
        }
        is_same
    }

    /// Chooses the best available encoding, and the best encoding to make.
    #[inline]
    fn given(&self, accepted: &Accepted, order: &[Coding]) -> Lookup {
        let best = accepted.best(order.iter().copied());
        if let Some(best) = best
            && let Made::Done(encoded, _) = &self.codings[best as usize]
        {
            return Lookup::Known(Choice::Coded(encoded.clone()), None);
        }
        let is_there = |coding: &Coding| matches!(self.codings[*coding as usize], Made::Done(..));
        let second = accepted.best(order.iter().copied().filter(is_there));
        let choice = match second.map(|coding| &self.codings[coding as usize]) {
            Some(Made::Done(encoded, _)) => Choice::Coded(encoded.clone()),
            _ => Choice::Varying(self.varying.clone()),
        };
        let is_to_be_made =
            |coding: &Coding| self.is_worth && matches!(self.codings[*coding as usize], Made::Not);
        Lookup::Known(choice, best.filter(is_to_be_made))
    }

    fn set(&mut self, coding: Coding, made: Made) {
        self.codings[coding as usize] = made;
    }

    /// Bytes of memory that the entry counts for.
    fn weight(&self) -> u64 {
        let coded = self.codings.iter().map(|made| match made {
            Made::Done(coded, _) => OF_CODED + (coded.fields.memory() + coded.content.len()) as u64,
            _ => 0,
        });
        BOOKKEEPING + (self.fields.memory() + self.varying.memory()) as u64 + coded.sum::<u64>()
    }
}

/// Builds the compressed form of a content with these header lines.
fn encoded(fields: &FieldBlock, coding: Coding, content: Bytes, mark: Mark) -> Arc<Encoded> {
    let (fields, etag) = lines::coded(fields, coding, mark);
    Arc::new(Encoded {
        coding,
        fields,
        etag,
        content,
    })
}
