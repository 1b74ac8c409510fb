//! The table that owns every object: primary key → Vary names in force → variant → object.
//!
//! Sharded by key. One lock per shard covers its map and its eviction policy, so looking up,
//! deciding and registering is one critical section.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

use slab::Slab;
use smallvec::SmallVec;

use super::head::VaryNames;
use super::locked::ResourceHistory;
use super::object::Object;
use super::page::PAGE;
use super::parts::{Part, Parts};
use super::slots::Dropped;
use crate::evict::Policy;

/// Variants kept of one primary key: more would let a hostile client fill a cache with one page.
pub const VARIANTS_MAX: usize = 64;

/// Where an object stands: its primary key and its variant, both hashes of 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Hash of the primary key.
    pub primary: u128,
    /// Hash of the selecting fields; 0 where Vary names none.
    pub variant: u128,
}

/// One shard of the table.
pub(super) struct Shard {
    pub(super) entries: Entries,
    /// The ids that the policy speaks of.
    ids: Slab<Tracked>,
    /// How many of them are blocks.
    blocks: usize,
    pub(super) policy: Box<dyn Policy + Send>,
}

/// What an id of the policy stands for: an object, with all its pages unless they are accounted by
/// block; or one block of an object.
#[derive(Clone, Copy)]
struct Tracked {
    /// Its place in halves, which take a quarter less room in the list than whole hashes.
    place: [u64; 4],
    /// The block's first byte, or `WHOLE`.
    part: u64,
}

impl Tracked {
    fn new(place: Place, part: u64) -> Tracked {
        let Place { primary, variant } = place;
        let halves = |hash: u128| [hash as u64, (hash >> 64) as u64];
        let ([a, b], [c, d]) = (halves(primary), halves(variant));
        let place = [a, b, c, d];
        Tracked { place, part }
    }

    fn place(&self) -> Place {
        let [a, b, c, d] = self.place;
        let hash = |low: u64, high: u64| u128::from(low) | u128::from(high) << 64;
        Place {
            primary: hash(a, b),
            variant: hash(c, d),
        }
    }
}

const WHOLE: u64 = u64::MAX;

/// All variants of one primary key.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) vary: Option<VaryNames>,
    pub(super) history: Option<Box<ResourceHistory>>,
    pub(super) variants: SmallVec<[Variant; 1]>,
}

pub(super) struct Variant {
    pub(super) hash: u128,
    pub(super) id: u32,
    /// Bytes that the object takes without its blocks.
    weight: u64,
    pub(super) object: Arc<Object>,
    parts: Option<Box<Parts>>,
}

/// What became of a policy's victim.
pub(super) enum Evicted {
    /// It was an object, which is out of the table: to be dropped after the lock.
    Object(Arc<Object>),
    /// It was a block, whose pages these are.
    Block(#[expect(dead_code, reason = "to be dropped after the lock")] Dropped),
    /// It is read or filled right now, so that dropping it would free nothing, or blocks of it are
    /// there. It is tracked anew. With how many ids there are in the shard.
    InUse(usize),
}

impl Shard {
    pub(super) fn new(policy: Box<dyn Policy + Send>) -> Shard {
        Shard {
            entries: HashMap::default(),
            ids: Slab::new(),
            blocks: 0,
            policy,
        }
    }

    /// Looks at the objects of these ids: bytes of those that nobody but the table holds, and how
    /// many are being filled. `None` past the last id.
    pub(super) fn survey(&self, ids: Range<usize>) -> Option<(u64, u64)> {
        if ids.start >= self.ids.capacity() {
            return None;
        }
        let (mut idle, mut flights) = (0, 0);
        let objects = ids
            .filter_map(|id| self.ids.get(id))
            .filter(|tracked| tracked.part == WHOLE);
        for variant in objects.filter_map(|tracked| self.variant(tracked.place())) {
            let parts = variant.parts.as_ref().map_or(0, |parts| parts.weight);
            // A flight holds its object, so one that nobody holds needs no second look.
            if Arc::strong_count(&variant.object) == 1 {
                idle += variant.weight + parts + variant.object.noted();
                continue;
            }
            flights += u64::from(variant.object.in_flight());
            if parts > 0 {
                idle += parts.saturating_sub(variant.object.held());
            }
        }
        Some((idle, flights))
    }

