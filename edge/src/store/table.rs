//! The table that owns every object: primary key → Vary names → variant → object.
//!
//! The table is divided into shards by key. One lock per shard guards its map and its eviction policy, so that looking up, deciding and
//! registering a flight are one critical section.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use slab::Slab;
use smallvec::SmallVec;

use super::block_index::{Block, Blocks};
use super::head::VaryNames;
use super::object::Object;
use super::resource_history::ResourceHistory;
use super::slots::Dropped;
use super::table_key::{Seeded, TableKey};
use crate::evict::Policy;

/// One shard of the table.
pub(super) struct Shard {
    pub(super) entries: Entries,
    /// The objects and blocks that the eviction policy knows, by the ids under which it knows them.
    ids: Slab<Tracked>,
    /// Number of ids in the eviction policy that belong to blocks.
    block_ids: usize,
    pub(super) policy: Box<dyn Policy + Send>,
    /// The store's time in seconds, with which uses are noted.
    now_s: Arc<AtomicU32>,
}

/// An entry of the eviction policy: an object, with all its pages if it is evicted only as a whole, or one block of an object.
#[derive(Clone, Copy)]
struct Tracked {
    /// The table key as four 64-bit numbers instead of two 128-bit ones: their smaller alignment makes the list a quarter smaller.
    table_key: [u64; 4],
    /// Offset of the block's first byte, or `WHOLE` for an object.
    block: u64,
}

impl Tracked {
    fn new(table_key: TableKey, block: u64) -> Tracked {
        let TableKey { primary, variant } = table_key;
        let halves = |hash: u128| [hash as u64, (hash >> 64) as u64];
        let ([a, b], [c, d]) = (halves(primary), halves(variant));
        let table_key = [a, b, c, d];
        Tracked { table_key, block }
    }

    fn table_key(&self) -> TableKey {
        let [a, b, c, d] = self.table_key;
        let hash = |low: u64, high: u64| u128::from(low) | u128::from(high) << 64;
        TableKey {
            primary: hash(a, b),
            variant: hash(c, d),
        }
    }
}

const WHOLE: u64 = u64::MAX;

/// All variants of one primary key, and the Vary names that select them.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) vary: Option<VaryNames>,
    pub(super) history: Option<Box<ResourceHistory>>,
    pub(super) variants: SmallVec<[Variant; 1]>,
}

pub(super) struct Variant {
    pub(super) hash: u128,
    pub(super) id: u32,
    /// Time of the last use, in seconds of the store's time.
    pub(super) used_s: u32,
    /// Weight of the object without its blocks, in bytes.
    weight: u64,
    pub(super) object: Arc<Object>,
    blocks: Option<Box<Blocks>>,
}

/// The result of evicting the object or block that the eviction policy chose.
pub(super) enum Evicted {
    /// An object, removed from the table; to be dropped after unlocking. The number is the age since its last use in seconds.
    Object(Arc<Object>, u32),
    /// The pages of an evicted block, and the age since its last use in seconds.
    Block(
        #[expect(dead_code, reason = "to be dropped after the lock")] Dropped,
        u32,
    ),
    /// The chosen object is in use, so that dropping it would free nothing, or it still has blocks; the policy tracks it again. The number
    /// is that of all ids in the shard.
    InUse(usize),
}

impl Evicted {
    /// Returns the age since the last use in seconds.
    pub(super) fn age_s(&self) -> u32 {
        match self {
            Evicted::Object(_, age_s) | Evicted::Block(_, age_s) => *age_s,
            Evicted::InUse(_) => 0,
        }
    }
}

impl Shard {
    pub(super) fn new(policy: Box<dyn Policy + Send>, now_s: Arc<AtomicU32>) -> Shard {
        Shard {
            entries: HashMap::default(),
            ids: Slab::new(),
            block_ids: 0,
            policy,
            now_s,
        }
    }

    /// Returns the store's time in seconds, with which a use is noted.
    #[inline]
    pub(super) fn now_s(&self) -> u32 {
        self.now_s.load(Ordering::Relaxed)
    }

    /// Counts among the objects with these policy ids: the bytes of objects that nothing but the table holds, and the number of objects
    /// with flights. Returns `None` if the ids begin after the last one.
    pub(super) fn survey(&self, ids: Range<usize>) -> Option<(u64, u64)> {
        if ids.start >= self.ids.capacity() {
            return None;
        }
        let (mut idle, mut flights) = (0, 0);
        let objects = ids
            .filter_map(|id| self.ids.get(id))
            .filter(|tracked| tracked.block == WHOLE);
        for variant in objects.filter_map(|tracked| self.variant(tracked.table_key())) {
            let blocks = variant.blocks.as_ref().map_or(0, |blocks| blocks.weight);
            // A flight holds a reference to its object, so an object without further references has no flight.
            if Arc::strong_count(&variant.object) == 1 {
                idle += variant.weight + blocks + variant.object.noted();
                continue;
            }
            flights += u64::from(variant.object.in_flight());
            if blocks > 0 {
                idle += blocks.saturating_sub(variant.object.held());
            }
        }
        Some((idle, flights))
    }

