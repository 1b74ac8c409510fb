//! Space-Saving: the keys with the greatest sums of weights in a stream, found with bounded memory
//! (Metwally, Agrawal and El Abbadi, 2005).
//!
//! A sketch counts a fixed number of keys. A further key takes the place of the key with the least
//! count, and starts with that count as its possible error. Every key whose true sum is greater than
//! the sum of all weights divided by the number of places is therefore in the sketch.

use std::collections::HashMap;
use std::sync::Arc;

use hashbrown::HashTable;

use super::measure::Sums;

/// A sketch of the keys with the greatest sums.
pub(super) struct SpaceSaving {
    capacity: usize,
    places: Vec<Place>,
    /// The indexes of all places as a binary heap, the place with the least count first.
    heap: Vec<usize>,
    /// The indexes of all places by the hash of their key.
    table: HashTable<usize>,
    /// Whether a key has lost its place.
    has_replaced: bool,
}

/// A key that is counted.
struct Place {
    hash: u64,
    listed: Listed,
    /// Position in the heap.
    at: usize,
}

/// A key of a sketch, with its estimated sum.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) key: Arc<str>,
    /// Upper bound of the key's true sum.
    pub(super) count: u64,
    /// Greatest difference between `count` and the true sum.
    pub(super) error: u64,
    /// The sums since the key got its place, which are lower bounds.
    pub(super) sums: Sums,
}

/// The result of a sketch: its greatest keys, and a bound for all others.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    pub(super) listed: Vec<Listed>,
    /// Greatest sum that a key may have that is not listed.
    pub(super) others_max: u64,
}

impl SpaceSaving {
    /// Creates a sketch with places for this many keys, at least one.
    pub(super) fn new(capacity: usize) -> SpaceSaving {
        let capacity = capacity.max(1);
        SpaceSaving {
            capacity,
            places: Vec::with_capacity(capacity),
            heap: Vec::with_capacity(capacity),
            table: HashTable::with_capacity(capacity),
            has_replaced: false,
        }
    }

    /// Adds a weight to a key. `make` makes the key's text if the key gets a place. A weight of zero
    /// has no effect.
    pub(super) fn add(
        &mut self,
        (hash, key): (u64, &str),
        weight: u64,
        sums: &Sums,
        make: &mut impl FnMut() -> Arc<str>,
    ) {
        if weight == 0 {
            return;
        }
        let is_it = |index: &usize| *self.places[*index].listed.key == *key;
        let known = self.table.find(hash, is_it).copied();
        let at = match known {
            Some(index) => {
                self.places[index].listed.sums.add(sums);
                self.places[index].at
            }
            None if self.places.len() < self.capacity => self.append(hash, make(), sums),
            None => self.replace_least(hash, make(), sums),
        };
        let count = &mut self.places[self.heap[at]].listed.count;
        *count = count.saturating_add(weight);
        self.sink(at);
    }

    /// Appends a place with count 0. Returns its position in the heap.
    fn append(&mut self, hash: u64, key: Arc<str>, sums: &Sums) -> usize {
        let index = self.places.len();
        let listed = Listed {
            key,
            count: 0,
            error: 0,
            sums: *sums,
        };
        self.heap.push(index);
        self.places.push(Place {
            hash,
            listed,
            at: index,
        });
        let places = &self.places;
        let rehash = |index: &usize| places[*index].hash;
        self.table.insert_unique(hash, index, rehash);
        self.rise(index)
    }

    /// Gives the place with the least count to another key. Returns its position in the heap.
    fn replace_least(&mut self, hash: u64, key: Arc<str>, sums: &Sums) -> usize {
        self.has_replaced = true;
        let index = self.heap[0];
        let old = self.places[index].hash;
        if let Ok(entry) = self.table.find_entry(old, |other| *other == index) {
            entry.remove();
        }
        let place = &mut self.places[index];
        place.hash = hash;
        place.listed.key = key;
        place.listed.error = place.listed.count;
        place.listed.sums = *sums;
        let places = &self.places;
        let rehash = |index: &usize| places[*index].hash;
        self.table.insert_unique(hash, index, rehash);
        0
    }

    fn count_at(&self, at: usize) -> u64 {
        self.places[self.heap[at]].listed.count
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for at in [a, b] {
            self.places[self.heap[at]].at = at;
        }
    }

    /// Moves an entry of the heap up as far as its count demands. Returns its new position.
    fn rise(&mut self, mut at: usize) -> usize {
        while at > 0 && self.count_at(at) < self.count_at((at - 1) / 2) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        at
    }

    /// Moves an entry of the heap down as far as its count demands.
    fn sink(&mut self, mut at: usize) {
        loop {
            let children = [2 * at + 1, 2 * at + 2].into_iter();
            let children = children.filter(|child| *child < self.heap.len());
            let Some(least) = children.min_by_key(|child| self.count_at(*child)) else {
                return;
            };
            if self.count_at(at) <= self.count_at(least) {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    /// Returns the greatest sum that a key may have that has no place.
    fn others_max(&self) -> u64 {
        match self.has_replaced {
            false => 0,
            true => self.count_at(0),
        }
    }

    /// Returns the `most` greatest keys, the greatest one first.
    pub(super) fn summary(&self, most: usize) -> Summary {
        let mut listed: Vec<Listed> = self.places.iter().map(|one| one.listed.clone()).collect();
        listed.sort_unstable_by_key(|one| std::cmp::Reverse(one.count));
        let left_out = listed.get(most).map_or(0, |one| one.count);
        listed.truncate(most);
        Summary {
            listed,
            others_max: left_out.max(self.others_max()),
        }
    }

    /// Forgets all keys.
    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.heap.clear();
        self.table.clear();
        self.has_replaced = false;
    }
}

/// Merges summaries of different parts of a stream. Returns all keys that are listed in one of them,
/// with bounds of their sums over all parts, the greatest first.
pub(super) fn merge<'a>(summaries: impl Iterator<Item = &'a Summary>) -> Vec<Listed> {
    let mut all: HashMap<Arc<str>, (Listed, u64)> = HashMap::new();
    let mut others_max = 0_u64;
    for summary in summaries {
        for one in &summary.listed {
            // Parts in which the key is not listed count with their bound for other keys. The number in
            // the map is the sum of these bounds over the parts that list the key.
            let (sum, listed_max) = all.entry(one.key.clone()).or_insert_with(|| {
                let empty = Listed {
                    key: one.key.clone(),
                    count: 0,
                    error: 0,
                    sums: Sums::default(),
                };
                (empty, 0)
            });
            sum.count = sum.count.saturating_add(one.count);
            sum.error = sum.error.saturating_add(one.error);
            sum.sums.add(&one.sums);
            *listed_max = listed_max.saturating_add(summary.others_max);
        }
        others_max = others_max.saturating_add(summary.others_max);
    }
    let bounded = all.into_values().map(|(mut one, listed_max)| {
        let unlisted = others_max.saturating_sub(listed_max);
        one.count = one.count.saturating_add(unlisted);
        one.error = one.error.saturating_add(unlisted);
        one
    });
    let mut merged: Vec<Listed> = bounded.collect();
    merged.sort_unstable_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
    merged
}

#[cfg(test)]
mod laws;
