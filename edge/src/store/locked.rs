//! The entries of one primary key while their shard is locked.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::head::VaryNames;
use super::object::Object;
use super::purges::rules::Purges;
use super::resource_history::ResourceHistory;
use super::table::Shard;
use super::table_key::TableKey;

/// The entry of one primary key in the table, while its shard is locked. Objects removed meanwhile are dropped after unlocking.
pub struct Locked<'a> {
    pub(super) shard: &'a mut Shard,
    pub(super) primary: u128,
    pub(super) purges: &'a Purges,
    pub(super) removed: SmallVec<[Arc<Object>; 2]>,
    /// Objects that have just been admitted to volumes, to be written there after unlocking.
    pub(super) admitted: SmallVec<[(TableKey, Arc<Object>); 1]>,
}

impl Locked<'_> {
    /// Returns the header names by which variants are selected: those of the latest Vary; `None` while no response has had a Vary.
    pub fn vary(&self) -> Option<&VaryNames> {
        self.shard.entries.get(&self.primary)?.vary.as_ref()
    }

    /// Returns the object of this variant, if no purge covers it. The call counts as a use for the eviction policy.
    #[inline]
    pub fn find(&mut self, variant: u128) -> Option<Arc<Object>> {
        let now_s = self.shard.now_s();
        let entry = self.shard.entries.get_mut(&self.primary)?;
        let found = entry.variants.iter_mut().find(|v| v.hash == variant)?;
        found.used_s = now_s;
        let (id, object) = (found.id, found.object.clone());
        if !self.purges.is_settled(&object) && !self.stays(variant, &object) {
            return None;
        }
        self.shard.policy.touch(id);
        if !object.used.load(Ordering::Relaxed) {
            object.used.store(true, Ordering::Relaxed);
        }
        if object.once.load(Ordering::Relaxed) {
            self.again(variant, &object);
        }
        Some(object)
    }

    /// Returns the object of this variant, if no purge covers it. Unlike with `find`, the call does not count as a use.
    pub fn peek(&mut self, variant: u128) -> Option<Arc<Object>> {
        let entry = self.shard.entries.get(&self.primary)?;
        let found = entry.variants.iter().find(|v| v.hash == variant)?;
        let object = found.object.clone();
        let stays = self.purges.is_settled(&object) || self.stays(variant, &object);
        stays.then_some(object)
    }

    /// Admits an object to volumes because a second request for it has arrived.
    #[cold]
    fn again(&mut self, variant: u128, object: &Arc<Object>) {
        object.once.store(false, Ordering::Relaxed);
        self.admitted
            .push((self.table_key(variant), object.clone()));
    }

    /// Returns the number of stored variants.
    pub fn variants(&mut self) -> usize {
        self.settle();
        self.shard
            .entries
            .get(&self.primary)
            .map_or(0, |entry| entry.variants.len())
    }

    /// Returns the hash and the object of every variant.
    pub fn all(&mut self) -> Vec<(u128, Arc<Object>)> {
        self.settle();
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

    /// Inserts an object under a variant, and replaces the variant's earlier object. `weight` is the object's size in bytes for the
    /// eviction policy.
    pub fn insert(&mut self, variant: u128, object: Arc<Object>, weight: u64) {
        let table_key = self.table_key(variant);
        self.removed
            .extend(self.shard.insert(table_key, object, weight));
    }

    /// Removes a variant from the table, if its object is still this one.
    pub fn remove(&mut self, variant: u128, object: &Arc<Object>) {
        if self.holds(variant, object) {
            self.removed
                .extend(self.shard.remove(self.table_key(variant)));
            self.shard.prune(self.primary);
        }
    }

    /// Removes one variant: of those without a flight in progress, the variant whose flight began first. Returns whether there was one.
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

    /// Removes all variants.
    pub fn clear(&mut self) {
        self.clear_but(None);
        self.shard.prune(self.primary);
    }

    fn clear_but(&mut self, kept: Option<u128>) {
        for (variant, _) in self.all() {
            if Some(variant) != kept {
                self.removed
                    .extend(self.shard.remove(self.table_key(variant)));
            }
        }
    }

    /// Whether the table has an object under this variant.
    pub(super) fn has(&self, variant: u128) -> bool {
        let entry = self.shard.entries.get(&self.primary);
        entry.is_some_and(|entry| entry.variants.iter().any(|v| v.hash == variant))
    }

    /// Sets the header names by which variants are selected, if the table has an object of this key.
    pub(super) fn set_vary(&mut self, names: Option<&VaryNames>) {
        if let Some(entry) = self.shard.entries.get_mut(&self.primary) {
            entry.vary = names.cloned();
        }
    }

    /// Whether the table has this object under this variant.
    pub fn holds(&self, variant: u128, object: &Arc<Object>) -> bool {
        self.shard.holds(self.table_key(variant), object)
    }

    /// Returns the resource history of this key.
    pub fn history(&self) -> ResourceHistory {
        let entry = self.shard.entries.get(&self.primary);
        entry
            .and_then(|entry| entry.history.as_deref())
            .copied()
            .unwrap_or_default()
    }

    /// Sets the resource history of this key, which stays as long as the table has an object of the key.
    pub fn set_history(&mut self, history: ResourceHistory) {
        if let Some(entry) = self.shard.entries.get_mut(&self.primary) {
            match &mut entry.history {
                Some(there) => **there = history,
                None if history == ResourceHistory::default() => {}
                none => *none = Some(Box::new(history)),
            }
        }
    }

    /// Notes the length of the latest response in the resource history, if the history is not empty or the response is `large`.
    pub(super) fn note_length(&mut self, length: Option<u64>, large: bool) {
        let mut history = self.history();
        if large || history != ResourceHistory::default() {
            history.length = length;
            self.set_history(history);
        }
    }

    pub(super) fn table_key(&self, variant: u128) -> TableKey {
        TableKey {
            primary: self.primary,
            variant,
        }
    }

    /// Moves the object of variant `from` to variant `to`, to which its response belongs according to its Vary. If the Vary names have
    /// changed, lookups can't find variants under the old names any more, and those are removed. Returns whether the object is still in the
    /// table.
    pub(super) fn refile(
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
        if self.vary() != names {
            self.clear_but(Some(from));
        }
        if from != to {
            self.removed
                .extend(self.shard.refile(self.table_key(from), to));
        }
        if let Some(entry) = self.shard.entries.get_mut(&self.primary) {
            entry.vary = names.cloned();
        }
        true
    }
}
