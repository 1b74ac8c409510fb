//! The simulation of one cache at several sizes, with miniature caches of the sampled units.
//!
//! A miniature cache gets the sampled units only, and the same share of the capacity, so that it evicts what the whole cache would evict
//! (SHARDS, Waldspurger et al., FAST 2015; miniature simulations, ATC 2017). The number of misses divided by the sampled share estimates
//! the misses of the whole cache. All references are counted without sampling, and what did not miss was a hit. A popular unit, which is
//! a hit at every size, so changes no ratio by being in the sample or not (this is the correction SHARDS-adj).

use std::collections::HashMap;

use super::filter::Threshold;
use super::miniature::{ABSENT, Miniature};
use super::reference::{Outcome, Reference};
use crate::evict::Kind;

/// The simulated sizes, as multiples of the cache's size.
pub const TIMES: [f64; 6] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0];
const LARGEST: usize = TIMES.len() - 1;

/// Most memory of all sizes for each unit of the largest miniature cache, in bytes. Each size has an entry and a node of the policy for
/// each unit that it stores, in tables that are at most twice as large as needed. The rest is for the index and for ghosts.
pub(super) const UNIT_BYTES_MAX: usize = TIMES.len() * 2 * (32 + 32) + 256;

/// The size of the simulated cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Capacity in bytes.
    pub bytes: u64,
    /// Weight of the largest unit that is stored, in bytes.
    pub unit_max: u64,
    /// Whether `unit_max` grows with the capacity.
    pub unit_max_grows: bool,
}

/// The estimated misses of the whole cache at one size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Missed {
    /// Requests whose first unit was not stored, or had to be confirmed by the origin.
    pub requests: f64,
    /// Content of the units that had to be fetched, in bytes.
    pub bytes: f64,
}

/// The simulation of one cache at the sizes in `TIMES`.
pub struct Simulation {
    sizes: Vec<Simulated>,
    /// The ids of each sampled unit in the miniature caches; `ABSENT` where it is not stored.
    index: HashMap<u64, Ids, foldhash::fast::RandomState>,
    threshold: Threshold,
    size: Size,
    /// Number of units in the largest miniature cache from which on the sampled share is lowered.
    units_max: usize,
    /// Number of sampled references since the last `settle`.
    sampled: u64,
    /// The units that the current reference evicts, with the index of the size.
    evicted: Vec<(usize, u64)>,
}

type Ids = [u32; TIMES.len()];

/// The simulation of one size.
struct Simulated {
    cache: Miniature,
    /// Largest unit that this size stores, in bytes.
    unit_max: u64,
    /// Sampled misses since the last `settle`.
    requests: u64,
    bytes: u64,
    /// The estimate up to the last `settle`.
    missed: Missed,
}

impl Simulation {
    /// Creates a simulation with empty caches that samples all units, as long as the largest cache has at most `units_max` units.
    pub fn new(kind: Kind, size: Size, units_max: usize) -> Simulation {
        let simulated = |_| Simulated {
            cache: Miniature::new(kind),
            unit_max: 0,
            requests: 0,
            bytes: 0,
            missed: Missed::default(),
        };
        let mut simulation = Simulation {
            sizes: TIMES.iter().map(simulated).collect(),
            index: HashMap::default(),
            threshold: Threshold::ALL,
            size,
            units_max,
            sampled: 0,
            evicted: Vec::new(),
        };
        simulation.apply_size();
        simulation
    }

    /// Returns the sampled share of units.
    pub fn threshold(&self) -> Threshold {
        self.threshold
    }

    /// Returns the size that is simulated as once the size.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Changes the size of the cache, and the number of units to follow. Units stay as far as they fit.
    pub fn resize(&mut self, size: Size, units_max: usize) {
        self.size = size;
        self.units_max = units_max;
        self.apply_size();
    }

