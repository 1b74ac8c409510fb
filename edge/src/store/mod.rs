//! Objects in memory: the table that owns them, their bytes, and the ledger that bounds them.

mod blocks;
mod claims;
pub mod disk_tier;
mod head;
mod landing;
mod ledger;
mod locked;
mod object;
mod page;
mod pages;
mod pass_through;
mod purges;
mod reader;
mod revalidation;
mod slots;
mod snapshot;
mod sync;
mod table;

#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use smallvec::SmallVec;

pub use claims::{CLAIMS_MAX, Claim, NotOurs, Seen};
pub use head::{Head, Selected, VaryNames};
pub use landing::{Landing, Progress};
pub use ledger::{Charge, Ledger};
pub use locked::{Locked, ResourceHistory};
pub use object::{Abandoned, Failure, Object, Phase};
pub use page::PAGE;
pub use pass_through::WINDOW;
pub use purges::{Full, Names, RULES_MAX, Rule, Swept, TEXT_MAX};
pub use reader::{Next, Opening, Reader};
pub use revalidation::Revalidated;
pub use snapshot::{Decision, ObjectSnapshot};
pub use table::{TableKey, VARIANTS_MAX};

use crate::evict;
use purges::{Birth, Purges};
use sync::{Mutex, RwLock};
use table::{Evicted, Shard};

/// How a store is laid out.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Bytes that heads, pages and bookkeeping may take together.
    pub memory: u64,
    /// Largest object kept, in bytes.
    pub object: u64,
    /// What is dropped first.
    pub evict: evict::Kind,
    /// Locks that workers spread over; a power of two.
    pub shards: usize,
    /// The unit in which bytes of sparse objects are evicted, in bytes; rounded up to whole pages.
    pub block: u64,
}

/// What an object takes beside its pages: its own structure, table entry, policy's bookkeeping.
const OBJECT_OVERHEAD: u64 = 800;

/// Busy objects met before one call for room gives up, where there are so many.
const BUSY_MAX: usize = 4096;
/// So many of them for each victim don't count.
const BUSY_EACH: usize = 16;
/// As many as `BUSY_MAX`, where the call before gave up: while all is in use, calls must be cheap.
const BUSY_STILL: usize = 256;

#[cfg(test)]
thread_local! {
    /// How often this thread locked the shard of a key.
    pub static SHARD_LOCKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// All objects of one cache, shared by all workers.
pub struct Store {
    shards: Box<[Mutex<Shard>]>,
    ledger: Ledger,
    object_max: AtomicU64,
    block: AtomicU64,
    /// Counts flights and purges: what began before a purge is covered by it.
    sequence: Arc<AtomicU64>,
    purges: Purges,
    next_flight: AtomicU64,
    /// Where the next victim is sought.
    hand: AtomicUsize,
    evictions: AtomicU64,
    /// The last that sought a victim found none.
    all_in_use: AtomicBool,
    volumes: RwLock<Option<Arc<disk_tier::Volumes>>>,
    volume_hits: AtomicU64,
    volume_bytes: AtomicU64,
}

/// Numbers for the status page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Objects in the table.
    pub objects: u64,
    /// Objects that a flight is filling.
    pub flights: u64,
    /// Bytes charged, those pinned by readers included.
    pub bytes: u64,
    /// Those of them that flights and readers hold.
    pub pinned: u64,
    /// The limit.
    pub limit: u64,
    /// Objects and blocks dropped to make room.
    pub evictions: u64,
    /// Heads and blocks that volumes had.
    pub volume_hits: u64,
    /// Bytes read from volumes.
    pub volume_bytes: u64,
}

impl Store {
    /// An empty store, whose keys are but texts to it.
    pub fn new(options: &Options) -> Arc<Store> {
        Store::build(options, None, Arc::new(AtomicU64::new(1)))
    }

    /// An empty store for keys that `names` can read. Its numbers for fetches and purges are from a
    /// sequence that other stores take theirs from, too: what one has kept on volumes, another finds.
    pub fn named(
        options: &Options,
        names: &'static dyn Names,
        sequence: Arc<AtomicU64>,
    ) -> Arc<Store> {
        Store::build(options, Some(names), sequence)
    }

