//! The in-memory index of a volume: the location of each record. The index takes 24 bytes per record, one byte of hash table, and the
//! table's free space.

mod entry;
mod table;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foldhash::HashSet;
use foldhash::fast::RandomState;
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;

pub use entry::{Key, RecordLocation, Use};

use super::types::{Found, Id, Kind};
#[cfg(test)]
use entry::UNIT;
use entry::{Entry, Packed};
use table::Table;

/// Maximum number of segments that an index can represent.
pub const SEGMENTS_MAX: usize = 1 << 16;

/// Number of shards, each with its own lock and table. A table that grows takes twice its memory and blocks lookups meanwhile, so there are
/// many small tables.
const SHARDS: usize = 1024;

/// Number of classes of entries: one for each of the first caches, and the last one for all other caches. Entries of the last class are
/// never dropped as inactive.
const CLASSES: usize = 16;

/// Maximum number of lost records that are remembered. If there are more, every record is treated as possibly lost.
const LOST_MAX: usize = 1 << 14;

/// Number of buckets that a sweep checks while a shard is locked.
const SWEPT_AT_ONCE: usize = 256;

/// One shard, aligned to its own cache line, so that one core's lock does not slow another core.
#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<Table>);

/// The position of the sweep for inactive records.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    shard: usize,
    bucket: usize,
}

/// Returns the shard of a hash. The first shards get half as many entries as the last ones, so that the shards' tables do not all double at
/// the same number of records. The memory of the index then grows evenly, and memory that one shard frees is used by the next one.
fn shard_of(hash: u64) -> usize {
    // The hash table uses other bits of the hash to choose the bucket and the byte that it compares first.
    let even = hash >> 40 & 0xffff;
    // Computes approximately 2^16 times the binary logarithm of 1 + even / 2^16.
    let bend = (even * (0x1_0000 - even)) >> 16;
    let bent = even + ((bend * 22_500) >> 16);
    (bent as usize * SHARDS) >> 16
}

/// The index of a volume.
pub struct Index {
    shards: Box<[Shard]>,
    /// The lap of each segment: the pass over the volume in which it was written. Read and set without a lock: see `set_lap`.
    laps: Box<[AtomicU64]>,
    hashing: RandomState,
    classes: RwLock<SmallVec<[Class; 4]>>,
    records: AtomicU64,
    /// Number of units of 64 bytes that all records take.
    #[cfg(test)]
    units: AtomicU64,
    is_loading: AtomicBool,
    /// Records that were removed from the index although the log still contains them.
    lost: Mutex<Lost>,
}

#[derive(Default)]
struct Lost {
    keys: HashSet<Key>,
    /// Whether so many records were lost that every record is treated as possibly lost.
    any: bool,
}

struct Class {
    space: u64,
    /// Time without a use after which records of the class are inactive, in seconds; 0: never.
    inactive: u32,
}

impl Index {
    /// Creates an empty index for this many segments, in the loading state.
    pub fn new(segments: usize) -> Index {
        let segments = segments.min(SEGMENTS_MAX);
        Index {
            shards: std::iter::repeat_with(Shard::default)
                .take(SHARDS)
                .collect(),
            laps: std::iter::repeat_with(AtomicU64::default)
                .take(segments)
                .collect(),
            hashing: RandomState::default(),
            classes: RwLock::default(),
            records: AtomicU64::new(0),
            #[cfg(test)]
            units: AtomicU64::new(0),
            is_loading: AtomicBool::new(true),
            lost: Mutex::default(),
        }
    }

    /// Returns the key under which the index stores the record with this id.
    pub fn key(&self, id: &Id) -> Key {
        match id.kind {
            Kind::Head => self.head_key(id.space, id.key, id.version as u32),
            Kind::Block => {
                let mut hasher = self.hashing.build_hasher();
                hasher.write_u64(id.space);
                hasher.write_u128(id.key);
                hasher.write_u64(id.version);
                hasher.write_u32(id.part);
                Key {
                    hash: hasher.finish(),
                    tag: id.version as u32,
                    kind: Kind::Block,
                }
            }
        }
    }