    /// Replays a reference, unless its unit is not sampled.
    pub fn note(&mut self, reference: &Reference) {
        if !self.threshold.samples(reference.hash) {
            return;
        }
        self.sampled += 1;
        let before = self.index.get(&reference.hash).copied();
        let mut ids = before.unwrap_or([ABSENT; TIMES.len()]);
        for (at, size) in self.sizes.iter_mut().enumerate() {
            let evicted = &mut self.evicted;
            ids[at] = size.note(ids[at], reference, &mut |hash| evicted.push((at, hash)));
        }
        if before != Some(ids) {
            self.file(reference.hash, ids);
        }
        self.unfile_evicted();
        while self.sizes[LARGEST].cache.len() > self.units_max {
            let before = self.threshold;
            self.lower(6);
            if self.threshold == before {
                break;
            }
        }
    }

    /// Adds the misses since the last call to the estimate, and returns the number of sampled references since then. `factor` is the
    /// number of references, divided by those that were replayed, if some were lost on the way.
    pub fn settle(&mut self, factor: f64) -> u64 {
        let scale = factor / self.threshold.share();
        for size in &mut self.sizes {
            size.missed.requests += std::mem::take(&mut size.requests) as f64 * scale;
            size.missed.bytes += std::mem::take(&mut size.bytes) as f64 * scale;
        }
        std::mem::take(&mut self.sampled)
    }

    /// Lowers the sampled share to `eighths/8` of what it is. The units that are no longer sampled are forgotten, and the capacities
    /// reduced likewise.
    pub(super) fn lower(&mut self, eighths: u64) {
        let sampled = self.settle(1.0);
        self.sampled = sampled;
        self.threshold = self.threshold.eighths(eighths);
        let (threshold, sizes) = (self.threshold, &mut self.sizes);
        self.index.retain(|hash, ids| {
            let stays = threshold.samples(*hash);
            if !stays {
                for (size, id) in sizes.iter_mut().zip(ids) {
                    size.cache.remove(*id);
                }
            }
            stays
        });
        self.index.shrink_to(2 * self.index.len());
        self.apply_size();
    }

    /// Doubles the sampled share. The units that are sampled from now on are not known yet, so the estimate begins again.
    pub(super) fn raise(&mut self) {
        self.threshold = self.threshold.doubled();
        self.apply_size();
        self.restart();
    }

    /// Whether the largest cache has few units compared with its bound.
    pub(super) fn is_small(&self) -> bool {
        self.sizes[LARGEST].cache.len() < self.units_max / 4
    }

    /// Sets the estimate to zero. The units in the caches stay.
    pub fn restart(&mut self) {
        self.weaken(0.0);
        for size in &mut self.sizes {
            (size.requests, size.bytes) = (0, 0);
        }
        self.sampled = 0;
    }

    /// Multiplies the estimate with `factor`, so that earlier misses count less than later ones.
    pub(super) fn weaken(&mut self, factor: f64) {
        for size in &mut self.sizes {
            size.missed.requests *= factor;
            size.missed.bytes *= factor;
        }
    }

    /// Returns the estimate for each size in `TIMES`, up to the last `settle`.
    pub fn missed(&self) -> impl Iterator<Item = Missed> {
        self.sizes.iter().map(|size| size.missed)
    }

    /// Gives each miniature cache the capacity for the sampled share.
    fn apply_size(&mut self) {
        let (share, size) = (self.threshold.share(), self.size);
        for (at, (simulated, times)) in self.sizes.iter_mut().zip(TIMES).enumerate() {
            simulated.unit_max = match size.unit_max_grows {
                true => (size.unit_max as f64 * times) as u64,
                false => size.unit_max,
            };
            let capacity = size.bytes as f64 * times * share;
            let evicted = &mut self.evicted;
            simulated
                .cache
                .resize(capacity as u64, &mut |hash| evicted.push((at, hash)));
        }
        self.unfile_evicted();
    }

    /// Notes in the index where a unit is stored.
    fn file(&mut self, hash: u64, ids: Ids) {
        if ids == [ABSENT; TIMES.len()] {
            self.index.remove(&hash);
        } else {
            self.index.insert(hash, ids);
        }
    }

