//! Which keys were asked for lately, for what is written only when it is asked for again.

use std::sync::atomic::{AtomicU32, Ordering};

/// Which keys were asked for lately: a table of fixed size, in which newer ones take the places of
/// older ones.
pub(super) struct RecentKeys(Box<[AtomicU32]>);

/// Keys that it remembers at most; a power of two.
const ASKED: usize = 1 << 20;

impl RecentKeys {
    pub(super) fn new() -> RecentKeys {
        RecentKeys((0..ASKED).map(|_| AtomicU32::new(0)).collect())
    }

    /// Remembers that this key was asked for; whether it had been before.
    pub(super) fn again(&self, primary: u128) -> bool {
        let at = (primary >> 32) as usize & (ASKED - 1);
        let mark = (primary >> 96) as u32 | 1;
        self.0[at].swap(mark, Ordering::Relaxed) == mark
    }
}
