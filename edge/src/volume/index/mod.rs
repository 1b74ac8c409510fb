//! The index in memory: where each record is, in 24 bytes, a byte of hash table and its free room.

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
use entry::{Entry, Packed, UNIT};
use table::Table;

/// How many segments an index can tell apart.
pub const SEGMENTS_MAX: usize = 1 << 16;

/// Each has a lock and a table of its own. Many: while one grows, it takes its room twice and keeps
/// who asks for it waiting.
const SHARDS: usize = 1024;

/// How many classes of entries there are: one for each of the first caches that are seen, and the
/// last one for all others, which is never swept.
const CLASSES: usize = 16;

/// So many records that were lost are remembered; when there are more at once, any may have been.
const LOST_MAX: usize = 1 << 14;

/// Buckets looked at under one lock by a sweep.
const SWEPT_AT_ONCE: usize = 256;

/// On a cache line of its own, so that one core's lock does not slow another's.
#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<Table>);

/// Where a sweep is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    shard: usize,
    bucket: usize,
}

/// The shard of a hash. The first ones get half as many as the last ones, so that they do not all
/// double at the same number of records: together they grow evenly, and what one gives back the next
/// one takes.
fn shard_of(hash: u64) -> usize {
    // Neither the bits that choose the bucket nor those that the table compares first.
    let even = hash >> 40 & 0xffff;
    // About 2^16 times the logarithm of 1 + even / 2^16 to the base of 2.
    let bend = (even * (0x1_0000 - even)) >> 16;
    let bent = even + ((bend * 22_500) >> 16);
    (bent as usize * SHARDS) >> 16
}

/// Where each record is.
pub struct Index {
    shards: Box<[Shard]>,
    /// Of each segment. Read and set under no lock of its own: see `set_lap`.
    laps: Box<[AtomicU64]>,
    hashing: RandomState,
    classes: RwLock<SmallVec<[Class; 4]>>,
    records: AtomicU64,
    /// Units that they take.
    units: AtomicU64,
    is_loading: AtomicBool,
    /// What was taken out though the log still tells of it.
    lost: Mutex<Lost>,
}

#[derive(Default)]
struct Lost {
    keys: HashSet<Key>,
    /// There were too many at once: any may have been.
    any: bool,
}

struct Class {
    space: u64,
    /// Seconds; 0: never.
    inactive: u32,
}

