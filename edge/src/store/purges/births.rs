//! Births: the fetches that have a sequence number but no head yet. While there are any, purge rules with greater numbers may still be
//! needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::sync::Mutex;

/// The sequence number of a fetch, taken before its request is sent. A birth is held until the head was checked against the purge rules, or
/// the fetch has ended.
#[derive(Clone)]
pub(in crate::store) struct Birth {
    pub(in crate::store) seq: u64,
    _era: Arc<()>,
}

/// Creates births, and groups them into eras instead of tracking each number: an era is over when none of its births is held any more.
pub(in crate::store) struct Births {
    era: Mutex<Arc<()>>,
}

/// An era to which no further birth is added.
pub(in crate::store) struct Era(Arc<()>);

impl Birth {
    /// Returns this birth with another, earlier number, for a fetch that has ended and had no birth of its own.
    pub(in crate::store) fn at(self, seq: u64) -> Birth {
        Birth { seq, ..self }
    }
}

impl Births {
    pub(in crate::store) fn new() -> Births {
        Births {
            era: Mutex::new(Arc::new(())),
        }
    }

    pub(in crate::store) fn begin(&self, sequence: &AtomicU64) -> Birth {
        let era = self.era.lock();
        Birth {
            seq: sequence.fetch_add(1, Ordering::SeqCst),
            _era: era.clone(),
        }
    }

    /// Begins a new era, and returns the number of the newest rule in `latest` and the era before. Births of the new era have greater
    /// numbers than that rule.
    pub(in crate::store) fn turn(&self, latest: &AtomicU64) -> (u64, Era) {
        let mut era = self.era.lock();
        let latest = latest.load(Ordering::Acquire);
        (latest, Era(std::mem::replace(&mut era, Arc::new(()))))
    }
}

impl Era {
    /// Whether all births of this era and of earlier ones were released: their fetches have a head or have ended.
    pub(in crate::store) fn is_over(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