    fn build(
        options: &Options,
        names: Option<&'static dyn Names>,
        sequence: Arc<AtomicU64>,
    ) -> Arc<Store> {
        let ledger = Ledger::new(options.memory);
        let shard = |_| Mutex::new(Shard::new(options.evict.build()));
        Arc::new(Store {
            shards: (0..options.shards.max(1).next_power_of_two())
                .map(shard)
                .collect(),
            purges: Purges::new(&ledger, names),
            ledger,
            object_max: AtomicU64::new(options.object),
            block: AtomicU64::new(options.block),
            sequence,
            next_flight: AtomicU64::new(1),
            hand: AtomicUsize::new(0),
            evictions: AtomicU64::new(0),
            all_in_use: AtomicBool::new(false),
            volumes: RwLock::new(None),
            volume_hits: AtomicU64::new(0),
            volume_bytes: AtomicU64::new(0),
        })
    }

    /// Takes up other sizes; what no longer fits is evicted.
    pub fn resize(&self, options: &Options) {
        self.object_max.store(options.object, Ordering::Relaxed);
        // Objects that are there keep theirs.
        self.block.store(options.block, Ordering::Relaxed);
        self.ledger.set_limit(options.memory);
        // Room for nothing: evicts for as long as too much is there, and can be.
        drop(self.make_room(0));
    }

    /// The largest object kept, in bytes.
    pub fn object_max(&self) -> u64 {
        self.object_max.load(Ordering::Relaxed)
    }

    /// The block of objects that are opened now.
    fn block(&self) -> Option<NonZeroU32> {
        let pages = self.block.load(Ordering::Relaxed).div_ceil(PAGE).max(1);
        NonZeroU32::new(pages.saturating_mul(PAGE).try_into().unwrap_or(1 << 31))
    }

