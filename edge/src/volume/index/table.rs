//! The table of one shard of the index.

use hashbrown::HashTable;

use super::entry::{Entry, Key};

#[derive(Default)]
pub(super) struct Table {
    pub(super) entries: HashTable<Entry>,
    /// Records removed while the index loads. They must not be inserted again when an older table is loaded.
    pub(super) gone: Option<Box<HashTable<Key>>>,
}

impl Table {
    /// Inserts an entry that is not in the table; the table grows only if it is really full.
    pub(super) fn put(&mut self, entry: Entry) {
        let entries = &mut self.entries;
        if entries.len() == entries.capacity() && entries.num_buckets() > 8 {
            let full = entries.num_buckets() / 8 * 7;
            // Removed entries leave marks that count as full. Unless the table is nearly full of real entries, it is rebuilt at the same size,
            // which clears the marks. Growing instead would leave two thirds of the table empty permanently.
            let room = match entries.len() <= full / 16 * 15 {
                true => full,
                false => full + 1,
            };
            let old = std::mem::replace(entries, HashTable::with_capacity(room));
            for entry in old {
                entries.insert_unique(entry.hash, entry, |entry| entry.hash);
            }
        }
        entries.insert_unique(entry.hash, entry, |entry| entry.hash);
    }

    pub(super) fn find_mut(&mut self, key: Key) -> Option<&mut Entry> {
        self.entries.find_mut(key.hash, |entry| entry.is(key))
    }

    /// Removes the entry with this key, if `when` returns true for it. Returns the entry.
    pub(super) fn take(&mut self, key: Key, when: impl FnOnce(&Entry) -> bool) -> Option<Entry> {
        let found = self
            .entries
            .find_entry(key.hash, |entry| entry.is(key))
            .ok()
            .filter(|found| when(found.get()))?;
        let (entry, _) = found.remove();
        let (length, buckets) = (self.entries.len(), self.entries.num_buckets());
        if buckets > 16 && length < buckets / 8 {
            self.entries.shrink_to(length * 2, |entry| entry.hash);
        }
        Some(entry)
    }

    pub(super) fn is_gone(&self, key: Key) -> bool {
        self.gone
            .as_ref()
            .is_some_and(|gone| gone.find(key.hash, |other| *other == key).is_some())
    }

    pub(super) fn set_gone(&mut self, key: Key) {
        if !self.is_gone(key) {
            let gone = self.gone.get_or_insert_default();
            gone.insert_unique(key.hash, key, |key| key.hash);
        }
    }
}
