//! The store of one cache: its table, ledger and volumes, shared by all workers.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use smallvec::SmallVec;

use super::disk_tier::volumes::Volumes;
use super::ledger::{Charge, Ledger};
use super::locked::Locked;
use super::object::Object;
use super::page::PAGE;
use super::purges::births::Birth;
use super::purges::rules::{Names, Purges};
use super::sync::{Mutex, RwLock};
use super::table::{Evicted, Shard};
use super::table_key::TableKey;
use crate::evict;
use crate::telemetry::CacheNumbers;

/// The options of a store.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Bytes for heads, pages and bookkeeping together.
    pub memory: u64,
    /// Size of the largest object that is stored, in bytes.
    pub object: u64,
    /// The eviction policy.
    pub evict: evict::Kind,
    /// Number of shards; a power of two.
    pub shards: usize,
    /// Unit in which bytes of sparse objects are evicted, in bytes; rounded up to whole pages.
    pub block: u64,
}

/// Bytes charged for an object in addition to its pages: its structure, table entry, and slot in
/// the policy.
pub(super) const OBJECT_OVERHEAD: u64 = 800;

/// Objects in use that one call for room tries to evict before it gives up.
const BUSY_MAX: usize = 4096;
/// For each evicted object, this many objects in use are not counted.
const BUSY_EACH: usize = 16;
/// The same as `BUSY_MAX`, if the previous call gave up: while everything is in use, calls must be
/// cheap.
const BUSY_STILL: usize = 256;