    fn next_flight_id(&self) -> u64 {
        self.next_flight.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `decide` with this primary key's shard locked: look up, decide, register. It must be
    /// short, and can't await.
    #[inline]
    pub fn enter<R>(
        self: &Arc<Self>,
        primary: u128,
        decide: impl FnOnce(&mut Locked<'_>) -> R,
    ) -> R {
        let mut shard = self.shard(primary).lock();
        let mut locked = Locked {
            shard: &mut shard,
            primary,
            purges: &self.purges,
            removed: SmallVec::new(),
            admitted: SmallVec::new(),
        };
        let result = decide(&mut locked);
        let Locked {
            removed, admitted, ..
        } = locked;
        if !removed.is_empty() {
            shard.prune(primary);
        }
        drop(shard);
        drop(removed); // frees pages: after the lock
        for (table_key, object) in admitted {
            self.admit(table_key, &object);
        }
        result
    }

    /// A new object without a head, to be filed in the table and filled by the landing. `None`:
    /// there is no room for another object.
    pub fn create(&self, key: &[u8]) -> Option<Arc<Object>> {
        let born_seq = self.sequence.fetch_add(1, Ordering::SeqCst);
        self.create_with(key, born_seq)
    }

    /// The same for what is being fetched already, since this birth.
    fn create_at(&self, key: &[u8], birth: Birth) -> Option<Arc<Object>> {
        let object = self.create_with(key, birth.seq)?;
        object.lock().birth = Some(birth);
        Some(object)
    }

    fn create_with(&self, key: &[u8], born_seq: u64) -> Option<Arc<Object>> {
        let overhead = self.make_room(OBJECT_OVERHEAD + key.len() as u64)?;
        let key = Bytes::copy_from_slice(key);
        Some(Arc::new(Object::new(key, born_seq, overhead)))
    }

    /// What a new object weighs.
    pub fn weight(&self, key: &[u8]) -> u64 {
        OBJECT_OVERHEAD + key.len() as u64
    }

    /// Takes an object out of the table, if it is still there. Its readers go on.
    pub fn withdraw(self: &Arc<Self>, table_key: TableKey, object: &Arc<Object>) {
        self.enter(table_key.primary, |locked| {
            locked.remove(table_key.variant, object)
        });
    }

    /// Puts `new` in the place of `old`, if that is still in the table. In any case nothing more is
    /// begun for `old`: it is retired. Without a `new` it stays where it is until another object
    /// takes its place, and so does what is known of its key. Returns whether it was in the table.
    pub fn supersede(
        self: &Arc<Self>,
        table_key: TableKey,
        old: &Arc<Object>,
        new: Option<Arc<Object>>,
    ) -> bool {
        // Before, so that nobody restores what volumes have of it; and behind, for what was just being
        // written.
        self.forget_head(table_key);
        let was = self.enter(table_key.primary, |locked| {
            let was = locked.holds(table_key.variant, old);
            if let Some(new) = new.filter(|_| was) {
                let weight = self.weight(&new.key);
                locked.insert(table_key.variant, new, weight);
            }
            was
        });
        old.retire();
        if was {
            self.forget_head(table_key);
        }
        was
    }

    /// The volumes that objects are kept on, where there are any.
    pub fn volumes(&self) -> Option<Arc<disk_tier::Volumes>> {
        self.volumes.read().clone()
    }

    /// Bytes that it may take in all.
    pub fn limit(&self) -> u64 {
        self.ledger.limit()
    }

    /// Numbers for the status page. Walks the whole table, a few objects at a time: no worker waits
    /// for it longer than that takes.
    pub fn status(&self) -> Status {
        const AT_A_TIME: usize = 1024;
        let mut status = Status {
            bytes: self.ledger.used(),
            limit: self.ledger.limit(),
            evictions: self.evictions.load(Ordering::Relaxed),
            volume_hits: self.volume_hits.load(Ordering::Relaxed),
            volume_bytes: self.volume_bytes.load(Ordering::Relaxed),
            ..Status::default()
        };
        let mut idle = 0;
        for shard in &self.shards {
            status.objects += shard.lock().len() as u64;
            let surveys = (0..).step_by(AT_A_TIME);
            for (bytes, flights) in
                surveys.map_while(|from| shard.lock().survey(from..from + AT_A_TIME))
            {
                idle += bytes;
                status.flights += flights;
            }
        }
        status.pinned = status.bytes.saturating_sub(idle);
        status
    }

    /// Charges the head of an object, which it keeps.
    pub fn charge_head(&self, bytes: u64) -> Option<Charge> {
        self.make_room(bytes)
    }

    /// The shard of a key, to be locked.
    fn shard(&self, primary: u128) -> &Mutex<Shard> {
        #[cfg(test)]
        SHARD_LOCKS.with(|locks| locks.set(locks.get() + 1));
        // The map inside a shard uses the low bits.
        let at = (primary >> 96) as usize & (self.shards.len() - 1);
        &self.shards[at]
    }

    /// Tells the eviction policy that an object takes so many bytes more, or fewer: in a block, or
    /// as a whole.
    fn weigh(&self, table_key: TableKey, object: &Arc<Object>, block: Option<Range<u64>>, by: i64) {
        let mut shard = self.shard(table_key.primary).lock();
        shard.weigh(table_key, object, block, by);
    }

    fn holds(&self, table_key: TableKey, object: &Arc<Object>) -> bool {
        self.shard(table_key.primary)
            .lock()
            .holds(table_key, object)
    }

    /// Charges `bytes`, dropping the least useful objects and blocks as far as that takes.
    fn make_room(&self, bytes: u64) -> Option<Charge> {
        if bytes > self.ledger.limit() {
            return None;
        }
        let most = match self.all_in_use.load(Ordering::Relaxed) {
            true => BUSY_STILL,
            false => BUSY_MAX,
        };
        let (mut busy, mut empty, mut there) = (0_usize, 0, 0);
        loop {
            if let Some(charge) = self.ledger.try_charge(bytes) {
                return Some(charge);
            }
            let at = self.hand.fetch_add(1, Ordering::Relaxed) & (self.shards.len() - 1);
            // Dropped after the shard's lock: that frees pages.
            let victim = self.shards[at].lock().evict();
            match victim {
                Some(evicted @ (Evicted::Object(_) | Evicted::Block(_))) => {
                    if let Evicted::Object(object) = &evicted {
                        object.note_use();
                    }
                    self.evictions.fetch_add(1, Ordering::Relaxed);
                    self.all_in_use.store(false, Ordering::Relaxed);
                    empty = 0;
                    busy = busy.saturating_sub(BUSY_EACH);
                }
                Some(Evicted::InUse(ids)) => {
                    busy += 1;
                    empty = 0;
                    there = ids.max(there);
                }
                None => empty += 1,
            }
            // Some come up twice before all have: the policies go by more than age.
            let all = 2 * there * self.shards.len();
            if busy > most.min(all) || empty > self.shards.len() {
                // What waits for a disk holds memory, too, and is the first that is done without.
                if self.shed_writes(bytes) {
                    (busy, empty) = (0, 0);
                    continue;
                }
                self.all_in_use.store(true, Ordering::Relaxed);
                return None;
            }
        }
    }
}