    /// Returns the key under which the index stores a head of this cache and primary key. `tag` is the one in `Found`.
    pub fn head_key(&self, space: u64, key: u128, tag: u32) -> Key {
        let mut hasher = self.hashing.build_hasher();
        hasher.write_u64(space);
        hasher.write_u128(key);
        Key {
            hash: hasher.finish(),
            tag,
            kind: Kind::Head,
        }
    }

    /// Sets the lap of a segment (the pass over the volume in which it is written), which is part of the location of every record in it.
    /// The segment's entries must have been removed before, and none may be inserted until afterwards. Before the segment is overwritten,
    /// the reads in it must have finished (`Pins`).
    pub fn set_lap(&self, segment: u16, lap: u64) {
        if let Some(known) = self.laps.get(usize::from(segment)) {
            known.store(lap, Ordering::SeqCst);
        }
    }

    /// Returns the lap of a segment: the number of the pass over the volume in which it was written.
    pub fn lap(&self, segment: u16) -> u64 {
        self.laps
            .get(usize::from(segment))
            .map_or(0, |lap| lap.load(Ordering::SeqCst))
    }

    /// Returns the location of a record.
    pub fn find(&self, id: &Id) -> Option<Found> {
        let key = self.key(id);
        let table = self.shard(key.hash).lock();
        let entry = table.entries.find(key.hash, |entry| entry.is(key))?;
        Some(self.found(entry))
    }

    /// Returns the locations of a key's heads: one per variant.
    pub fn heads(&self, space: u64, key: u128) -> SmallVec<[Found; 2]> {
        let hash = self.head_key(space, key, 0).hash;
        let table = self.shard(hash).lock();
        table
            .entries
            .iter_hash(hash)
            .filter(|entry| entry.hash == hash && entry.packed.kind() == Kind::Head)
            .map(|entry| self.found(entry))
            .collect()
    }

    /// Inserts a record that has just been written, and replaces an older one.
    pub fn insert(&self, id: &Id, place: RecordLocation, now: u32) {
        let key = self.key(id);
        let class = self.class(id.space);
        self.forget_lost(key);
        let mut table = self.shard(key.hash).lock();
        let packed = Packed::new(place, class, key.kind);
        if let Some(entry) = table.find_mut(key) {
            let old = std::mem::replace(&mut entry.packed, packed).location();
            entry.atime = now;
            self.count(Some(old), Some(place));
            return;
        }
        table.put(Entry {
            hash: key.hash,
            tag: key.tag,
            atime: now,
            packed,
        });
        self.count(None, Some(place));
    }

    /// Inserts a record from an older part of the log, unless the index has a newer one, or the record was removed since loading began.
    /// Returns whether the record was inserted.
    pub fn insert_if_absent(&self, id: &Id, place: RecordLocation, atime: u32) -> bool {
        let key = self.key(id);
        let class = self.class(id.space);
        let mut table = self.shard(key.hash).lock();
        if table.is_gone(key) || table.find_mut(key).is_some() {
            return false;
        }
        table.put(Entry {
            hash: key.hash,
            tag: key.tag,
            atime,
            packed: Packed::new(place, class, key.kind),
        });
        self.count(None, Some(place));
        true
    }

    /// Removes a record and returns its location. If the index is loading, older records with the same id are not inserted later.
    pub fn remove(&self, id: &Id) -> Option<RecordLocation> {
        self.take(self.key(id), true, |_| true)
    }

    /// Removes a record if it is still at this location. Returns whether it was removed.
    pub fn remove_if(&self, key: Key, place: RecordLocation) -> bool {
        self.take(key, true, |entry| entry.packed.is_at(place))
            .is_some()
    }

    /// Removes a record that can't be read, if it is still at this location. Returns whether it was removed. The log still contains the
    /// record: see `is_lost`.
    pub fn lose(&self, key: Key, place: RecordLocation) -> bool {
        let was_there = self.remove_if(key, place);
        if was_there {
            let mut lost = self.lost.lock();
            match lost.keys.len() < LOST_MAX {
                true => drop(lost.keys.insert(key)),
                false => lost.any = true,
            }
        }
        was_there
    }