    /// Notes in the index which units have been evicted.
    fn unfile_evicted(&mut self) {
        while let Some((at, hash)) = self.evicted.pop() {
            if let Some(ids) = self.index.get_mut(&hash) {
                ids[at] = ABSENT;
                if *ids == [ABSENT; TIMES.len()] {
                    self.index.remove(&hash);
                }
            }
        }
    }
}

impl Simulated {
    /// Replays a reference to a unit that has this id or is absent. Returns the id that it has afterwards.
    fn note(&mut self, id: u32, reference: &Reference, evicted: &mut impl FnMut(u64)) -> u32 {
        let Reference {
            hash,
            weight,
            fresh_until_ms,
            ..
        } = *reference;
        if id != ABSENT {
            self.cache.touch(id, weight);
            // A response that the real cache served without asking may be served at this size, too, even if it was stored later.
            if reference.outcome == Outcome::Hit || self.cache.is_fresh(id, reference.now_ms) {
                return id;
            }
            self.cache.renew(id, fresh_until_ms);
            self.count(reference, reference.outcome == Outcome::Missed);
            return id;
        }
        self.count(reference, true);
        match weight <= self.unit_max {
            true => self.cache.insert(hash, fresh_until_ms, weight, evicted),
            false => None,
        }
        .unwrap_or(ABSENT)
    }