impl Index {
    /// Empty, and loading, for so many segments.
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
            units: AtomicU64::new(0),
            is_loading: AtomicBool::new(true),
            lost: Mutex::default(),
        }
    }

    /// What an id's entry is found by.
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

    /// What a head's entry is found by, of this cache and key; its tag is as in `Found`.
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

    /// The lap of a segment: what is found in it is of this one. Before it is set, the segment's
    /// entries must have been removed, and none may come before it is; after that its readers are
    /// waited for (`Pins`), and then it may be overwritten.
    pub fn set_lap(&self, segment: u16, lap: u64) {
        if let Some(known) = self.laps.get(usize::from(segment)) {
            known.store(lap, Ordering::SeqCst);
        }
    }

    /// The lap of a segment.
    pub fn lap(&self, segment: u16) -> u64 {
        self.laps
            .get(usize::from(segment))
            .map_or(0, |lap| lap.load(Ordering::SeqCst))
    }

    /// Where a record is.
    pub fn find(&self, id: &Id) -> Option<Found> {
        let key = self.key(id);
        let table = self.shard(key.hash).lock();
        let entry = table.entries.find(key.hash, |entry| entry.is(key))?;
        Some(self.found(entry))
    }

    /// Where the heads of a key are: one for each variant.
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

    /// Puts a record in that was just written, in place of what was there.
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

    /// Puts a record in that an older part of the log tells of, unless a newer one is there, or was
    /// removed since loading began; whether it did.
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

    /// Takes a record out: where it was. While the index loads, no older one takes its place.
    pub fn remove(&self, id: &Id) -> Option<RecordLocation> {
        self.take(self.key(id), true, |_| true)
    }

    /// Takes a record out, if it is still at this place; whether it was.
    pub fn remove_if(&self, key: Key, place: RecordLocation) -> bool {
        self.take(key, true, |entry| entry.packed.is_at(place))
            .is_some()
    }

    /// Takes out a record that can't be read, if it is still at this place; whether it was. The log
    /// still tells of it: see `is_lost`.
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

    /// Whether a record that is not there may be back at the next start, unless that is written.
    pub fn is_lost(&self, id: &Id) -> bool {
        let lost = self.lost.lock();
        lost.any || lost.keys.contains(&self.key(id))
    }

    /// The log has something newer of a record than what was lost.
    pub fn forget_lost(&self, key: Key) {
        self.lost.lock().keys.remove(&key);
    }

    /// Takes out those records of a segment that are still at the places that its table tells.
    pub fn drop_segment(&self, records: impl Iterator<Item = (Id, RecordLocation)>) {
        for (id, place) in records {
            // Nothing older is in the log: there is no need to remember it.
            self.take(self.key(&id), false, |entry| entry.packed.is_at(place));
        }
    }

    /// Takes out every record of a segment, whatever its table tells: looks at all entries.
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

    /// Says that a record was written once more, at another place; whether it was still at this
    /// one. It counts as not read since then.
    pub fn move_if(&self, key: Key, from: RecordLocation, to: RecordLocation) -> bool {
        self.change_if(key, from, |entry| {
            entry.packed.set_location(to);
            entry.packed.set_used(false);
            self.count(Some(from), Some(to));
        })
    }

    /// Notes that a record was read, if it is still at this place.
    pub fn touch(&self, key: Key, place: RecordLocation, now: u32) {
        self.change_if(key, place, |entry| {
            entry.packed.set_used(true);
            entry.atime = now;
        });
    }

    /// Notes that a record is in use, wherever it is.
    pub fn touch_id(&self, id: &Id, now: u32) {
        let key = self.key(id);
        if let Some(entry) = self.shard(key.hash).lock().find_mut(key) {
            entry.packed.set_used(true);
            entry.atime = now;
        }
    }

    /// Sets what is known about the use of a record, if it is still at this place.
    pub fn set_use(&self, key: Key, place: RecordLocation, usage: Use) {
        self.change_if(key, place, |entry| {
            entry.packed.set_used(usage.used);
            entry.atime = usage.atime;
        });
    }

    /// What is known about the use of a record, if it is still at this place.
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

    /// Entries of a cache that were not used for so many seconds are found by `inactive`; 0: never.
    pub fn set_inactive(&self, space: u64, seconds: u32) {
        let class = self.class(space);
        if let Some(class) = self.classes.write().get_mut(class) {
            class.inactive = seconds;
        }
    }

    /// Some of the records that were not used for as long as their cache says: those of a few
    /// buckets. `None` when the last bucket is behind the cursor, which then begins anew.
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

    /// Calls this for each record with its place and use, shard by shard.
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

    /// All of the log was read: what went need not be remembered any more.
    pub fn set_loaded(&self) {
        self.is_loading.store(false, Ordering::SeqCst);
        for shard in &self.shards {
            shard.0.lock().gone = None;
        }
    }

    /// How many records there are.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Bytes that they take on the device.
    pub fn live_bytes(&self) -> u64 {
        self.units.load(Ordering::Relaxed) * u64::from(UNIT)
    }

    /// Bytes of memory held.
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
        // What is not there may still come; what is there at another place stays.
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

    /// An entry's place, with the lap that its segment has for as long as the entry is there.
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
        if let Some(gone) = gone {
            self.records.fetch_sub(1, Ordering::Relaxed);
            self.units
                .fetch_sub(u64::from(gone.length), Ordering::Relaxed);
        }
        if let Some(new) = new {
            self.records.fetch_add(1, Ordering::Relaxed);
            self.units
                .fetch_add(u64::from(new.length), Ordering::Relaxed);
        }
    }

    /// The number of a cache's class; a cache that is seen for the first time gets one.
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