    /// Whether a record that is not in the index may reappear at the next start, unless a tombstone is written.
    pub fn is_lost(&self, id: &Id) -> bool {
        let lost = self.lost.lock();
        lost.any || lost.keys.contains(&self.key(id))
    }

    /// Stops treating a record as lost, because the log now contains something newer with the same id.
    pub fn forget_lost(&self, key: Key) {
        self.lost.lock().keys.remove(&key);
    }

    /// Removes the records listed in a segment's table from the index, as far as they are still at these locations.
    pub fn drop_segment(&self, records: impl Iterator<Item = (Id, RecordLocation)>) {
        for (id, place) in records {
            // The removal need not be remembered: this segment is the oldest part of the log, so no older record with this id can be loaded
            // later.
            self.take(self.key(&id), false, |entry| entry.packed.is_at(place));
        }
    }

    /// Removes all records of a segment by checking every entry of the index, without the segment's table.
    pub fn drop_all_of(&self, segment: u16) {
        for shard in &self.shards {
            shard.0.lock().entries.retain(|entry| {
                let place = entry.packed.location();
                let keep = place.segment != segment;
                if !keep {
                    self.count(Some(place), None);
                }
                keep
            });
        }
    }

    /// Changes the location of a record that was copied to another segment, if it is still at the old location. Returns whether it was
    /// changed. The record counts as unread at the new location.
    pub fn move_if(&self, key: Key, from: RecordLocation, to: RecordLocation) -> bool {
        self.change_if(key, from, |entry| {
            entry.packed.set_location(to);
            entry.packed.set_used(false);
            self.count(Some(from), Some(to));
        })
    }

    /// Records a read of a record at the time `now`, if the record is still at this location.
    pub fn touch(&self, key: Key, place: RecordLocation, now: u32) {
        self.change_if(key, place, |entry| {
            entry.packed.set_used(true);
            entry.atime = now;
        });
    }

    /// Records a use of the record with this id at the time `now`, wherever it is on the volume.
    pub fn touch_id(&self, id: &Id, now: u32) {
        let key = self.key(id);
        if let Some(entry) = self.shard(key.hash).lock().find_mut(key) {
            entry.packed.set_used(true);
            entry.atime = now;
        }
    }

    /// Sets the usage of a record, if the record is still at this location.
    pub fn set_use(&self, key: Key, place: RecordLocation, usage: Use) {
        self.change_if(key, place, |entry| {
            entry.packed.set_used(usage.used);
            entry.atime = usage.atime;
        });
    }

    /// Returns the usage of a record, if the record is still at this location.
    pub fn usage(&self, key: Key, place: RecordLocation) -> Option<Use> {
        let mut usage = None;
        self.change_if(key, place, |entry| {
            usage = Some(Use {
                used: entry.packed.used(),
                atime: entry.atime,
            });
        });
        usage
    }

    /// Sets the time without a use after which the records of a cache are inactive, in seconds; 0: never.
    pub fn set_inactive(&self, space: u64, seconds: u32) {
        let class = self.class(space);
        if let Some(class) = self.classes.write().get_mut(class) {
            class.inactive = seconds;
        }
    }

    /// Returns the inactive records in the next few buckets, and advances the cursor. Returns `None` after the last bucket; the cursor is
    /// then at the beginning again.
    pub fn inactive(
        &self,
        cursor: &mut Cursor,
        now: u32,
    ) -> Option<SmallVec<[(Key, RecordLocation); 8]>> {
        let Some(shard) = self.shards.get(cursor.shard) else {
            *cursor = Cursor::default();
            return None;
        };
        let limits = self.limits();
        let table = shard.0.lock();
        let end = cursor.bucket + SWEPT_AT_ONCE;
        let found = (cursor.bucket..end.min(table.entries.num_buckets()))
            .filter_map(|bucket| table.entries.get_bucket(bucket))
            .filter(|entry| {
                let limit = limits[entry.packed.class()];
                limit > 0 && now.saturating_sub(entry.atime) >= limit
            })
            .map(|entry| (entry.key(), entry.packed.location()))
            .collect();
        match end < table.entries.num_buckets() {
            true => cursor.bucket = end,
            false => {
                cursor.shard += 1;
                cursor.bucket = 0;
            }
        }
        Some(found)
    }