#[cfg(test)]
thread_local! {
    /// How often this thread locked the shard of a key.
    pub static SHARD_LOCKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// All objects of one cache, shared by all workers.
pub struct Store {
    pub(super) shards: Box<[Mutex<Shard>]>,
    pub(super) ledger: Ledger,
    object_max: AtomicU64,
    block: AtomicU64,
    /// Numbers flights and purges: a purge covers what began before it.
    pub(super) sequence: Arc<AtomicU64>,
    pub(super) purges: Purges,
    next_flight: AtomicU64,
    /// The shard in which the next victim is sought.
    hand: AtomicUsize,
    evictions: AtomicU64,
    /// Whether the last search for a victim found none.
    all_in_use: AtomicBool,
    pub(super) volumes: RwLock<Option<Arc<Volumes>>>,
    pub(super) volume_hits: AtomicU64,
    pub(super) volume_bytes: AtomicU64,
}

impl Store {
    /// An empty store whose keys have no structure.
    #[cfg(test)]
    pub fn new(options: &Options) -> Arc<Store> {
        Store::build(options, None, Arc::new(AtomicU64::new(1)))
    }

    /// An empty store for keys that `names` can read. Fetches and purges take their numbers from
    /// `sequence`, which several stores share: a store can use what another one has written to
    /// volumes.
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

    /// Changes the sizes; objects that no longer fit are evicted.
    pub fn resize(&self, options: &Options) {
        self.object_max.store(options.object, Ordering::Relaxed);
        // Existing objects keep their block size.
        self.block.store(options.block, Ordering::Relaxed);
        self.ledger.set_limit(options.memory);
        // Evicts while the ledger is over its limit and anything can be evicted.
        drop(self.make_room(0));
    }

    /// The largest object kept, in bytes.
    pub fn object_max(&self) -> u64 {
        self.object_max.load(Ordering::Relaxed)
    }

    /// The block size of objects that are opened now.
    pub(super) fn block(&self) -> Option<NonZeroU32> {
        let pages = self.block.load(Ordering::Relaxed).div_ceil(PAGE).max(1);
        NonZeroU32::new(pages.saturating_mul(PAGE).try_into().unwrap_or(1 << 31))
    }

    pub(super) fn next_flight_id(&self) -> u64 {
        self.next_flight.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `decide` with this primary key's shard locked, to look up, decide and register. It must
    /// be short, and can't await.
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

    /// Creates an object without a head, to be inserted into the table and filled by a landing.
    /// `None` if there is no room for another object.
    pub fn create(&self, key: &[u8]) -> Option<Arc<Object>> {
        let born_seq = self.sequence.fetch_add(1, Ordering::SeqCst);
        self.create_with(key, born_seq)
    }

    /// Creates an object for a fetch that has begun already.
    pub(super) fn create_at(&self, key: &[u8], birth: Birth) -> Option<Arc<Object>> {
        let object = self.create_with(key, birth.seq)?;
        object.lock().birth = Some(birth);
        Some(object)
    }

    pub(super) fn create_with(&self, key: &[u8], born_seq: u64) -> Option<Arc<Object>> {
        let overhead = self.make_room(OBJECT_OVERHEAD + key.len() as u64)?;
        let key = Bytes::copy_from_slice(key);
        Some(Arc::new(Object::new(key, born_seq, overhead)))
    }

    /// The weight of a new object for the eviction policy.
    pub fn weight(&self, key: &[u8]) -> u64 {
        OBJECT_OVERHEAD + key.len() as u64
    }

    /// Removes an object from the table, if it is still there. Its readers continue.
    pub fn withdraw(self: &Arc<Self>, table_key: TableKey, object: &Arc<Object>) {
        self.enter(table_key.primary, |locked| {
            locked.remove(table_key.variant, object)
        });
    }

    /// Replaces `old` by `new`, if `old` is still in the table, and retires `old` in any case: no
    /// further flight begins for it. Without a `new`, `old` stays in the table until another object
    /// replaces it, and the resource history with it. Returns whether `old` was in the table.
    pub fn supersede(
        self: &Arc<Self>,
        table_key: TableKey,
        old: &Arc<Object>,
        new: Option<Arc<Object>>,
    ) -> bool {
        // Twice: before, so that no request restores the old head from volumes; and afterwards, for
        // a head that was just being written.
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

    /// The volumes of the cache; `None` if objects are in memory only.
    pub fn volumes(&self) -> Option<Arc<Volumes>> {
        self.volumes.read().clone()
    }

    /// The limit of the ledger in bytes.
    pub fn limit(&self) -> u64 {
        self.ledger.limit()
    }

    /// The numbers of this cache. Walks the whole table, a few objects at a time, so that no
    /// worker waits for long.
    pub fn numbers(&self) -> CacheNumbers {
        const AT_A_TIME: usize = 1024;
        let mut numbers = CacheNumbers {
            bytes: self.ledger.used(),
            limit: self.ledger.limit(),
            evicted: self.evictions.load(Ordering::Relaxed),
            purges: self.rules() as u64,
            volume_hits: self.volume_hits.load(Ordering::Relaxed),
            volume_bytes: self.volume_bytes.load(Ordering::Relaxed),
            ..CacheNumbers::default()
        };
        let mut idle = 0;
        for shard in &self.shards {
            numbers.objects += shard.lock().len() as u64;
            let surveys = (0..).step_by(AT_A_TIME);
            for (bytes, flights) in
                surveys.map_while(|from| shard.lock().survey(from..from + AT_A_TIME))
            {
                idle += bytes;
                numbers.flights += flights;
            }
        }
        numbers.pinned = numbers.bytes.saturating_sub(idle);
        numbers
    }

    /// Charges the memory of a head.
    pub fn charge_head(&self, bytes: u64) -> Option<Charge> {
        self.make_room(bytes)
    }

    /// The shard of a key, to be locked.
    pub(super) fn shard(&self, primary: u128) -> &Mutex<Shard> {
        #[cfg(test)]
        SHARD_LOCKS.with(|locks| locks.set(locks.get() + 1));
        // The map in a shard uses the low bits.
        let at = (primary >> 96) as usize & (self.shards.len() - 1);
        &self.shards[at]
    }

    /// Tells the eviction policy that an object, or one of its blocks, takes this many bytes more
    /// or fewer.
    pub(super) fn weigh(
        &self,
        table_key: TableKey,
        object: &Arc<Object>,
        block: Option<Range<u64>>,
        by: i64,
    ) {
        let mut shard = self.shard(table_key.primary).lock();
        shard.weigh(table_key, object, block, by);
    }

    pub(super) fn holds(&self, table_key: TableKey, object: &Arc<Object>) -> bool {
        self.shard(table_key.primary)
            .lock()
            .holds(table_key, object)
    }

    /// Charges `bytes`, and evicts the least useful objects and blocks as far as necessary.
    pub(super) fn make_room(&self, bytes: u64) -> Option<Charge> {
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
            // Dropped after unlocking the shard: that frees pages.
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
            // Policies do not go strictly by age: some objects are tried twice before others once.
            let all = 2 * there * self.shards.len();
            if busy > most.min(all) || empty > self.shards.len() {
                // Records that wait to be written hold memory, too, and are the first to be given
                // up.
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
