//! The table of known paths: files (content in memory, or an open file), folders, and absent paths.
//! The table has shards, each with a lock that is held for a single lookup.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use slab::Slab;
use smallvec::SmallVec;

use super::body::Large;
use crate::evict::{self, Policy};
use crate::http::FieldBlock;
use crate::http::coding::Coding;
use crate::sys::root::Stamp;
use crate::telemetry::FilesNumbers;

/// Number of shards, large enough that two workers seldom need the same one.
const SHARDS: usize = 16;

/// Bytes of an entry in addition to its name and content.
const BOOKKEEPING: u64 = 512;

/// The cached result of resolving one path.
pub(super) struct Entry {
    pub known: Known,
    /// When the entry was last checked, monotonic microseconds.
    checked_us: AtomicU64,
    /// Whether a request is checking the entry against the file system.
    is_checked: AtomicBool,
}

/// The result of resolving a path: a file, a folder, or the reason why nothing is served.
pub(super) enum Known {
    File(Box<File>),
    Folder,
    Absent,
    Denied,
}

/// A file as it is served.
pub(super) struct File {
    /// Id of the file's content; changed content has another id.
    pub id: u128,
    /// The file's stamp (such as size and times) when this value was made.
    pub stamp: Stamp,
    /// The response's header lines.
    pub head: FieldBlock,
    /// The value of ETag.
    pub etag: Box<[u8]>,
    pub content: Content,
    /// The precompressed forms of the file.
    pub coded: Coded,
}

/// Precompressed forms of a file, each a file of its own.
pub(super) type Coded = SmallVec<[(Coding, Box<File>); 1]>;

/// Location of a file's content.
#[derive(Clone)]
pub(super) enum Content {
    /// The complete content in memory.
    Memory(Bytes),
    /// A file that is not in memory, opened once for all responses.
    Open(Arc<Large>),
}

impl Entry {
    pub fn new(known: Known, now_us: u64) -> Entry {
        Entry {
            known,
            checked_us: AtomicU64::new(now_us),
            is_checked: AtomicBool::new(false),
        }
    }

    /// Returns the number of files that the entry keeps open.
    fn open_files(&self) -> u64 {
        match &self.known {
            Known::File(file) => file.open_files(),
            _ => 0,
        }
    }

    /// Whether the entry is due for a check and no other request is checking it. If true, the
    /// caller must check the entry, and then call `is_true` or `give_up_check`, or replace the
    /// entry.
    pub fn claim_check(&self, now_us: u64, valid_us: u64) -> bool {
        let age_us = now_us.saturating_sub(self.checked_us.load(Ordering::Relaxed));
        age_us >= valid_us && !self.is_checked.swap(true, Ordering::Relaxed)
    }

    /// Records that a check found the entry correct.
    pub fn is_true(&self, now_us: u64) {
        self.checked_us.store(now_us, Ordering::Relaxed);
        self.is_checked.store(false, Ordering::Relaxed);
    }

    /// Records that the check failed, so that another request may check.
    pub fn give_up_check(&self) {
        self.is_checked.store(false, Ordering::Relaxed);
    }
}

impl File {
    /// Returns the length of the content in bytes.
    pub fn length(&self) -> u64 {
        self.stamp.size
    }

    fn open_files(&self) -> u64 {
        let beside = self.coded.iter().map(|(_, file)| file.open_files());
        u64::from(matches!(self.content, Content::Open(_))) + beside.sum::<u64>()
    }

    fn weight(&self, of_open: u64) -> u64 {
        let content = match &self.content {
            Content::Memory(bytes) => bytes.len() as u64,
            Content::Open(_) => of_open,
        };
        let coded: u64 = self
            .coded
            .iter()
            .map(|(_, file)| file.weight(of_open))
            .sum();
        BOOKKEEPING + self.head.memory() as u64 + content + coded
    }
}

/// The table of a folder's known paths.
pub(super) struct Table {
    shards: Box<[Mutex<Shard>]>,
    hasher: foldhash::fast::RandomState,
    /// Limit of one shard in bytes.
    limit: u64,
    /// Bytes of memory charged for each open file. The charge limits the number of open files.
    of_open: u64,
}

struct Shard {
    ids: HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>,
    entries: Slab<(Box<[u8]>, Arc<Entry>)>,
    policy: Box<dyn Policy + Send>,
    open: u64,
    loaded: u64,
}