    /// Returns the objects with these policy ids for which `which` returns true. Returns `None` if the ids begin after the last one.
    pub(super) fn those(
        &self,
        ids: Range<usize>,
        which: impl Fn(&Object) -> bool,
    ) -> Option<Vec<(TableKey, Arc<Object>)>> {
        if ids.start >= self.ids.capacity() {
            return None;
        }
        let table_keys = ids
            .filter_map(|id| self.ids.get(id))
            .filter(|tracked| tracked.block == WHOLE)
            .map(Tracked::table_key);
        let those = table_keys.filter_map(|table_key| {
            let object = &self.variant(table_key)?.object;
            which(object).then(|| (table_key, object.clone()))
        });
        Some(those.collect())
    }

    /// Returns the number of objects in the shard.
    pub(super) fn len(&self) -> usize {
        self.ids.len() - self.block_ids
    }

    /// Changes the weight of an object, or of one of its blocks, by a number of bytes.
    pub(super) fn weigh(
        &mut self,
        table_key: TableKey,
        object: &Arc<Object>,
        block: Option<Range<u64>>,
        by: i64,
    ) {
        let Shard {
            entries,
            ids,
            block_ids,
            policy,
            now_s,
        } = self;
        let Some(variant) = variant_of(entries, table_key, object) else {
            return;
        };
        let table_key = TableKey {
            variant: variant.hash,
            ..table_key
        };
        let Some(block) = block else {
            variant.weight = variant.weight.saturating_add_signed(by);
            return policy.resize(variant.id, variant.weight);
        };
        let blocks = variant
            .blocks
            .get_or_insert_with(|| Box::new(Blocks::of(block.end - block.start)));
        if by < 0 && !variant.object.has_pages(&block) {
            // `has_pages` locks the object while the shard is locked: everywhere, the shard is locked before the object.
            if let Some(dropped) = blocks.list.remove(&block.start) {
                blocks.weight -= dropped.weight;
                policy.forget(dropped.id);
                ids.remove(dropped.id as usize);
                *block_ids -= 1;
            }
        } else if let Some(known) = blocks.list.get_mut(&block.start) {
            let weight = known.weight.saturating_add_signed(by);
            blocks.weight = blocks.weight - known.weight + weight;
            known.weight = weight;
            policy.resize(known.id, weight);
        } else if let weight @ 1.. = u64::try_from(by).unwrap_or(0) {
            let start = block.start;
            let id = ids.insert(Tracked::new(table_key, start)) as u32;
            policy.track(id, table_key.hash_of(start), weight);
            blocks.weight += weight;
            let used_s = now_s.load(Ordering::Relaxed);
            blocks.list.insert(start, Block { id, weight, used_s });
            *block_ids += 1;
        }
    }

    /// Reports a use of the block that contains the byte `at` to the eviction policy.
    pub(super) fn touch(&mut self, table_key: TableKey, object: &Arc<Object>, at: u64) {
        let now_s = self.now_s();
        if let Some(variant) = variant_of(&mut self.entries, table_key, object)
            && let Some(block) = variant.blocks.as_mut().and_then(|blocks| blocks.at(at))
        {
            block.used_s = now_s;
            self.policy.touch(block.id);
        }
    }

    /// Evicts the object or block that the eviction policy chooses.
    pub(super) fn evict(&mut self) -> Option<Evicted> {
        let id = self.policy.evict()?;
        let tracked = *self.ids.get(id as usize)?;
        match tracked.block {
            WHOLE => self.evict_object(id, tracked.table_key()),
            block => self.evict_block(id, tracked.table_key(), block),
        }
    }

    fn evict_object(&mut self, id: u32, table_key: TableKey) -> Option<Evicted> {
        let variant = variant_in(&mut self.entries, table_key)?;
        let held = Arc::strong_count(&variant.object) > 1;
        // The blocks of an object are evicted one by one, and the object itself only after its last block. A retired object is evicted at
        // once.
        let in_blocks = variant
            .blocks
            .as_ref()
            .is_some_and(|blocks| !blocks.list.is_empty());
        if held || in_blocks && !variant.object.is_retired() {
            self.policy.track(id, table_key.hash(), variant.weight);
            return Some(Evicted::InUse(self.ids.len()));
        }
        let used_s = variant.used_s;
        let object = self.remove(table_key)?;
        self.prune(table_key.primary);
        Some(Evicted::Object(object, self.now_s().saturating_sub(used_s)))
    }

    fn evict_block(&mut self, id: u32, table_key: TableKey, start: u64) -> Option<Evicted> {
        let variant = variant_in(&mut self.entries, table_key)?;
        let blocks = variant.blocks.as_mut()?;
        let Block { weight, used_s, .. } = *blocks.list.get(&start)?;
        // `drop_block` locks the object while the shard is locked: everywhere, the shard is locked before the object.
        let block = start..start.saturating_add(blocks.block);
        let Some(pages) = variant.object.drop_block(block) else {
            self.policy.track(id, table_key.hash_of(start), weight);
            return Some(Evicted::InUse(self.ids.len()));
        };
        blocks.list.remove(&start);
        blocks.weight -= weight;
        self.ids.remove(id as usize);
        self.block_ids -= 1;
        Some(Evicted::Block(pages, self.now_s().saturating_sub(used_s)))
    }

