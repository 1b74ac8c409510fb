//! The table of compressed contents: which encodings of each content exist, and which are queued.
//! The table has shards, each with a lock that is held for a single lookup. One limit of bytes
//! applies to all shards together.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use slab::Slab;
use smallvec::SmallVec;

use super::lines::{self, Mark};
use crate::evict::{self, Policy};
use crate::handler::{Choice, Encoded};
use crate::http::FieldBlock;
use crate::http::coding::{Accepted, Coding};

/// Number of shards, large enough that two workers seldom need the lock of one shard at once.
const SHARDS: usize = 16;

/// Estimated bytes of memory of an entry apart from its header lines and contents: its slots in the
/// map, the slab and the eviction policy.
const BOOKKEEPING: u64 = 384;
/// Estimated bytes of memory of a compressed form apart from its header lines and content.
const FORM_OVERHEAD: u64 = 128;

pub(super) struct Table {
    shards: Box<[Mutex<Shard>]>,
    hasher: foldhash::fast::RandomState,
    /// Number of bytes of memory that all entries take.
    bytes: AtomicU64,
    limit: u64,
    /// Index of the shard that evicts next. Shards evict in turn, since entries are evenly
    /// distributed over them.
    next: AtomicUsize,
    evicted: AtomicU64,
}

struct Shard {
    ids: HashMap<u128, u32, foldhash::fast::RandomState>,
    entries: Slab<Entry>,
    policy: Box<dyn Policy + Send>,
}

/// One content in the table, with its compressed forms.
struct Entry {
    id: u128,
    /// Header lines of the uncompressed content at its last lookup.
    fields: FieldBlock,
    /// The header lines in `fields` with Accept-Encoding added to Vary.
    varying: FieldBlock,
    /// Whether compression may shorten the content; `false` after an attempt that did not.
    is_worth: bool,
    /// State of each encoding of the content.
    codings: [Form; 3],
}

#[derive(Default)]
enum Form {
    #[default]
    Missing,
    /// A client wanted this encoding while the content was incomplete.
    Wanted,
    /// A compression job for this encoding is queued or running.
    Queued(Urgency),
    Made(Arc<Encoded>, Mark),
}

/// The order in which compression jobs are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// The content was requested only while it was being fetched.
    First,
    /// The content was requested when it was complete. The job is run before those of `First`.
    Again,
}

impl Form {
    /// Whether a request for the complete content has to queue a job for this encoding.
    #[inline]
    fn is_to_be_made(&self) -> bool {
        !matches!(self, Form::Queued(Urgency::Again) | Form::Made(..))
    }
}

/// Result of looking up a content for a client.
pub(super) enum Lookup {
    /// The content is in the table with these header lines. The form to send, and the encoding to
    /// make for later requests, if one is missing.
    Known(Choice, Option<Coding>),
    /// The content is in the table, but with other header lines.
    OtherFields,
    Unknown,
}

/// Result of a compression job.
#[derive(Debug)]
pub(super) enum Outcome {
    Made(Bytes, Mark),
    /// The compressed form is not short enough, or no codec supports the content. The content is
    /// never compressed again.
    NotWorth,
    /// The job failed; a later request may queue another job for the content.
    Failed,
}

/// Memory use and counters of the table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TableUse {
    pub contents: u64,
    pub bytes: u64,
    pub evicted: u64,
}

impl Table {
    /// Creates a table whose entries take at most `limit` bytes.
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

    /// Chooses the form of a content to send to a client. `fields` are the content's header lines,
    /// `accepted` the encodings that the client accepts, and `order` the encodings that can be
    /// made.
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

    /// Marks an encoding of a content as queued. Returns whether the caller must put a job for it
    /// into the queue, or put it there again as a more urgent one.
    pub fn mark_queued(
        &self,
        id: u128,
        fields: &FieldBlock,
        coding: Coding,
        urgency: Urgency,
    ) -> bool {
        self.with(id, fields, |entry| {
            let made = &mut entry.codings[coding as usize];
            let is_to_be_put = entry.is_worth
                && match made {
                    Form::Missing | Form::Wanted => true,
                    Form::Queued(Urgency::First) => urgency == Urgency::Again,
                    Form::Queued(Urgency::Again) | Form::Made(..) => false,
                };
            if is_to_be_put {
                *made = Form::Queued(urgency);
            }
            is_to_be_put
        })
    }

    /// Marks an encoding of an incomplete content as wanted.
    pub fn mark_wanted(&self, id: u128, fields: &FieldBlock, coding: Coding) {
        self.with(id, fields, |entry| {
            let made = &mut entry.codings[coding as usize];
            if matches!(made, Form::Missing) {
                *made = Form::Wanted;
            }
        });
    }

    /// Returns the encodings of a content that are marked as wanted.
    pub fn wanted(&self, id: u128, order: &[Coding]) -> SmallVec<[Coding; 3]> {
        let shard = &*self.shard(id).lock();
        let at = shard.ids.get(&id).map(|at| *at as usize);
        let Some(entry) = at.and_then(|at| shard.entries.get(at)) else {
            return SmallVec::new();
        };
        let is_wanted = |coding: &Coding| matches!(entry.codings[*coding as usize], Form::Wanted);
        order.iter().copied().filter(is_wanted).collect()
    }

    /// Marks an encoding whose job begins to run. No request makes the job more urgent from now on,
    /// and so none puts it into the queue again just before its result is stored.
    pub fn mark_running(&self, id: u128, coding: Coding) {
        self.with_known(id, |entry| {
            let made = &mut entry.codings[coding as usize];
            if matches!(made, Form::Queued(_)) {
                *made = Form::Queued(Urgency::Again);
            }
        });
    }

