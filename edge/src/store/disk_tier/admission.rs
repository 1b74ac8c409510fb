//! Admission to volumes: remembers which keys were requested lately, for caches that write objects only at the second request.

use std::sync::atomic::{AtomicU32, Ordering};

/// The keys requested lately: a table of fixed size in which newer keys replace older ones.
pub(super) struct RecentKeys(Box<[AtomicU32]>);

/// Number of keys that the table holds; a power of two.
const ASKED: usize = 1 << 20;

impl RecentKeys {
    pub(super) fn new() -> RecentKeys {
        RecentKeys((0..ASKED).map(|_| AtomicU32::new(0)).collect())
    }

    /// Records a request for a key. Returns whether the table still had an earlier request for this key.
    pub(super) fn again(&self, primary: u128) -> bool {
        let at = (primary >> 32) as usize & (ASKED - 1);
        let mark = (primary >> 96) as u32 | 1;
        self.0[at].swap(mark, Ordering::Relaxed) == mark
    }
}