    /// Calls `visit` for each record with its location and usage, shard by shard.
    pub fn for_each(&self, mut visit: impl FnMut(Key, RecordLocation, Use)) {
        for shard in &self.shards {
            for entry in &shard.0.lock().entries {
                let usage = Use {
                    used: entry.packed.used(),
                    atime: entry.atime,
                };
                visit(entry.key(), entry.packed.location(), usage);
            }
        }
    }

    /// Ends the loading state: removed records need not be remembered any more.
    pub fn set_loaded(&self) {
        self.is_loading.store(false, Ordering::SeqCst);
        for shard in &self.shards {
            shard.0.lock().gone = None;
        }
    }

    /// Returns the number of records.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that the records take on the device.
    #[cfg(test)]
    pub fn live_bytes(&self) -> u64 {
        self.units.load(Ordering::Relaxed) * u64::from(UNIT)
    }

    /// Returns the number of bytes of memory that the index uses.
    #[cfg(test)]
    pub fn memory(&self) -> usize {
        let tables = self.shards.iter().map(|shard| {
            let table = shard.0.lock();
            let gone = table.gone.as_ref().map_or(0, |gone| gone.allocation_size());
            table.entries.allocation_size() + gone
        });
        tables.sum::<usize>() + size_of_val(&*self.shards) + size_of_val(&*self.laps)
    }

    fn take(
        &self,
        key: Key,
        remember: bool,
        when: impl FnOnce(&Entry) -> bool,
    ) -> Option<RecordLocation> {
        let mut table = self.shard(key.hash).lock();
        let is_loading = self.is_loading.load(Ordering::SeqCst);
        let taken = table.take(key, when);
        // An older record with this key may still be loaded, so the removal is remembered. Nothing is remembered if the table still has a
        // record with this key at another location.
        if remember && is_loading && table.find_mut(key).is_none() {
            table.set_gone(key);
        }
        let place = taken?.packed.location();
        self.count(Some(place), None);
        Some(place)
    }

    fn change_if(&self, key: Key, place: RecordLocation, change: impl FnOnce(&mut Entry)) -> bool {
        let mut table = self.shard(key.hash).lock();
        let entry = table
            .find_mut(key)
            .filter(|entry| entry.packed.is_at(place));
        entry.map(change).is_some()
    }

    fn shard(&self, hash: u64) -> &Mutex<Table> {
        &self.shards[shard_of(hash)].0
    }

    /// Returns the location of an entry's record: its segment with the segment's lap (pass over the volume), its offset and its length.
    fn found(&self, entry: &Entry) -> Found {
        let place = entry.packed.location();
        Found {
            tag: entry.tag,
            segment: u32::from(place.segment),
            lap: self.lap(place.segment),
            offset: place.offset(),
            length: place.length(),
        }
    }

    fn count(&self, gone: Option<RecordLocation>, new: Option<RecordLocation>) {
        if gone.is_some() {
            self.records.fetch_sub(1, Ordering::Relaxed);
        }
        if new.is_some() {
            self.records.fetch_add(1, Ordering::Relaxed);
        }
        #[cfg(test)]
        {
            let units = |place: Option<RecordLocation>| place.map_or(0, |at| u64::from(at.length));
            self.units.fetch_add(units(new), Ordering::Relaxed);
            self.units.fetch_sub(units(gone), Ordering::Relaxed);
        }
    }

    /// Returns the class of a cache. A cache without a class gets the next free one.
    fn class(&self, space: u64) -> usize {
        let find = |classes: &[Class]| classes.iter().position(|class| class.space == space);
        if let Some(class) = find(&self.classes.read()) {
            return class;
        }
        let mut classes = self.classes.write();
        find(&classes).unwrap_or_else(|| {
            if classes.len() < CLASSES - 1 {
                classes.push(Class { space, inactive: 0 });
                return classes.len() - 1;
            }
            CLASSES - 1
        })
    }

    fn limits(&self) -> [u32; CLASSES] {
        let mut limits = [0; CLASSES];
        for (limit, class) in limits.iter_mut().zip(&*self.classes.read()) {
            *limit = class.inactive;
        }
        limits
    }
}
