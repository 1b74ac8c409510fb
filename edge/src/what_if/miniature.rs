//! A miniature cache: a simulated cache of a fraction of a real cache's size, with the real eviction policy.

use slab::Slab;

use crate::evict::{Kind, Policy};

/// The id of a unit that is not in the miniature cache.
pub(super) const ABSENT: u32 = u32::MAX;

/// A simulated cache. It knows units by their hashes, and stores no bytes.
pub(super) struct Miniature {
    policy: Box<dyn Policy + Send>,
    units: Slab<Unit>,
    capacity: u64,
}

/// A unit in the miniature cache.
struct Unit {
    hash: u64,
    fresh_until_ms: u64,
    weight: u64,
}

impl Miniature {
    /// Creates an empty cache without room.
    pub(super) fn new(kind: Kind) -> Miniature {
        Miniature {
            policy: kind.build(),
            units: Slab::new(),
            capacity: 0,
        }
    }

    /// Returns the number of units in the cache.
    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    /// Changes the capacity in bytes, and evicts what no longer fits. Reports the hash of each evicted unit.
    pub(super) fn resize(&mut self, capacity: u64, evicted: &mut impl FnMut(u64)) {
        self.capacity = capacity;
        self.make_room(0, evicted);
    }

    /// Records a use of a unit in the cache, which now has this weight.
    pub(super) fn touch(&mut self, id: u32, weight: u64) {
        self.policy.touch(id);
        if let Some(unit) = self.units.get_mut(id as usize)
            && unit.weight != weight
        {
            unit.weight = weight;
            self.policy.resize(id, weight);
        }
    }

    /// Whether a unit in the cache is fresh at this time, in milliseconds since the Unix epoch.
    pub(super) fn is_fresh(&self, id: u32, now_ms: u64) -> bool {
        let unit = self.units.get(id as usize);
        unit.is_some_and(|unit| now_ms < unit.fresh_until_ms)
    }

    /// Replaces the end of the freshness lifetime of a unit in the cache.
    pub(super) fn renew(&mut self, id: u32, fresh_until_ms: u64) {
        if let Some(unit) = self.units.get_mut(id as usize) {
            unit.fresh_until_ms = fresh_until_ms;
        }
    }

    /// Inserts a unit, and evicts others if necessary. Returns the unit's id, or `None` if the unit is larger than the cache.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        fresh_until_ms: u64,
        weight: u64,
        evicted: &mut impl FnMut(u64),
    ) -> Option<u32> {
        if weight > self.capacity {
            return None;
        }
        self.make_room(weight, evicted);
        let unit = Unit {
            hash,
            fresh_until_ms,
            weight,
        };
        let id = self.units.insert(unit) as u32;
        self.policy.track(id, hash, weight);
        Some(id)
    }

    /// Removes a unit without reporting it.
    pub(super) fn remove(&mut self, id: u32) {
        if self.units.try_remove(id as usize).is_some() {
            self.policy.forget(id);
        }
    }

    fn make_room(&mut self, weight: u64, evicted: &mut impl FnMut(u64)) {
        while self.policy.weight().saturating_add(weight) > self.capacity {
            let Some(id) = self.policy.evict() else {
                return;
            };
            if let Some(unit) = self.units.try_remove(id as usize) {
                evicted(unit.hash);
            }
        }
    }

    /// Returns the heap memory in bytes.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        // An entry of a slab is a unit or the number of a free entry, and a word tells which.
        self.units.capacity() * (size_of::<Unit>() + 8) + self.policy.memory()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::filter::mix;
    use super::*;
    use crate::evict::replay::Places;

    // A miniature cache whose capacity is not reduced is the whole cache.
    #[test]
    fn units_of_one_size_are_evicted_as_in_a_real_cache() {
        for kind in [Kind::S3Fifo, Kind::Lru] {
            let mut real = Places::new(kind, 50);
            let mut miniature = Miniature::new(kind);
            miniature.resize(50, &mut |_| ());
            let mut ids = HashMap::<u64, u32>::new();
            for n in 0..20_000_u64 {
                let key = mix(n) % (1 + mix(n + 1) % 300);
                let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let hit = ids.contains_key(&hash);
                match ids.get(&hash) {
                    Some(id) => miniature.touch(*id, 1),
                    None => {
                        let mut gone = Vec::new();
                        let id = miniature.insert(hash, 0, 1, &mut |hash| gone.push(hash));
                        ids.retain(|hash, _| !gone.contains(hash));
                        ids.insert(hash, id.expect("room"));
                    }
                }
                assert_eq!(hit, real.ask(key as u32), "{kind:?} {n}");
            }
            assert_eq!(miniature.len(), 50);
        }
    }

    #[test]
    fn a_unit_larger_than_the_cache_is_not_inserted() {
        let mut miniature = Miniature::new(Kind::Lru);
        miniature.resize(10, &mut |_| ());
        let id = miniature.insert(1, 5, 10, &mut |_| ()).expect("room");
        assert!(miniature.insert(2, 5, 11, &mut |_| ()).is_none());
        assert_eq!(miniature.len(), 1);
        assert!(miniature.is_fresh(id, 4) && !miniature.is_fresh(id, 5));
        miniature.renew(id, 9);
        miniature.touch(id, 6);
        assert!(miniature.is_fresh(id, 5));
        let mut gone = Vec::new();
        miniature.resize(5, &mut |hash| gone.push(hash));
        assert_eq!((gone, miniature.len()), (vec![1], 0));
    }
}