    /// Counts a miss.
    fn count(&mut self, reference: &Reference, fetched: bool) {
        self.requests += u64::from(reference.first);
        if fetched {
            self.bytes += reference.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::mix;
    use super::*;

    const NEVER: u64 = 1 << 40;

    fn size(bytes: u64) -> Size {
        Size {
            bytes,
            unit_max: bytes,
            unit_max_grows: true,
        }
    }

    fn reference(key: u64, weight: u64) -> Reference {
        Reference {
            hash: mix(key),
            cache: 0,
            now_ms: 1000,
            fresh_until_ms: NEVER,
            weight,
            bytes: weight,
            outcome: Outcome::Missed,
            first: true,
        }
    }

    fn requests(simulation: &mut Simulation) -> Vec<f64> {
        simulation.settle(1.0);
        simulation.missed().map(|missed| missed.requests).collect()
    }

    fn memory(simulation: &Simulation) -> usize {
        let sizes = simulation.sizes.iter();
        let index = simulation.index.capacity() * 8 / 7 * (size_of::<(u64, Ids)>() + 1);
        sizes.map(|size| size.cache.memory()).sum::<usize>() + index
    }

    // At first each size stores all units, later the larger ones store many and all have evicted others.
    #[test]
    fn memory_is_bounded_by_the_units_of_the_largest_size() {
        for kind in [Kind::Lru, Kind::S3Fifo] {
            let mut simulation = Simulation::new(kind, size(1 << 20), 1100);
            (0..2000).for_each(|n| simulation.note(&reference(n % 1100, 1)));
            let each = memory(&simulation) / 1100;
            assert!(
                (UNIT_BYTES_MAX / 2..UNIT_BYTES_MAX).contains(&each),
                "{each}"
            );
            simulation.resize(size(130), 1100);
            (0..20_000).for_each(|n| simulation.note(&reference(n % 3000, 1)));
            let each = memory(&simulation) / 1100;
            assert!(each < UNIT_BYTES_MAX, "{kind:?} {each}");
        }
    }

    // A cycle of ten units fits into the caches for ten units and more, and is never a hit in a smaller one.
    #[test]
    fn a_cycle_hits_in_every_size_that_it_fits_into() {
        let mut simulation = Simulation::new(Kind::Lru, size(5), 100);
        for n in 0..1000 {
            simulation.note(&reference(n % 10, 1));
        }
        let missed = requests(&mut simulation);
        assert_eq!(missed, [1000.0, 1000.0, 1000.0, 10.0, 10.0, 10.0]);
        simulation.weaken(0.5);
        assert_eq!(simulation.missed().last().expect("sizes").requests, 5.0);
        simulation.restart();
        assert_eq!(requests(&mut simulation), [0.0; 6]);
    }

    #[test]
    fn the_sampled_share_follows_the_number_of_units() {
        let mut simulation = Simulation::new(Kind::S3Fifo, size(10_000), 500);
        let references = 200_000_u64;
        for n in 0..references {
            simulation.note(&reference(n % 5000, 1));
            assert!(simulation.sizes[LARGEST].cache.len() <= 500);
        }
        let share = simulation.threshold().share();
        assert!((0.05..0.1).contains(&share), "{share}");
        // All units fit into the real size, so each was missed once at the sizes from it on.
        let missed = requests(&mut simulation);
        assert!((missed[2] / 5000.0 - 1.0).abs() < 0.3, "{missed:?}");
        simulation.raise();
        assert_eq!(simulation.threshold().share(), 2.0 * share);
        assert_eq!(requests(&mut simulation), [0.0; 6]);
    }

    #[test]
    fn the_index_has_exactly_the_units_of_the_caches() {
        let mut simulation = Simulation::new(Kind::S3Fifo, size(100), 300);
        for n in 0..20_000_u64 {
            let key = mix(n) % (1 + mix(n + 1) % 2000);
            simulation.note(&reference(key, 1 + key % 7));
            if n % 4000 == 3999 {
                simulation.resize(size(50 + n / 100), 300);
            }
        }
        for (at, size) in simulation.sizes.iter().enumerate() {
            let ids = simulation.index.values().filter(|ids| ids[at] != ABSENT);
            assert_eq!(ids.count(), size.cache.len());
        }
        let absent = [ABSENT; TIMES.len()];
        assert!(simulation.index.values().all(|ids| *ids != absent));
    }

    #[test]
    fn expired_units_are_misses_at_every_size() {
        let mut simulation = Simulation::new(Kind::Lru, size(100), 100);
        let mut one = reference(1, 1);
        for (now_ms, fresh_until_ms, outcome) in [
            (1000, 2000, Outcome::Missed),
            (1500, 2000, Outcome::Hit),
            // The origin confirms the response, which is not fetched again.
            (2500, 3000, Outcome::Validated),
            (2600, 3000, Outcome::Hit),
            // Served stale.
            (3500, 3000, Outcome::Hit),
            // The response has changed.
            (3600, 4000, Outcome::Missed),
        ] {
            one = Reference {
                now_ms,
                fresh_until_ms,
                outcome,
                ..one
            };
            simulation.note(&one);
        }
        assert_eq!(requests(&mut simulation), [3.0; 6]);
        assert!(simulation.missed().all(|missed| missed.bytes == 2.0));
    }

    // The second request is a miss of the real cache, which had evicted the unit, and so would the smaller ones. The larger ones
    // have the unit, which is still fresh.
    #[test]
    fn larger_caches_have_what_the_real_one_missed() {
        let mut simulation = Simulation::new(Kind::Lru, size(1), 100);
        for key in [1, 2, 1] {
            simulation.note(&reference(key, 1));
        }
        let missed = requests(&mut simulation);
        assert_eq!(missed, [3.0, 3.0, 3.0, 2.0, 2.0, 2.0]);
    }

    #[test]
    fn lost_references_are_estimated_from_the_others() {
        let mut simulation = Simulation::new(Kind::Lru, size(1), 100);
        simulation.note(&reference(1, 1));
        assert_eq!(simulation.settle(4.0), 1);
        assert!(simulation.missed().all(|missed| missed.requests == 4.0));
    }

    #[test]
    fn units_above_the_limit_are_never_stored() {
        let limited = Size {
            unit_max: 10,
            unit_max_grows: false,
            ..size(100)
        };
        let mut simulation = Simulation::new(Kind::Lru, limited, 100);
        for _ in 0..3 {
            simulation.note(&reference(1, 11));
            simulation.note(&reference(2, 10));
        }
        assert_eq!(requests(&mut simulation), [4.0; 6]);
    }
}
