//! What is known of contents: in which codings they were made, and which were asked for. In shards,
//! each behind a lock that is held for a lookup and no longer; one bound of bytes for all of them.

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

/// Enough that two workers seldom want the same one.
const SHARDS: usize = 16;

/// What an entry takes beside lines and contents: its rows in the map, the slab and the policy.
const BOOKKEEPING: u64 = 384;
/// What content in a coding takes beside its lines and bytes.
const OF_CODED: u64 = 128;

pub(super) struct Table {
    shards: Box<[Mutex<Shard>]>,
    hasher: foldhash::fast::RandomState,
    /// Bytes that entries take.
    bytes: AtomicU64,
    limit: u64,
    /// The shard that gives something up next: ids are spread evenly.
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
    /// Its field lines, as they were when it was last met.
    fields: FieldBlock,
    /// The same, saying that it comes in several codings.
    varying: FieldBlock,
    /// It shrinks, as far as is known.
    is_worth: bool,
    /// By coding.
    codings: [Made; 3],
}

#[derive(Default)]
enum Made {
    #[default]
    Not,
    /// Somebody sees to it.
    Asked,
    There(Arc<Encoded>, Mark),
}

/// What looking a content up found.
pub(super) enum Looked {
    /// It is known; how it is given, and the coding in which it is to be made.
    Known(Choice, Option<Coding>),
    /// It is known under other field lines.
    Other,
    Unknown,
}

/// What became of a coding that was asked for.
#[derive(Debug)]
pub(super) enum Outcome {
    Made(Bytes, Mark),
    /// It is not shorter, or no codec can do it: not to be tried again.
    NotWorth,
    /// Not this time.
    Failed,
}

/// What the table holds, and has dropped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    pub contents: u64,
    pub bytes: u64,
    pub evicted: u64,
}

impl Table {
    /// For so many bytes.
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

    /// How a content with these field lines is given to who accepts these codings, of which `order` has
    /// those that are made.
    #[inline]
    pub fn look(
        &self,
        id: u128,
        fields: &FieldBlock,
        accepted: &Accepted,
        order: &[Coding],
    ) -> Looked {
        let shard = &mut *self.shard(id).lock();
        let Some(&at) = shard.ids.get(&id) else {
            return Looked::Unknown;
        };
        let Some(entry) = shard.entries.get_mut(at as usize) else {
            return Looked::Unknown;
        };
        if !entry.is_under(fields) {
            return Looked::Other;
        }
        shard.policy.touch(at);
        entry.given(accepted, order)
    }

    /// Notes that somebody sees to a coding of a content; whether the caller is to.
    pub fn ask(&self, id: u128, fields: &FieldBlock, coding: Coding) -> bool {
        self.with(id, fields, |entry| {
            let made = &mut entry.codings[coding as usize];
            let is_first = entry.is_worth && matches!(made, Made::Not);
            if is_first {
                *made = Made::Asked;
            }
            is_first
        })
    }

    /// Nobody sees to it any more.
    pub fn unask(&self, id: u128, coding: Coding) {
        let shard = &mut *self.shard(id).lock();
        let at = shard.ids.get(&id).map(|at| *at as usize);
        if let Some(entry) = at.and_then(|at| shard.entries.get_mut(at)) {
            entry.set(coding, Made::Not);
        }
    }

    /// Notes what came of it. `fields`: the content's, if nothing is known of it any more.
    pub fn finish(&self, id: u128, fields: &FieldBlock, coding: Coding, outcome: Outcome) {
        if let Outcome::Made(content, _) = &outcome {
            self.make_room((content.len() + 2 * fields.memory()) as u64 + BOOKKEEPING);
        }
        // Before the lock: this thread is one of low priority, and workers would wait for it there.
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
                entry.set(coding, Made::There(encoded, mark));
            }
            Outcome::NotWorth => {
                entry.is_worth = false;
                entry.set(coding, Made::Not);
            }
            Outcome::Failed => entry.set(coding, Made::Not),
        });
    }

    /// A content that is known has these field lines now, with `varying` for those to whom it varies.
    pub fn renew(&self, id: u128, fields: &FieldBlock, varying: &FieldBlock) {
        self.with(id, fields, |entry| {
            entry.fields = fields.clone();
            entry.varying = varying.clone();
            for made in &mut entry.codings {
                if let Made::There(old, mark) = made {
                    let content = old.content.clone();
                    *made = Made::There(encoded(fields, old.coding, content, *mark), *mark);
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

    /// Changes what is known of a content; a new entry is made with these field lines.
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

    /// Drops what is asked for least until the rest fits, with so many more bytes.
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
            // Only now: that frees memory.
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

    /// Whether these are its field lines. Those of the same content, had from elsewhere, are the same
    /// bytes in another place: remembered, so that next time they need not be compared.
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

    /// In the coding that is liked best of those that are there, while the best of all is made.
    #[inline]
    fn given(&self, accepted: &Accepted, order: &[Coding]) -> Looked {
        let best = accepted.best(order.iter().copied());
        if let Some(best) = best
            && let Made::There(encoded, _) = &self.codings[best as usize]
        {
            return Looked::Known(Choice::Coded(encoded.clone()), None);
        }
        let is_there = |coding: &Coding| matches!(self.codings[*coding as usize], Made::There(..));
        let second = accepted.best(order.iter().copied().filter(is_there));
        let choice = match second.map(|coding| &self.codings[coding as usize]) {
            Some(Made::There(encoded, _)) => Choice::Coded(encoded.clone()),
            _ => Choice::Varying(self.varying.clone()),
        };
        let is_to_be_made =
            |coding: &Coding| self.is_worth && matches!(self.codings[*coding as usize], Made::Not);
        Looked::Known(choice, best.filter(is_to_be_made))
    }

    fn set(&mut self, coding: Coding, made: Made) {
        self.codings[coding as usize] = made;
    }

    /// Bytes of memory that it takes.
    fn weight(&self) -> u64 {
        let coded = self.codings.iter().map(|made| match made {
            Made::There(coded, _) => {
                OF_CODED + (coded.fields.memory() + coded.content.len()) as u64
            }
            _ => 0,
        });
        BOOKKEEPING + (self.fields.memory() + self.varying.memory()) as u64 + coded.sum::<u64>()
    }
}

/// Content in a coding, of content with these field lines.
fn encoded(fields: &FieldBlock, coding: Coding, content: Bytes, mark: Mark) -> Arc<Encoded> {
    let (fields, etag) = lines::coded(fields, coding, mark);
    Arc::new(Encoded {
        coding,
        fields,
        etag,
        content,
    })
}
