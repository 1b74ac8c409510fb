//! A simulated cache with an eviction policy, for the benchmark of hit ratios.

use super::{Kind, Policy};

/// The value for a key that has no id.
const NONE: u32 = u32::MAX;

/// A cache with space for a fixed number of entries of weight one. Keys are small numbers, because memory grows with the largest one.
pub struct Places {
    policy: Box<dyn Policy + Send>,
    /// The id of each cached key.
    ids: Vec<u32>,
    /// The key of each id.
    keys: Vec<u32>,
    free: Vec<u32>,
}

impl Places {
    /// Creates an empty cache with space for `places` entries, at least one.
    pub fn new(kind: Kind, places: u32) -> Places {
        let places = places.max(1);
        Places {
            policy: kind.build(),
            ids: Vec::new(),
            keys: vec![NONE; places as usize],
            free: (0..places).collect(),
        }
    }

    /// Whether a key is cached.
    #[cfg(test)]
    pub fn has(&self, key: u32) -> bool {
        self.ids.get(key as usize).is_some_and(|id| *id != NONE)
    }

    /// Looks up a key, and inserts it if it is not cached. Returns whether the key was cached.
    pub fn ask(&mut self, key: u32) -> bool {
        let at = key as usize;
        if at >= self.ids.len() {
            self.ids.resize(at + 1, NONE);
        }
        if self.ids[at] != NONE {
            self.policy.touch(self.ids[at]);
            return true;
        }
        let Some(id) = self.free.pop().or_else(|| self.policy.evict()) else {
            return false;
        };
        let before = std::mem::replace(&mut self.keys[id as usize], key);
        if let Some(victim) = self.ids.get_mut(before as usize) {
            *victim = NONE;
        }
        self.ids[at] = id;
        // The policy gets a hash with random-looking bits in all positions, like the hash of a real key.
        let hash = u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.policy.track(id, hash, 1);
        false
    }
}
