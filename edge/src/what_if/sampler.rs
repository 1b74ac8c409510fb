//! The workers' part: counts each reference, and hands the sampled ones over.

use std::cell::RefCell;
use std::sync::Arc;

use super::counts::Counts;
use super::reference::{Outcome, Reference};
use super::ring::Ring;
use super::watched::Watched;

/// One worker's part for all caches: its queue, and its counts for each cache.
pub struct Worker {
    ring: Arc<Ring>,
    counts: RefCell<Vec<(u16, Arc<Counts>)>>,
}

impl Worker {
    pub(super) fn new(ring: Arc<Ring>) -> Worker {
        Worker {
            ring,
            counts: RefCell::default(),
        }
    }

    /// Creates the sampler of a cache on this worker.
    pub fn sampler(&self, watched: &Arc<Watched>) -> Sampler {
        let mut all = self.counts.borrow_mut();
        let known = all.iter().find(|(number, _)| *number == watched.number);
        let counts = match known {
            Some((_, counts)) => counts.clone(),
            None => {
                let counts = watched.join();
                // The counts of caches that exist no longer are not kept.
                all.retain(|(_, counts)| Arc::strong_count(counts) > 1);
                all.push((watched.number, counts.clone()));
                counts
            }
        };
        Sampler {
            watched: watched.clone(),
            counts,
            ring: self.ring.clone(),
        }
    }
}

/// The use of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitUse {
    /// Number of the block in its object; 0 if the object is one unit.
    pub block: u64,
    /// Content of the unit, in bytes.
    pub bytes: u64,
    /// The result in the real cache.
    pub outcome: Outcome,
    /// Whether the unit is the first one of its request.
    pub first: bool,
}

/// The data of a unit that only a sampled reference needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitState {
    /// Memory that the unit takes, in bytes.
    pub weight: u64,
    /// Current time, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// End of the freshness lifetime, in milliseconds since the Unix epoch.
    pub fresh_until_ms: u64,
}

/// One worker's access to the simulation of one cache.
pub struct Sampler {
    watched: Arc<Watched>,
    counts: Arc<Counts>,
    ring: Arc<Ring>,
}

impl Sampler {
    /// Counts a use of a unit of the object with this hash, and hands it over if the unit is sampled. `state` is called only then.
    #[inline]
    pub fn note(&self, object: u64, unit: &UnitUse, state: impl FnOnce() -> UnitState) {
        self.count(unit);
        let hash = self.watched.filter.hash(object, unit.block);
        if self.watched.filter.samples(hash) {
            self.hand_over(hash, unit, state());
        }
    }

    #[inline]
    fn count(&self, unit: &UnitUse) {
        let counts = &*self.counts;
        counts.bytes.add(unit.bytes);
        if unit.first {
            counts.requests.add(1);
        }
        if unit.outcome != Outcome::Hit {
            counts.missed.add(u64::from(unit.first));
            if unit.outcome == Outcome::Missed {
                counts.missed_bytes.add(unit.bytes);
            }
        }
    }

    fn hand_over(&self, hash: u64, unit: &UnitUse, state: UnitState) {
        let reference = Reference {
            hash,
            cache: self.watched.number,
            now_ms: state.now_ms,
            fresh_until_ms: state.fresh_until_ms,
            weight: state.weight,
            bytes: unit.bytes,
            outcome: unit.outcome,
            first: unit.first,
        };
        if !self.ring.push(&reference) {
            self.counts.dropped.add(1);
        }
    }
}