impl Table {
    /// Creates a table limited to this many bytes and open files.
    pub fn new(memory: u64, open: u64) -> Table {
        let shard = |_| {
            Mutex::new(Shard {
                ids: HashMap::default(),
                entries: Slab::new(),
                policy: evict::Kind::S3Fifo.build(),
                open: 0,
                loaded: 0,
            })
        };
        let limit = memory / SHARDS as u64;
        Table {
            shards: (0..SHARDS).map(shard).collect(),
            hasher: foldhash::fast::RandomState::default(),
            limit,
            // An open file must fit into a shard; otherwise it would be opened for each request.
            of_open: (memory / open.max(1)).min(limit / 2),
        }
    }

    /// Looks up a path.
    #[inline]
    pub fn find(&self, path: &[u8]) -> Option<Arc<Entry>> {
        let shard = &mut *self.shard(path).lock();
        let id = *shard.ids.get(path)?;
        shard.policy.touch(id);
        shard
            .entries
            .get(id as usize)
            .map(|(_, entry)| entry.clone())
    }

    /// Inserts or replaces a path, and evicts entries that no longer fit.
    pub fn put(&self, path: &[u8], entry: Arc<Entry>) {
        // The path is stored twice, in the map and in the slab.
        let weight = 2 * path.len() as u64
            + match &entry.known {
                Known::File(file) => file.weight(self.of_open),
                _ => BOOKKEEPING,
            };
        let hash = self.hasher.hash_one(path);
        // Entries are dropped after the lock is released, because that frees memory and closes
        // files.
        let mut gone: SmallVec<[Arc<Entry>; 4]> = SmallVec::new();
        let shard = &mut *self.shard(path).lock();
        gone.extend(shard.take(path));
        shard.loaded += 1;
        let open = entry.open_files();
        let Ok(id) = u32::try_from(shard.entries.insert((path.into(), entry))) else {
            return;
        };
        shard.ids.insert(path.into(), id);
        shard.open += open;
        shard.policy.track(id, hash, weight);
        while shard.policy.weight() > self.limit {
            let Some(victim) = shard.policy.evict() else {
                break;
            };
            if let Some((path, entry)) = shard.entries.try_remove(victim as usize) {
                shard.ids.remove(&path);
                shard.open -= entry.open_files();
                gone.push(entry);
            }
        }
    }

    /// Returns the current numbers of the table, without the limit.
    pub fn numbers(&self) -> FilesNumbers {
        let mut numbers = FilesNumbers::default();
        for shard in &self.shards {
            let shard = shard.lock();
            numbers.entries += shard.entries.len() as u64;
            numbers.bytes += shard.policy.weight();
            numbers.open += shard.open;
            numbers.loaded += shard.loaded;
        }
        numbers
    }

    fn shard(&self, path: &[u8]) -> &Mutex<Shard> {
        // The shard is chosen by high bits of the hash, because the shard's own map uses the low
        // bits.
        let at = (self.hasher.hash_one(path) >> 57) as usize % SHARDS;
        &self.shards[at]
    }
}

impl Shard {
    fn take(&mut self, path: &[u8]) -> Option<Arc<Entry>> {
        let id = self.ids.remove(path)?;
        self.policy.forget(id);
        let (_, entry) = self.entries.try_remove(id as usize)?;
        self.open -= entry.open_files();
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_do_not_fit_are_evicted() {
        let table = Table::new(SHARDS as u64 * 4 * (BOOKKEEPING + 8), 10);
        for n in 0..10_000_u32 {
            let path = format!("{n:08}");
            table.put(path.as_bytes(), Arc::new(Entry::new(Known::Absent, 0)));
            assert!(table.find(path.as_bytes()).is_some(), "the newest is there");
        }
        let count: usize = table.shards.iter().map(|s| s.lock().entries.len()).sum();
        assert!((SHARDS..=4 * SHARDS).contains(&count), "{count}");
        for shard in &table.shards {
            let shard = shard.lock();
            assert_eq!(shard.entries.len(), shard.ids.len());
            assert_eq!(shard.entries.len(), shard.policy.len());
        }
    }

    #[test]
    fn one_request_checks_while_others_use_the_cached_entry() {
        let entry = Entry::new(Known::Folder, 1000);
        assert!(!entry.claim_check(1999, 1000));
        assert!(entry.claim_check(2000, 1000));
        assert!(!entry.claim_check(2000, 1000));
        entry.is_true(2000);
        assert!(!entry.claim_check(2500, 1000));
        assert!(entry.claim_check(3000, 1000));
        entry.give_up_check();
        assert!(entry.claim_check(3000, 1000));
    }
}
