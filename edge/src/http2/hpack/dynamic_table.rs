//! The dynamic table (RFC 7541 2.3.2, 4): a log of bytes, and an index of the entries in it.
//!
//! New entries are written to the end of the log, where they can be built from older ones before these are evicted. When
//! more than half of the log belongs to evicted entries, the others are moved to its start. So every entry is contiguous,
//! and the log takes at most twice the memory of its entries.

use std::collections::VecDeque;
use std::ops::Range;

/// The table size that both sides assume until SETTINGS_HEADER_TABLE_SIZE says otherwise (RFC 9113 6.5.2).
pub const DEFAULT_TABLE_SIZE: u32 = 4096;

/// The size in bytes that a field counts in addition to its name and value, in tables (RFC 7541 4.1) and in header lists
/// (RFC 9113 6.5.2).
pub const FIELD_OVERHEAD: usize = 32;

/// Largest size of a table, so that the lengths of names and values fit into 16 bits.
const SIZE_MAX: u32 = u16::MAX as u32;

/// The entries, of which the newest has index 0.
pub(super) struct DynamicTable {
    log: Vec<u8>,
    entries: VecDeque<Entry>,
    /// Size of all entries (RFC 7541 4.1).
    size: usize,
    size_max: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    start: u32,
    name: u16,
    value: u16,
    is_valid: bool,
}

impl Entry {
    fn size(self) -> usize {
        usize::from(self.name) + usize::from(self.value) + FIELD_OVERHEAD
    }

    fn name(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + usize::from(self.name)
    }

    fn value(self) -> Range<usize> {
        let start = self.name().end;
        start..start + usize::from(self.value)
    }
}

/// The parts of an entry as ranges of the log, which stay valid until `prepare` or `insert` is called.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) name: Range<usize>,
    pub(super) value: Range<usize>,
    /// Whether the field was found to be valid when it was inserted.
    pub(super) is_valid: bool,
}

impl DynamicTable {
    pub(super) fn new(size_max: u32) -> DynamicTable {
        DynamicTable {
            log: Vec::new(),
            entries: VecDeque::new(),
            size: 0,
            size_max: size_max.min(SIZE_MAX) as usize,
        }
    }

    /// Returns the largest size that the entries may have together (RFC 7541 4.1).
    pub(super) fn size_max(&self) -> u32 {
        self.size_max as u32
    }

    /// Changes the largest size, and evicts entries accordingly (RFC 7541 4.3).
    pub(super) fn set_size_max(&mut self, size_max: u32) {
        self.size_max = size_max.min(SIZE_MAX) as usize;
        self.evict(self.size_max);
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entry at an index, of which 0 is the newest one.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<Found> {
        let entry = *self
            .entries
            .get(self.entries.len().checked_sub(index + 1)?)?;
        Some(Found {
            name: entry.name(),
            value: entry.value(),
            is_valid: entry.is_valid,
        })
    }

    /// Returns the log, to which the caller may append bytes after `prepare`. It must not change those before.
    #[inline]
    pub(super) fn log(&mut self) -> &mut Vec<u8> {
        &mut self.log
    }

    /// Returns bytes of the log.
    #[inline]
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.log[range]
    }

    /// Makes room at the end of the log, if it is worth the move, and returns its length.
    #[inline]
    pub(super) fn prepare(&mut self) -> usize {
        let live = self
            .entries
            .front()
            .map_or(self.log.len(), |oldest| oldest.start as usize);
        if live > self.log.len() / 2 {
            self.move_to_start(live);
        }
        self.log.len()
    }

    fn move_to_start(&mut self, live: usize) {
        self.log.drain(..live);
        for entry in &mut self.entries {
            entry.start -= live as u32;
        }
    }

    /// Inserts an entry, whose name and value were appended to the log from `start` on, and evicts older ones. An entry
    /// larger than the table empties it (RFC 7541 4.4).
    pub(super) fn insert(&mut self, start: usize, name: usize, is_valid: bool) {
        let value = self.log.len() - start - name;
        let size = name + value + FIELD_OVERHEAD;
        if size > self.size_max {
            self.evict(0);
            self.log.clear();
            return;
        }
        self.evict(self.size_max - size);
        self.size += size;
        // Both lengths are below `SIZE_MAX`. The log is at most a header block longer than twice this size.
        self.entries.push_back(Entry {
            start: start as u32,
            name: name as u16,
            value: value as u16,
            is_valid,
        });
    }

    /// Evicts the oldest entries until the others have at most this size.
    fn evict(&mut self, size: usize) {
        while self.size > size
            && let Some(oldest) = self.entries.pop_front()
        {
            self.size -= oldest.size();
        }
    }

    /// Frees memory that was needed only for strings outside the table. To be called between header blocks.
    pub(super) fn trim(&mut self) {
        if self.log.capacity() > 4 * self.size_max.max(256) {
            self.prepare();
            self.log.shrink_to(2 * self.size_max);
        }
    }

    /// Returns the heap memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.log.capacity() + self.entries.capacity() * size_of::<Entry>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn insert(table: &mut DynamicTable, name: &[u8], value: &[u8]) {
        let start = table.prepare();
        table.log().extend_from_slice(name);
        table.log().extend_from_slice(value);
        table.insert(start, name.len(), true);
    }

    proptest! {
        #[test]
        fn the_table_holds_the_newest_entries_that_fit(
            steps in prop::collection::vec(
                (0usize..40, 0usize..90, prop::option::weighted(0.1, 0u32..300)),
                1..300,
            )
        ) {
            let mut table = DynamicTable::new(256);
            let mut model: VecDeque<(Vec<u8>, Vec<u8>)> = VecDeque::new();
            let mut size_max = 256;
            for (n, (name, value, resize)) in steps.into_iter().enumerate() {
                let (name, value) = (vec![n as u8; name], vec![!(n as u8); value]);
                if let Some(size) = resize {
                    size_max = size as usize;
                    table.set_size_max(size);
                }
                insert(&mut table, &name, &value);
                model.push_front((name, value));
                let sizes = model.iter().scan(0, |sum, (name, value)| {
                    *sum += name.len() + value.len() + FIELD_OVERHEAD;
                    Some(*sum)
                });
                let fitting = sizes.take_while(|sum| *sum <= size_max).count();
                model.truncate(fitting);
                prop_assert_eq!(table.len(), model.len());
                for (index, (name, value)) in model.iter().enumerate() {
                    let found = table.get(index).expect("an entry");
                    prop_assert_eq!(table.bytes(found.name), &name[..]);
                    prop_assert_eq!(table.bytes(found.value), &value[..]);
                }
                prop_assert!(table.get(model.len()).is_none());
                prop_assert!(table.log.len() <= 2 * 300 + 130, "{}", table.log.len());
            }
        }
    }
}