    /// Removes the mark of [`Table::mark_queued`] after the job could not be queued.
    pub fn unmark_queued(&self, id: u128, coding: Coding) {
        self.with_known(id, |entry| entry.set(coding, Form::Missing));
    }

    /// Changes the entry of a content, if there is one.
    fn with_known(&self, id: u128, change: impl FnOnce(&mut Entry)) {
        let shard = &mut *self.shard(id).lock();
        let at = shard.ids.get(&id).map(|at| *at as usize);
        if let Some(entry) = at.and_then(|at| shard.entries.get_mut(at)) {
            change(entry);
        }
    }

    /// Stores the result of a job. `fields` are the content's header lines, used for a new entry if
    /// the content's entry was evicted while the job ran.
    pub fn finish(&self, id: u128, fields: &FieldBlock, coding: Coding, outcome: Outcome) {
        if let Outcome::Made(content, _) = &outcome {
            self.make_room((content.len() + 2 * fields.memory()) as u64 + BOOKKEEPING);
        }
        // The compressed form is built before the lock is taken: this thread has a low priority,
        // and workers would wait for the lock meanwhile.
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
                entry.set(coding, Form::Made(encoded, mark));
            }
            Outcome::NotWorth => {
                entry.is_worth = false;
                entry.set(coding, Form::Missing);
            }
            Outcome::Failed => entry.set(coding, Form::Missing),
        });
    }

    /// Replaces the header lines of a content in the table. `varying` are the new lines with
    /// Accept-Encoding in Vary.
    pub fn renew(&self, id: u128, fields: &FieldBlock, varying: &FieldBlock) {
        self.with(id, fields, |entry| {
            entry.fields = fields.clone();
            entry.varying = varying.clone();
            for made in &mut entry.codings {
                if let Form::Made(old, mark) = made {
                    let content = old.content.clone();
                    *made = Form::Made(encoded(fields, old.coding, content, *mark), *mark);
                }
            }
        });
    }

    /// Whether the result of a job for this content is still to be stored. The request does not count
    /// as a use of the content.
    #[cfg(test)]
    pub fn is_queued(&self, id: u128) -> bool {
        let shard = &*self.shard(id).lock();
        let at = shard.ids.get(&id).map(|at| *at as usize);
        let is_queued = |form: &Form| matches!(form, Form::Queued(_));
        at.and_then(|at| shard.entries.get(at))
            .is_some_and(|entry| entry.codings.iter().any(is_queued))
    }

    pub fn held(&self) -> TableUse {
        let contents = self.shards.iter().map(|shard| shard.lock().entries.len());
        TableUse {
            contents: contents.sum::<usize>() as u64,
            bytes: self.bytes.load(Ordering::Relaxed),
            evicted: self.evicted.load(Ordering::Relaxed),
        }
    }

    /// Calls `change` with the entry of a content. If there is none, an entry with these header
    /// lines is created.
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

    /// Evicts contents until `more` additional bytes fit within the limit.
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
            // Freeing the evicted contents may take long, so the lock is released before.
            drop(gone);
        }
    }

    fn shard(&self, id: u128) -> &Mutex<Shard> {
        // The shard is selected by the hash's high bits, because the map inside a shard uses the
        // low bits.
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

    /// Whether the content's header lines equal `fields`. Equal lines at another address replace
    /// the remembered ones, so that the next comparison only compares addresses.
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

    /// Chooses the best encoding that exists and that the client accepts, and the best encoding to
    /// make.
    #[inline]
    fn given(&self, accepted: &Accepted, order: &[Coding]) -> Lookup {
        let best = accepted.best(order.iter().copied());
        if let Some(best) = best
            && let Form::Made(encoded, _) = &self.codings[best as usize]
        {
            return Lookup::Known(Choice::Coded(encoded.clone()), None);
        }
        let is_there = |coding: &Coding| matches!(self.codings[*coding as usize], Form::Made(..));
        let second = accepted.best(order.iter().copied().filter(is_there));
        let choice = match second.map(|coding| &self.codings[coding as usize]) {
            Some(Form::Made(encoded, _)) => Choice::Coded(encoded.clone()),
            _ => Choice::Varying(self.varying.clone()),
        };
        let is_to_be_made =
            |coding: &Coding| self.is_worth && self.codings[*coding as usize].is_to_be_made();
        Lookup::Known(choice, best.filter(is_to_be_made))
    }

    fn set(&mut self, coding: Coding, made: Form) {
        self.codings[coding as usize] = made;
    }

    /// Returns the number of bytes of memory that the entry counts for.
    fn weight(&self) -> u64 {
        let coded = self.codings.iter().map(|made| match made {
            Form::Made(coded, _) => {
                FORM_OVERHEAD + (coded.fields.memory() + coded.content.len()) as u64
            }
            _ => 0,
        });
        BOOKKEEPING + (self.fields.memory() + self.varying.memory()) as u64 + coded.sum::<u64>()
    }
}

/// Builds the compressed form of a content whose uncompressed form has these header lines.
fn encoded(fields: &FieldBlock, coding: Coding, content: Bytes, mark: Mark) -> Arc<Encoded> {
    let (fields, etag) = lines::coded(fields, coding, mark);
    Arc::new(Encoded {
        coding,
        fields,
        etag,
        content,
    })
}
