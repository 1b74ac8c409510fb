//! Births: which fetches have a number but no head yet. While there are any, rules newer than they
//! are may be needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::sync::Mutex;

/// A fetch's number, taken before its request is sent. Held until the head is where rules are
/// checked, or the fetch has ended.
#[derive(Clone)]
pub(in crate::store) struct Birth {
    pub(in crate::store) seq: u64,
    _era: Arc<()>,
}

/// Hands out births. Eras distinguish them, not single numbers: an era is over when none of its
/// births is held any more.
pub(in crate::store) struct Births {
    era: Mutex<Arc<()>>,
}

/// An era that no birth joins any more.
pub(in crate::store) struct Era(Arc<()>);

impl Birth {
    /// The same birth with an earlier number, for a fetch that is over and was not counted.
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

    /// Begins a new era. Births in it have greater numbers than any rule that was published in
    /// `latest` before.
    pub(in crate::store) fn turn(&self, latest: &AtomicU64) -> (u64, Era) {
        let mut era = self.era.lock();
        let latest = latest.load(Ordering::Acquire);
        (latest, Era(std::mem::replace(&mut era, Arc::new(()))))
    }
}

impl Era {
    /// Whether all births of this era and earlier ones have a head or have ended.
    pub(in crate::store) fn is_over(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