    /// The objects of these ids of which `which` is true. `None` past the last id.
    pub(super) fn those(
        &self,
        ids: Range<usize>,
        which: impl Fn(&Object) -> bool,
    ) -> Option<Vec<(Place, Arc<Object>)>> {
        if ids.start >= self.ids.capacity() {
            return None;
        }
        let places = ids
            .filter_map(|id| self.ids.get(id))
            .filter(|tracked| tracked.part == WHOLE)
            .map(Tracked::place);
        let those = places.filter_map(|place| {
            let object = &self.variant(place)?.object;
            which(object).then(|| (place, object.clone()))
        });
        Some(those.collect())
    }

    /// How many objects there are.
    pub(super) fn len(&self) -> usize {
        self.ids.len() - self.blocks
    }

    /// An object takes so many bytes more, or fewer: in one of its blocks, or as a whole.
    pub(super) fn weigh(
        &mut self,
        place: Place,
        object: &Arc<Object>,
        block: Option<Range<u64>>,
        by: i64,
    ) {
        let Shard {
            entries,
            ids,
            blocks,
            policy,
        } = self;
        let variant = variant_in(entries, place);
        let Some(variant) = variant.filter(|v| Arc::ptr_eq(&v.object, object)) else {
            return;
        };
        let Some(block) = block else {
            variant.weight = variant.weight.saturating_add_signed(by);
            return policy.resize(variant.id, variant.weight);
        };
        let parts = variant
            .parts
            .get_or_insert_with(|| Box::new(Parts::of(block.end - block.start)));
        if by < 0 && !variant.object.has_pages(&block) {
            // The object's lock inside the shard's: this is the order everywhere.
            if let Some(part) = parts.list.remove(&block.start) {
                parts.weight -= part.weight;
                policy.forget(part.id);
                ids.remove(part.id as usize);
                *blocks -= 1;
            }
        } else if let Some(part) = parts.list.get_mut(&block.start) {
            let weight = part.weight.saturating_add_signed(by);
            parts.weight = parts.weight - part.weight + weight;
            part.weight = weight;
            policy.resize(part.id, weight);
        } else if let weight @ 1.. = u64::try_from(by).unwrap_or(0) {
            let part = block.start;
            let id = ids.insert(Tracked::new(place, part)) as u32;
            policy.track(id, place.hash_of(part), weight);
            parts.weight += weight;
            parts.list.insert(part, Part { id, weight });
            *blocks += 1;
        }
    }

    /// A use of the block that holds this byte.
    pub(super) fn touch(&mut self, place: Place, object: &Arc<Object>, at: u64) {
        let variant = variant_in(&mut self.entries, place);
        if let Some(variant) = variant.filter(|v| Arc::ptr_eq(&v.object, object))
            && let Some(part) = variant.parts.as_ref().and_then(|parts| parts.at(at))
        {
            self.policy.touch(part.id);
        }
    }

    /// Drops the policy's next victim.
    pub(super) fn evict(&mut self) -> Option<Evicted> {
        let id = self.policy.evict()?;
        let tracked = *self.ids.get(id as usize)?;
        match tracked.part {
            WHOLE => self.evict_object(id, tracked.place()),
            part => self.evict_block(id, tracked.place(), part),
        }
    }

    fn evict_object(&mut self, id: u32, place: Place) -> Option<Evicted> {
        let variant = variant_in(&mut self.entries, place)?;
        let held = Arc::strong_count(&variant.object) > 1;
        // Its blocks go one by one, each when its time has come, and the last before the row. What
        // is of no use to anyone goes at once.
        let in_blocks = variant.parts.as_ref().is_some_and(|p| !p.list.is_empty());
        if held || in_blocks && !variant.object.is_retired() {
            self.policy.track(id, place.hash(), variant.weight);
            return Some(Evicted::InUse(self.ids.len()));
        }
        let object = self.remove(place)?;
        self.prune(place.primary);
        Some(Evicted::Object(object))
    }

    fn evict_block(&mut self, id: u32, place: Place, part: u64) -> Option<Evicted> {
        let variant = variant_in(&mut self.entries, place)?;
        let parts = variant.parts.as_mut()?;
        let weight = parts.list.get(&part)?.weight;
        // The object's lock inside the shard's: this is the order everywhere.
        let block = part..part.saturating_add(parts.block);
        let Some(pages) = variant.object.drop_block(block) else {
            self.policy.track(id, place.hash_of(part), weight);
            return Some(Evicted::InUse(self.ids.len()));
        };
        parts.list.remove(&part);
        parts.weight -= weight;
        self.ids.remove(id as usize);
        self.blocks -= 1;
        Some(Evicted::Block(pages))
    }

