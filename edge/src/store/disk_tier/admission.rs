//! Admission to volumes: remembers which keys were requested lately, for caches that write objects only at the second request.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::store::table_key::Seeded;

/// The keys requested lately: a table of fixed size in which newer keys replace older ones.
pub(super) struct RecentKeys {
    marks: Box<[AtomicU32]>,
    /// Chooses the row of a key with a secret of the process, so that no client can choose a key that replaces another one.
    hashing: Seeded,
}

/// Number of keys that the table holds; a power of two.
const KEYS: usize = 1 << 20;

impl RecentKeys {
    pub(super) fn new() -> RecentKeys {
        RecentKeys {
            marks: (0..KEYS).map(|_| AtomicU32::new(0)).collect(),
            hashing: Seeded::default(),
        }
    }

    /// Records a request for a key. Returns whether the table still had an earlier request for this key.
    pub(super) fn again(&self, primary: u128) -> bool {
        let at = self.hashing.hash_one(primary) as usize & (KEYS - 1);
        let mark = (primary >> 96) as u32 | 1;
        self.marks[at].swap(mark, Ordering::Relaxed) == mark
    }
}
