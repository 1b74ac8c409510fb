//! What-if: estimates the hit ratio that each cache would have with more or less memory.
//!
//! Workers hash the key of each used object, and hand the uses of a sample over (`sampler`, `filter`, `ring`). One thread replays them in
//! miniature caches of several sizes, which evict by the cache's own policy (`simulation`, `miniature`).

mod counts;
mod filter;
mod miniature;
mod reference;
mod ring;
mod sampler;
mod simulation;
mod watched;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::telemetry::MemoryMax;

pub use counts::Ratios;
pub use filter::mix;
pub use reference::{Outcome, Reference};
use ring::{RING_BYTES, RING_LEN, Ring};
pub use sampler::{Sampler, UnitState, UnitUse, Worker};
use simulation::UNIT_BYTES_MAX;
pub use simulation::{Simulation, Size, TIMES};
use watched::{Budget, State};
pub use watched::{CacheOptions, Report, Watched};

/// Largest number of caches that are simulated. Further ones have no estimates.
pub const CACHES_MAX: usize = 64;
/// Number of units in the largest miniature caches of all caches together; more for many caches, because of `UNITS_MIN`.
const UNITS: usize = 65_536;
/// Largest number of units in the largest miniature cache of one cache.
pub const UNITS_MAX: usize = 32_768;
/// Smallest number of units that the simulation of a cache may have.
const UNITS_MIN: usize = 2048;
/// Number of sampled references per second of all caches together, which bounds the time of the simulation.
const REFERENCES_MAX: u64 = 3000;

/// Returns the most memory that the simulations of this number of caches take.
pub fn memory_max(caches: usize) -> MemoryMax {
    let caches = caches.min(CACHES_MAX);
    let units = caches * units_of_each(caches);
    MemoryMax {
        shared: (units * UNIT_BYTES_MAX) as u64,
        per_worker: RING_BYTES as u64,
    }
}

/// Returns the number of units in the largest miniature cache of each of these caches.
fn units_of_each(caches: usize) -> usize {
    (UNITS / caches.max(1)).clamp(UNITS_MIN, UNITS_MAX)
}

/// The simulations of all caches.
#[derive(Default)]
pub struct WhatIf {
    caches: Mutex<Caches>,
    /// The queue of each worker.
    rings: Mutex<Vec<Arc<Ring>>>,
}

#[derive(Default)]
struct Caches {
    by_name: BTreeMap<String, Arc<Watched>>,
    next_number: u16,
}

impl WhatIf {
    /// Creates the part of one more worker.
    pub fn worker(&self) -> Worker {
        let ring = Arc::new(Ring::new());
        self.rings.lock().push(ring.clone());
        Worker::new(ring)
    }

    /// Simulates these caches from now on. A cache with the same eviction policy keeps its simulation. `secret` returns random numbers.
    pub fn follow(
        &self,
        caches: impl ExactSizeIterator<Item = (String, CacheOptions)>,
        mut secret: impl FnMut() -> u64,
    ) {
        let count = caches.len().clamp(1, CACHES_MAX);
        let budget = Budget {
            units: units_of_each(count),
            references: REFERENCES_MAX / count as u64,
        };
        let mut all = self.caches.lock();
        let mut before = std::mem::take(&mut all.by_name);
        for (name, options) in caches.take(CACHES_MAX) {
            let kept = before.remove(&name);
            let watched = match kept.filter(|kept| kept.evict == options.evict) {
                Some(kept) => {
                    kept.resize(options.size, budget);
                    kept
                }
                None => {
                    all.next_number = all.next_number.wrapping_add(1);
                    Arc::new(Watched::new(all.next_number, secret(), options, budget))
                }
            };
            all.by_name.insert(name, watched);
        }
    }

    /// Returns the simulation of a cache, for `Worker::sampler`.
    pub fn watched(&self, name: &str) -> Option<Arc<Watched>> {
        self.caches.lock().by_name.get(name).cloned()
    }

    /// Replays the references that the workers have handed over. `elapsed_us` is the time since the last call, in microseconds. Only one
    /// thread may call this. Returns the number of references.
    pub fn replay(&self, elapsed_us: u64) -> usize {
        let caches: Vec<Arc<Watched>> = self.caches.lock().by_name.values().cloned().collect();
        let rings = self.rings.lock().clone();
        let mut states: Vec<(u16, MutexGuard<'_, State>)> = caches
            .iter()
            .map(|watched| (watched.number, watched.lock()))
            .collect();
        let mut replayed = 0;
        for ring in rings {
            for reference in std::iter::from_fn(|| ring.pop()).take(RING_LEN) {
                replayed += 1;
                let state = states
                    .iter_mut()
                    .find(|(number, _)| *number == reference.cache);
                if let Some((_, state)) = state {
                    state.note(&reference);
                }
            }
        }
        for (watched, (_, state)) in caches.iter().zip(&mut states) {
            watched.finish(state, elapsed_us);
        }
        replayed
    }

    /// Reports the estimates of each cache.
    pub fn report(&self) -> BTreeMap<String, Report> {
        let caches = self.caches.lock().by_name.clone();
        let reports = caches
            .into_iter()
            .map(|(name, watched)| (name, watched.report()));
        reports.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_many_caches_is_bounded() {
        let shared = |caches| memory_max(caches).shared;
        assert_eq!(shared(0), 0);
        assert_eq!(shared(1), (UNITS_MAX * UNIT_BYTES_MAX) as u64);
        assert_eq!(shared(8), (UNITS * UNIT_BYTES_MAX) as u64);
        assert_eq!(shared(10 * CACHES_MAX), shared(CACHES_MAX));
        assert!(shared(CACHES_MAX) <= 128 << 20);
    }
}