    fn variant(&self, place: Place) -> Option<&Variant> {
        let entry = self.entries.get(&place.primary)?;
        entry
            .variants
            .iter()
            .find(|variant| variant.hash == place.variant)
    }

    /// Whether this object is what stands there.
    pub(super) fn holds(&self, place: Place, object: &Arc<Object>) -> bool {
        self.variant(place)
            .is_some_and(|variant| Arc::ptr_eq(&variant.object, object))
    }

    /// Files an object, in place of what was there, which is given back.
    pub(super) fn insert(
        &mut self,
        place: Place,
        object: Arc<Object>,
        weight: u64,
    ) -> Option<Arc<Object>> {
        let before = self.remove(place);
        let id = self.ids.insert(Tracked::new(place, WHOLE)) as u32;
        self.policy.track(id, place.hash(), weight);
        let entry = self.entries.entry(place.primary).or_default();
        entry.variants.push(Variant {
            hash: place.variant,
            id,
            weight,
            object,
            parts: None,
        });
        before
    }

    /// Moves what stands at `from` to another variant; what was there is given back.
    pub(super) fn refile(&mut self, from: Place, to: u128) -> Option<Arc<Object>> {
        let to = Place {
            variant: to,
            ..from
        };
        let mut moved = self.take(from)?;
        let before = self.remove(to);
        moved.hash = to.variant;
        let parts = moved.parts.iter().flat_map(|parts| parts.list.values());
        for id in parts.map(|part| part.id).chain([moved.id]) {
            if let Some(tracked) = self.ids.get_mut(id as usize) {
                *tracked = Tracked::new(to, tracked.part);
            }
        }
        // The policy knows it by its new name from now on.
        self.policy.track(moved.id, to.hash(), moved.weight);
        let entry = self.entries.entry(to.primary).or_default();
        entry.variants.push(moved);
        before
    }

    /// Takes a variant out of its entry, which stays, be it empty.
    fn take(&mut self, place: Place) -> Option<Variant> {
        let entry = self.entries.get_mut(&place.primary)?;
        let at = entry
            .variants
            .iter()
            .position(|variant| variant.hash == place.variant)?;
        Some(entry.variants.swap_remove(at))
    }

    /// Takes an object out with all its ids. Its entry stays, be it empty, until `prune`.
    pub(super) fn remove(&mut self, place: Place) -> Option<Arc<Object>> {
        let variant = self.take(place)?;
        self.policy.forget(variant.id);
        self.ids.remove(variant.id as usize);
        let parts = variant.parts.iter().flat_map(|parts| parts.list.values());
        for part in parts {
            self.policy.forget(part.id);
            self.ids.remove(part.id as usize);
            self.blocks -= 1;
        }
        Some(variant.object)
    }

    /// Takes an entry out of the map when its last variant is gone.
    pub(super) fn prune(&mut self, primary: u128) {
        let empty = |entry: &Entry| entry.variants.is_empty();
        if self.entries.get(&primary).is_some_and(empty) {
            self.entries.remove(&primary);
        }
    }
}

/// What a row of the table and a row of the ids take.
#[cfg(test)]
pub(super) fn row_bytes() -> (usize, usize) {
    (size_of::<(u128, Entry)>() + 1, size_of::<Tracked>() + 8)
}

type Entries = HashMap<u128, Entry, BuildHasherDefault<AlreadyHashed>>;

fn variant_in(entries: &mut Entries, place: Place) -> Option<&mut Variant> {
    let entry = entries.get_mut(&place.primary)?;
    entry
        .variants
        .iter_mut()
        .find(|variant| variant.hash == place.variant)
}

impl Place {
    fn hash(self) -> u64 {
        (self.primary ^ self.variant) as u64
    }

    /// Names one block of the object here.
    fn hash_of(self, part: u64) -> u64 {
        // Blocks are whole pages; the constant is odd, so no two of them get one name.
        self.hash() ^ (part / PAGE + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// Keys are uniform hashes already.
#[derive(Default)]
pub(super) struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_le_bytes(word);
        }
    }

    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}
