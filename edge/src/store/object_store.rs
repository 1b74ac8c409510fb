//! The store of one cache: its table, ledger and volumes, shared by all workers.

use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

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
    /// Limit for the memory of heads, pages and bookkeeping together, in bytes.
    pub memory: u64,
    /// Size of the largest object that is stored, in bytes.
    pub max_object_size: u64,
    /// The eviction policy.
    pub evict: evict::Kind,
    /// Number of shards; a power of two.
    pub shards: usize,
    /// Size of the blocks that are evicted separately, in bytes; rounded up to whole pages.
    pub block: u64,
}

/// Memory charged for an object in addition to its pages, in bytes: its structure, its entry in the table, and its row in the eviction
/// policy.
pub(super) const OBJECT_OVERHEAD: u64 = 800;

/// Number of objects in use at which one call of `make_room` gives up searching for objects to evict.
const BUSY_MAX: usize = 4096;
/// Number of objects in use that one call of `make_room` may pass over for each object that it evicts, without counting them for
/// `BUSY_MAX`.
const BUSY_PER_EVICTION: usize = 16;
/// Replaces `BUSY_MAX` after a call of `make_room` that gave up: while everything is in use, calls must be cheap.
const BUSY_MAX_AGAIN: usize = 256;

#[cfg(test)]
thread_local! {
    /// Number of times that this thread has locked the shard of a key.
    pub static SHARD_LOCKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// All objects of one cache, shared by all workers.
pub struct Store {
    pub(super) shards: Box<[Mutex<Shard>]>,
    /// Chooses the shard of a key.
    sharding: foldhash::quality::RandomState,
    pub(super) ledger: Ledger,
    object_max: AtomicU64,
    block: AtomicU64,
    /// Source of the sequence numbers of flights and purges. A purge covers the flights with lower numbers.
    pub(super) sequence: Arc<AtomicU64>,
    pub(super) purges: Purges,
    next_flight: AtomicU64,
    /// Index of the shard in which `make_room` searches next for an object to evict.
    hand: AtomicUsize,
    evictions: AtomicU64,
    /// Age of the object or block that was evicted last, since its last use, in seconds.
    evicted_age_s: AtomicU32,
    /// The time in seconds with which uses are noted.
    now_s: Arc<AtomicU32>,
    /// Whether the last call of `make_room` gave up because it found nothing to evict.
    all_in_use: AtomicBool,
    pub(super) volumes: RwLock<Option<Arc<Volumes>>>,
    pub(super) volume_hits: AtomicU64,
    pub(super) volume_bytes: AtomicU64,
}

impl Store {
    /// Creates an empty store whose primary keys are opaque: purges can't match a part of them.
    #[cfg(test)]
    pub fn new(options: &Options) -> Arc<Store> {
        Store::build(options, None, Arc::new(AtomicU64::new(1)))
    }

    /// Creates an empty store for keys that `names` can parse. Flights and purges take their sequence numbers from `sequence`, which
    /// several stores share, so that one store can read from volumes what another one has written.
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
        let now_s = Arc::<AtomicU32>::default();
        let shard = |_| Mutex::new(Shard::new(options.evict.build(), now_s.clone()));
        Arc::new(Store {
            shards: (0..options.shards.max(1).next_power_of_two())
                .map(shard)
                .collect(),
            sharding: foldhash::quality::RandomState::default(),
            purges: Purges::new(&ledger, names),
            ledger,
            object_max: AtomicU64::new(options.max_object_size),
            block: AtomicU64::new(options.block),
            sequence,
            next_flight: AtomicU64::new(1),
            hand: AtomicUsize::new(0),
            evictions: AtomicU64::new(0),
            evicted_age_s: AtomicU32::new(0),
            now_s: now_s.clone(),
            all_in_use: AtomicBool::new(false),
            volumes: RwLock::new(None),
            volume_hits: AtomicU64::new(0),
            volume_bytes: AtomicU64::new(0),
        })
    }

    /// Sets the time with which uses are noted, in seconds since the start. Called about once per second, so that a hit does not read
    /// the clock.
    pub fn note_time(&self, now_s: u32) {
        self.now_s.store(now_s, Ordering::Relaxed);
    }

    /// Changes the memory limit, the largest object size and the block size. Objects that no longer fit are evicted.
    pub fn resize(&self, options: &Options) {
        self.object_max
            .store(options.max_object_size, Ordering::Relaxed);
        // Existing objects keep their block size: only new ones get this one.
        self.block.store(options.block, Ordering::Relaxed);
        self.ledger.set_limit(options.memory);
        // Evicts objects until the ledger is within its new limit, or nothing more can be evicted.
        drop(self.make_room(0));
    }

    /// Returns the size of the largest object that is stored, in bytes.
    pub(super) fn object_max(&self) -> u64 {
        self.object_max.load(Ordering::Relaxed)
    }

    /// Returns the block size that objects get when they are opened.
    pub(super) fn block(&self) -> Option<NonZeroU32> {
        let pages = self.block.load(Ordering::Relaxed).div_ceil(PAGE).max(1);
        NonZeroU32::new(pages.saturating_mul(PAGE).try_into().unwrap_or(1 << 31))
    }

    pub(super) fn next_flight_id(&self) -> u64 {
        self.next_flight.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `decide` while the shard of this primary key is locked, so that looking up, deciding and registering a flight are one critical
    /// section. `decide` must be short, and can't await.
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
        drop(removed); // frees pages, so it runs after unlocking
        for (table_key, object) in admitted {
            self.admit(table_key, &object);
        }
        result
    }

    /// Creates an object without a head. The caller inserts it into the table, and a landing fills it. Returns `None` if there is no room
    /// for another object.
    pub fn create(&self, key: &[u8]) -> Option<Arc<Object>> {
        let born_seq = self.sequence.fetch_add(1, Ordering::SeqCst);
        self.create_with(key, born_seq)
    }

    /// Creates an object for a flight that has begun already, with the flight's sequence number.
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

    /// Returns the weight of a new object in the eviction policy, in bytes.
    pub fn weight(&self, key: &[u8]) -> u64 {
        OBJECT_OVERHEAD + key.len() as u64
    }

    /// Removes an object from the table, if the table still has it. The object's readers can go on reading.
    pub fn withdraw(self: &Arc<Self>, table_key: TableKey, object: &Arc<Object>) {
        self.enter(table_key.primary, |locked| {
            locked.remove(table_key.variant, object);
            locked.remove(table_key.aside().variant, object);
        });
    }

    /// Returns the volumes of the cache; `None` if objects are stored in memory only.
    pub fn volumes(&self) -> Option<Arc<Volumes>> {
        self.volumes.read().clone()
    }

    /// Collects the numbers of this cache. The whole table is walked, a few objects per lock, so that no worker waits
    /// for long.
    pub fn numbers(&self) -> CacheNumbers {
        const BATCH: usize = 1024;
        let mut numbers = self.quick_numbers();
        let mut idle = 0;
        for shard in &self.shards {
            let surveys = (0..).step_by(BATCH);
            for (bytes, flights) in
                surveys.map_while(|from| shard.lock().survey(from..from + BATCH))
            {
                idle += bytes;
                numbers.flights += flights;
            }
        }
        let unpinned = idle + self.rules_bytes();
        numbers.pinned = numbers.bytes.saturating_sub(unpinned);
        numbers
    }

    /// Returns the numbers that take no pass over all objects: all except `pinned` and `flights`.
    pub fn quick_numbers(&self) -> CacheNumbers {
        let objects = self.shards.iter().map(|shard| shard.lock().len() as u64);
        CacheNumbers {
            objects: objects.sum(),
            bytes: self.ledger.used(),
            limit: self.ledger.limit(),
            evicted: self.evictions.load(Ordering::Relaxed),
            evicted_age_seconds: u64::from(self.evicted_age_s.load(Ordering::Relaxed)),
            purges: self.rules() as u64,
            volume_hits: self.volume_hits.load(Ordering::Relaxed),
            volume_bytes: self.volume_bytes.load(Ordering::Relaxed),
            ..CacheNumbers::default()
        }
    }

    /// Charges the memory of a head to the ledger, and evicts objects if necessary. Returns `None` if there is no room.
    pub fn charge_head(&self, bytes: u64) -> Option<Charge> {
        self.make_room(bytes)
    }

    /// Returns the shard of a primary key, to be locked.
    pub(super) fn shard(&self, primary: u128) -> &Mutex<Shard> {
        #[cfg(test)]
        SHARD_LOCKS.with(|locks| locks.set(locks.get() + 1));
        // Clients choose the keys, so the shard is chosen with a secret of the process. Otherwise a client could fill one shard and
        // slow all requests whose objects are in that shard.
        let at = self.sharding.hash_one(primary) as usize & (self.shards.len() - 1);
        &self.shards[at]
    }

    /// Reports to the eviction policy that an object, or one of its blocks, takes this many bytes more or fewer.
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

    /// Whether the table has this object under this key.
    pub fn holds(&self, table_key: TableKey, object: &Arc<Object>) -> bool {
        self.shard(table_key.primary)
            .lock()
            .holds(table_key, object)
    }

    /// Charges `bytes` to the ledger, and evicts the least useful objects and blocks as far as necessary.
    pub(super) fn make_room(&self, bytes: u64) -> Option<Charge> {
        if bytes > self.ledger.limit() {
            return None;
        }
        let most = match self.all_in_use.load(Ordering::Relaxed) {
            true => BUSY_MAX_AGAIN,
            false => BUSY_MAX,
        };
        let (mut busy, mut empty, mut there) = (0_usize, 0, 0);
        loop {
            if let Some(charge) = self.ledger.try_charge(bytes) {
                return Some(charge);
            }
            let at = self.hand.fetch_add(1, Ordering::Relaxed) & (self.shards.len() - 1);
            // Dropping an evicted object frees its pages, so it is dropped after the shard is unlocked.
            let victim = self.shards[at].lock().evict();
            match victim {
                Some(evicted @ (Evicted::Object(..) | Evicted::Block(..))) => {
                    if let Evicted::Object(object, _) = &evicted {
                        object.note_use();
                    }
                    self.evicted_age_s.store(evicted.age_s(), Ordering::Relaxed);
                    self.evictions.fetch_add(1, Ordering::Relaxed);
                    self.all_in_use.store(false, Ordering::Relaxed);
                    empty = 0;
                    busy = busy.saturating_sub(BUSY_PER_EVICTION);
                }
                Some(Evicted::InUse(ids)) => {
                    busy += 1;
                    empty = 0;
                    there = ids.max(there);
                }
                None => empty += 1,
            }
            // Eviction policies do not go strictly by age and may return one object twice before another one once. Only after twice the
            // number of objects has every one been tried.
            let all = 2 * there * self.shards.len();
            if busy > most.min(all) || empty > self.shards.len() {
                // Records that wait to be written to volumes hold memory too, and are given up before the call fails.
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
