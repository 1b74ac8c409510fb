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
use super::object::Object;
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
    entries: HashMap<u128, Entry, BuildHasherDefault<AlreadyHashed>>,
    /// The ids that the policy speaks of.
    ids: Slab<Place>,
    policy: Box<dyn Policy + Send>,
}

/// All variants of one primary key.
#[derive(Default)]
struct Entry {
    vary: Option<VaryNames>,
    variants: SmallVec<[Variant; 1]>,
}

struct Variant {
    hash: u128,
    id: u32,
    weight: u64,
    object: Arc<Object>,
}

impl Shard {
    pub(super) fn new(policy: Box<dyn Policy + Send>) -> Shard {
        Shard {
            entries: HashMap::default(),
            ids: Slab::new(),
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
        for variant in ids.filter_map(|id| self.variant(*self.ids.get(id)?)) {
            // A flight holds its object, so one that nobody holds needs no second look.
            match Arc::strong_count(&variant.object) {
                1 => idle += variant.weight,
                _ => flights += u64::from(variant.object.in_flight()),
            }
        }
        Some((idle, flights))
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn grew(&mut self, place: Place, object: &Arc<Object>, by: u64) {
        if let Some(variant) = self.variant_mut(place)
            && Arc::ptr_eq(&variant.object, object)
        {
            variant.weight += by;
            let (id, weight) = (variant.id, variant.weight);
            self.policy.resize(id, weight);
        }
    }

    /// Takes the policy's next victim out of the table. An object that is in use would free
    /// nothing: it is tracked anew, and `Err` says so.
    pub(super) fn evict(&mut self) -> Option<Result<Arc<Object>, InUse>> {
        let id = self.policy.evict()?;
        let place = *self.ids.get(id as usize)?;
        let variant = self.variant_mut(place)?;
        if Arc::strong_count(&variant.object) > 1 {
            let weight = variant.weight;
            self.policy.track(id, place.hash(), weight);
            return Some(Err(InUse));
        }
        self.ids.remove(id as usize);
        let variant = self.take(place)?;
        Some(Ok(variant.object))
    }

    fn variant(&self, place: Place) -> Option<&Variant> {
        let entry = self.entries.get(&place.primary)?;
        entry
            .variants
            .iter()
            .find(|variant| variant.hash == place.variant)
    }

    fn variant_mut(&mut self, place: Place) -> Option<&mut Variant> {
        let entry = self.entries.get_mut(&place.primary)?;
        entry
            .variants
            .iter_mut()
            .find(|variant| variant.hash == place.variant)
    }

    /// Takes a variant out of its entry, and the entry out of the map when it was the last.
    fn take(&mut self, place: Place) -> Option<Variant> {
        let entry = self.entries.get_mut(&place.primary)?;
        let at = entry
            .variants
            .iter()
            .position(|variant| variant.hash == place.variant)?;
        let variant = entry.variants.swap_remove(at);
        if entry.variants.is_empty() {
            self.entries.remove(&place.primary);
        }
        Some(variant)
    }

    fn remove(&mut self, place: Place) -> Option<Arc<Object>> {
        let variant = self.take(place)?;
        self.policy.forget(variant.id);
        self.ids.remove(variant.id as usize);
        Some(variant.object)
    }
}

/// The victim is read or filled right now.
pub(super) struct InUse;

impl Place {
    fn hash(self) -> u64 {
        (self.primary ^ self.variant) as u64
    }
}

/// One primary key while its shard is locked. What is taken out is dropped after the lock.
pub struct Locked<'a> {
    pub(super) shard: &'a mut Shard,
    pub(super) primary: u128,
    pub(super) removed: SmallVec<[Arc<Object>; 2]>,
}

impl Locked<'_> {
    /// The Vary names in force; `None` as long as no response has named any.
    pub fn vary(&self) -> Option<&VaryNames> {
        self.shard.entries.get(&self.primary)?.vary.as_ref()
    }

    /// The object of this variant. Counts as a use.
    #[inline]
    pub fn find(&mut self, variant: u128) -> Option<Arc<Object>> {
        let entry = self.shard.entries.get(&self.primary)?;
        let found = entry.variants.iter().find(|v| v.hash == variant)?;
        self.shard.policy.touch(found.id);
        Some(found.object.clone())
    }

    /// How many variants are kept.
    pub fn variants(&self) -> usize {
        self.shard
            .entries
            .get(&self.primary)
            .map_or(0, |entry| entry.variants.len())
    }

    /// Every variant's hash and object.
    pub fn all(&self) -> Vec<(u128, Arc<Object>)> {
        self.shard
            .entries
            .get(&self.primary)
            .map_or(Vec::new(), |entry| {
                entry
                    .variants
                    .iter()
                    .map(|variant| (variant.hash, variant.object.clone()))
                    .collect()
            })
    }

    /// Files an object under a variant, in place of what was there. `weight`: bytes it holds.
    pub fn insert(&mut self, variant: u128, object: Arc<Object>, weight: u64) {
        let place = Place {
            primary: self.primary,
            variant,
        };
        self.removed.extend(self.shard.remove(place));
        let id = self.shard.ids.insert(place) as u32;
        self.shard.policy.track(id, place.hash(), weight);
        let entry = self.shard.entries.entry(self.primary).or_default();
        entry.variants.push(Variant {
            hash: variant,
            id,
            weight,
            object,
        });
    }

    /// Takes a variant out, if it is still this object.
    pub fn remove(&mut self, variant: u128, object: &Arc<Object>) {
        if self.holds(variant, object) {
            let place = Place {
                primary: self.primary,
                variant,
            };
            self.removed.extend(self.shard.remove(place));
        }
    }

    /// Takes out the variant whose flight began first among those that nobody fills now; says
    /// whether there was one.
    pub fn drop_oldest(&mut self) -> bool {
        let idle = self
            .all()
            .into_iter()
            .filter(|(_, object)| !object.in_flight());
        let Some((variant, object)) = idle.min_by_key(|(_, object)| object.born_seq) else {
            return false;
        };
        self.remove(variant, &object);
        true
    }

    /// Takes every variant out.
    pub fn clear(&mut self) {
        for (variant, _) in self.all() {
            let place = Place {
                primary: self.primary,
                variant,
            };
            self.removed.extend(self.shard.remove(place));
        }
    }

    /// Whether this object is what the table has under this variant.
    pub fn holds(&self, variant: u128, object: &Arc<Object>) -> bool {
        self.shard
            .entries
            .get(&self.primary)
            .into_iter()
            .flat_map(|entry| &entry.variants)
            .any(|v| v.hash == variant && Arc::ptr_eq(&v.object, object))
    }

    /// A response came for the object of variant `from`: under the Vary names it brought it belongs
    /// to variant `to`. Where the names changed, variants filed under the old ones can't be found
    /// any more and go. Returns whether the object is still in the table.
    pub fn refile(
        &mut self,
        from: u128,
        to: u128,
        names: Option<&VaryNames>,
        object: &Arc<Object>,
    ) -> bool {
        if !self.holds(from, object) {
            return false;
        }
        if from == to && self.vary() == names {
            return true;
        }
        let place = Place {
            primary: self.primary,
            variant: from,
        };
        let Some(moved) = self.shard.take(place) else {
            return false;
        };
        self.shard.policy.forget(moved.id);
        self.shard.ids.remove(moved.id as usize);
        if self.vary() != names {
            self.clear();
        }
        self.insert(to, moved.object, moved.weight);
        if let Some(entry) = self.shard.entries.get_mut(&self.primary) {
            entry.vary = names.cloned();
        }
        true
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