    fn variant(&self, table_key: TableKey) -> Option<&Variant> {
        let entry = self.entries.get(&table_key.primary)?;
        entry
            .variants
            .iter()
            .find(|variant| variant.hash == table_key.variant)
    }

    /// Whether the table has this object under this key.
    pub(super) fn holds(&self, table_key: TableKey, object: &Arc<Object>) -> bool {
        self.variant(table_key)
            .is_some_and(|variant| Arc::ptr_eq(&variant.object, object))
    }

    /// Inserts an object. Returns the object that it replaces.
    pub(super) fn insert(
        &mut self,
        table_key: TableKey,
        object: Arc<Object>,
        weight: u64,
    ) -> Option<Arc<Object>> {
        let before = self.remove(table_key);
        let id = self.ids.insert(Tracked::new(table_key, WHOLE)) as u32;
        self.policy.track(id, table_key.hash(), weight);
        let entry = self.entries.entry(table_key.primary).or_default();
        entry.variants.push(Variant {
            hash: table_key.variant,
            id,
            used_s: self.now_s.load(Ordering::Relaxed),
            weight,
            object,
            blocks: None,
        });
        before
    }

    /// Moves an object to another variant. Returns the object that it replaces there.
    pub(super) fn refile(&mut self, from: TableKey, to: u128) -> Option<Arc<Object>> {
        let to = TableKey {
            variant: to,
            ..from
        };
        let moved = self.take(from)?;
        let before = self.remove(to);
        self.put(moved, to);
        before
    }

    /// Puts a variant that was taken out of its entry under another key.
    fn put(&mut self, mut moved: Variant, to: TableKey) {
        moved.hash = to.variant;
        let blocks = moved.blocks.iter().flat_map(|blocks| blocks.list.values());
        for id in blocks.map(|block| block.id).chain([moved.id]) {
            if let Some(tracked) = self.ids.get_mut(id as usize) {
                *tracked = Tracked::new(to, tracked.block);
            }
        }
        // The eviction policy must track the object under the hash of its new key.
        self.policy.track(moved.id, to.hash(), moved.weight);
        let entry = self.entries.entry(to.primary).or_default();
        entry.variants.push(moved);
    }

    /// Removes a variant from its primary key's entry. The entry stays, even if it is empty.
    fn take(&mut self, table_key: TableKey) -> Option<Variant> {
        let entry = self.entries.get_mut(&table_key.primary)?;
        let at = entry
            .variants
            .iter()
            .position(|variant| variant.hash == table_key.variant)?;
        Some(entry.variants.swap_remove(at))
    }

    /// Removes an object from the table, and its ids from the eviction policy. The primary key's entry stays, even if it is empty, until
    /// `prune`.
    pub(super) fn remove(&mut self, table_key: TableKey) -> Option<Arc<Object>> {
        let variant = self.take(table_key)?;
        self.policy.forget(variant.id);
        self.ids.remove(variant.id as usize);
        let blocks = variant
            .blocks
            .iter()
            .flat_map(|blocks| blocks.list.values());
        for block in blocks {
            self.policy.forget(block.id);
            self.ids.remove(block.id as usize);
            self.block_ids -= 1;
        }
        Some(variant.object)
    }

    /// Removes the entry of a primary key, if it has no variants.
    pub(super) fn prune(&mut self, primary: u128) {
        let empty = |entry: &Entry| entry.variants.is_empty();
        if self.entries.get(&primary).is_some_and(empty) {
            self.entries.remove(&primary);
        }
    }
}

/// Returns the size in bytes of a row of the table, and of a row of the list of policy ids.
#[cfg(test)]
pub(super) fn row_bytes() -> (usize, usize) {
    (size_of::<(u128, Entry)>() + 1, size_of::<Tracked>() + 8)
}

type Entries = HashMap<u128, Entry, Seeded>;

fn variant_in(entries: &mut Entries, table_key: TableKey) -> Option<&mut Variant> {
    let entry = entries.get_mut(&table_key.primary)?;
    entry
        .variants
        .iter_mut()
        .find(|variant| variant.hash == table_key.variant)
}

/// Returns the row of an object: under this key, or under that of an object which is being replaced.
fn variant_of<'a>(
    entries: &'a mut Entries,
    table_key: TableKey,
    object: &Arc<Object>,
) -> Option<&'a mut Variant> {
    let entry = entries.get_mut(&table_key.primary)?;
    let keys = [table_key.variant, table_key.aside().variant];
    let mut rows = entry.variants.iter_mut();
    rows.find(|row| Arc::ptr_eq(&row.object, object) && keys.contains(&row.hash))
}
