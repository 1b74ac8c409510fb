//! One cache whose references are sampled: what its workers share with the simulation, and the adaptation of the sampled share.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::counts::{Counts, Ratios, Totals};
use super::filter::Filter;
use super::reference::Reference;
use super::simulation::{Simulation, Size, TIMES};
use crate::evict::Kind;

/// Time between two checks of the sampled share. A check comes sooner if the references for this time have all been used.
const ADAPT_EVERY_US: u64 = 10_000_000;
/// Shortest time for which a rate of references is computed.
const ROUND_MIN_US: u64 = 100_000;
/// Number of checks in a row with few units and references after which the sampled share is raised.
const QUIET_CHECKS: u32 = 6;
/// Time after which what was counted before counts half.
const HALF_LIFE_US: u64 = 600_000_000;
/// Number of sampled references below which counts are not halved, however old they are.
const SAMPLES_MIN: f64 = 20_000.0;

/// The parts of a cache's options that a simulation needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheOptions {
    /// The eviction policy.
    pub evict: Kind,
    /// Size of the memory and the volumes together.
    pub size: Size,
}

/// Bounds for the simulation of one cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Budget {
    /// Number of units in the largest miniature cache.
    pub(super) units: usize,
    /// Number of sampled references per second.
    pub(super) references: u64,
}

/// A cache whose references are sampled.
pub struct Watched {
    /// Number by which references name the cache.
    pub(super) number: u16,
    pub(super) evict: Kind,
    pub(super) filter: Filter,
    /// The counts of each worker.
    counts: Mutex<Vec<Arc<Counts>>>,
    state: Mutex<State>,
}

/// The simulation with everything that was counted. Locked by the thread that drains, and for reports.
pub(super) struct State {
    simulation: Simulation,
    budget: Budget,
    /// The totals that are part of `all` and `missed`.
    counted: Totals,
    /// Requests and bytes of all references.
    all: (f64, f64),
    /// Requests and bytes of those that were no hits.
    missed: (f64, f64),
    /// Number of sampled references.
    sampled: f64,
    /// References since the last `finish`.
    received: u64,
    /// References and microseconds since the last check of the sampled share.
    checked: (u64, u64),
    quiet: u32,
    /// Time since the counts were halved.
    age_us: u64,
}

/// The estimate for one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The size as a multiple of the cache's size.
    pub times: f64,
    /// The size in bytes.
    pub bytes: u64,
    /// The estimated ratios; `None` without references.
    pub ratios: Option<Ratios>,
}

/// The result of the simulation of one cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The eviction policy.
    pub evict: Kind,
    /// Sampled share of the units, from 0 to 1.
    pub share: f64,
    /// Number of requests that the ratios are about. Requests of the last minutes count fully, and earlier ones less.
    pub requests: u64,
    /// Number of sampled references among them.
    pub sampled: u64,
    /// Number of sampled references that were lost since the start, because they came too fast.
    pub dropped: u64,
    /// The ratios of the real cache, counted without sampling.
    pub measured: Option<Ratios>,
    /// The estimates, with rising sizes.
    pub points: Vec<Point>,
}

impl Watched {
    pub(super) fn new(number: u16, secret: u64, options: CacheOptions, budget: Budget) -> Watched {
        Watched {
            number,
            evict: options.evict,
            filter: Filter::new(secret),
            counts: Mutex::new(Vec::new()),
            state: Mutex::new(State {
                simulation: Simulation::new(options.evict, options.size, budget.units),
                budget,
                counted: Totals::default(),
                all: (0.0, 0.0),
                missed: (0.0, 0.0),
                sampled: 0.0,
                received: 0,
                checked: (0, 0),
                quiet: 0,
                age_us: 0,
            }),
        }
    }

    /// Creates the counts of one more worker.
    pub(super) fn join(&self) -> Arc<Counts> {
        let counts = Arc::<Counts>::default();
        self.counts.lock().push(counts.clone());
        counts
    }

    /// Applies another size. The estimate begins again, since it was about another size.
    pub(super) fn resize(&self, size: Size, budget: Budget) {
        let totals = self.totals();
        let mut state = self.state.lock();
        let other_size = state.simulation.size() != size;
        state.budget = budget;
        state.simulation.resize(size, budget.units);
        if other_size {
            state.restart(totals);
        }
        self.filter.set(state.simulation.threshold());
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Ends a round in which references were replayed: counts them, and adapts the sampled share.
    pub(super) fn finish(&self, state: &mut State, elapsed_us: u64) {
        state.finish(self.totals(), elapsed_us);
        self.filter.set(state.simulation.threshold());
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.counts.lock().iter().for_each(|its| totals.add(its));
        totals
    }

    /// Reports the estimates.
    pub(super) fn report(&self) -> Report {
        let state = self.state.lock();
        let size = state.simulation.size().bytes;
        let points = TIMES.iter().zip(state.simulation.missed());
        Report {
            evict: self.evict,
            share: state.simulation.threshold().share(),
            requests: state.all.0 as u64,
            sampled: state.sampled as u64,
            dropped: state.counted.dropped,
            measured: Ratios::of(state.all, state.missed),
            points: points
                .map(|(times, missed)| Point {
                    times: *times,
                    bytes: (size as f64 * times) as u64,
                    ratios: Ratios::of(state.all, (missed.requests, missed.bytes)),
                })
                .collect(),
        }
    }
}

impl State {
    /// Replays a reference.
    pub(super) fn note(&mut self, reference: &Reference) {
        self.received += 1;
        self.simulation.note(reference);
    }

    fn finish(&mut self, totals: Totals, elapsed_us: u64) {
        let new = totals.since(&self.counted);
        self.counted = totals;
        let received = std::mem::take(&mut self.received);
        let factor = match received {
            0 => 1.0,
            some => (some + new.dropped) as f64 / some as f64,
        };
        self.sampled += self.simulation.settle(factor) as f64;
        self.all.0 += new.requests as f64;
        self.all.1 += new.bytes as f64;
        self.missed.0 += new.missed as f64;
        self.missed.1 += new.missed_bytes as f64;
        self.adapt(received, new.dropped, elapsed_us);
        self.age(elapsed_us);
    }

    /// Lowers the sampled share if there are too many references, and raises it if there were few for a long time.
    fn adapt(&mut self, received: u64, dropped: u64, elapsed_us: u64) {
        self.checked.0 += received;
        self.checked.1 += elapsed_us;
        if dropped > 0 {
            self.simulation.lower(4);
            (self.checked, self.quiet) = ((0, 0), 0);
        }
        let (references, time_us) = self.checked;
        let per_us = self.budget.references.max(1) as f64 / 1e6;
        let most = |time_us: u64| per_us * time_us.max(ROUND_MIN_US) as f64;
        if time_us < ADAPT_EVERY_US && references as f64 <= most(ADAPT_EVERY_US) {
            return;
        }
        self.checked = (0, 0);
        let mut used = references as f64 / most(time_us);
        while used > 1.0 {
            let eighths = if used > 2.0 { 4 } else { 6 };
            self.simulation.lower(eighths);
            used *= eighths as f64 / 8.0;
        }
        let is_quiet = used < 0.25 && self.simulation.is_small();
        let is_whole = self.simulation.threshold().share() >= 1.0;
        self.quiet = match is_quiet && !is_whole {
            true => self.quiet + 1,
            false => 0,
        };
        if self.quiet >= QUIET_CHECKS {
            self.quiet = 0;
            self.simulation.raise();
            self.restart(self.counted);
        }
    }

    /// Halves what was counted, if it is old.
    fn age(&mut self, elapsed_us: u64) {
        self.age_us += elapsed_us;
        if self.age_us < HALF_LIFE_US || self.sampled < SAMPLES_MIN {
            return;
        }
        self.age_us = 0;
        self.simulation.weaken(0.5);
        let numbers = [
            &mut self.all.0,
            &mut self.all.1,
            &mut self.missed.0,
            &mut self.missed.1,
            &mut self.sampled,
        ];
        numbers.into_iter().for_each(|number| *number *= 0.5);
    }

    /// Begins to count again, after these totals.
    fn restart(&mut self, totals: Totals) {
        self.simulation.restart();
        self.counted = totals;
        (self.all, self.missed) = ((0.0, 0.0), (0.0, 0.0));
        (self.sampled, self.received, self.age_us) = (0.0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::mix;
    use super::super::reference::Outcome;
    use super::*;

    const BUDGET: Budget = Budget {
        units: 1000,
        references: 1000,
    };

    fn watched() -> Watched {
        let size = Size {
            bytes: 100,
            unit_max: 100,
            unit_max_grows: true,
        };
        let evict = Kind::Lru;
        Watched::new(3, 5, CacheOptions { evict, size }, BUDGET)
    }

    fn reference(key: u64) -> Reference {
        Reference {
            hash: mix(key),
            cache: 3,
            now_ms: 0,
            fresh_until_ms: u64::MAX,
            weight: 1,
            bytes: 10,
            outcome: Outcome::Missed,
            first: true,
        }
    }

    fn requested(counts: &Counts, keys: impl Iterator<Item = u64>, state: &mut State) {
        for key in keys {
            counts.requests.add(1);
            counts.missed.add(1);
            counts.bytes.add(10);
            counts.missed_bytes.add(10);
            state.note(&reference(key));
        }
    }

    #[test]
    fn ratios_are_those_of_the_references() {
        let watched = watched();
        assert_eq!(watched.report().measured, None);
        let counts = watched.join();
        requested(&counts, (0..1000).map(|n| n % 150), &mut watched.lock());
        watched.finish(&mut watched.lock(), 100_000);
        let report = watched.report();
        assert_eq!(
            (report.requests, report.sampled, report.dropped),
            (1000, 1000, 0)
        );
        let ratios: Vec<f64> = report
            .points
            .iter()
            .map(|point| point.ratios.expect("references").requests)
            .collect();
        assert_eq!(ratios, [0.0, 0.0, 0.0, 0.85, 0.85, 0.85]);
        let none = Ratios {
            requests: 0.0,
            bytes: 0.0,
        };
        assert_eq!(report.measured, Some(none));
        assert_eq!(report.points[3].bytes, 200);
    }

    #[test]
    fn too_many_references_lower_the_sampled_share() {
        let watched = watched();
        let counts = watched.join();
        for _ in 0..20 {
            requested(&counts, 0..3000, &mut watched.lock());
            watched.finish(&mut watched.lock(), 100_000);
        }
        assert!(watched.report().share <= 0.5, "{}", watched.report().share);
        let share = watched.report().share;
        counts.dropped.add(1);
        watched.finish(&mut watched.lock(), 100_000);
        assert!(watched.report().share < share);
        assert_eq!(watched.report().dropped, 1);
        // After a minute with few references, more of them are sampled again.
        for _ in 0..70 {
            watched.finish(&mut watched.lock(), ADAPT_EVERY_US);
        }
        let raised = watched.report();
        assert!(raised.share > share / 2.0);
        assert_eq!(raised.requests, 0);
    }

    #[test]
    fn old_references_count_less_and_another_size_begins_again() {
        let watched = watched();
        let counts = watched.join();
        requested(&counts, 0..30_000, &mut watched.lock());
        watched.finish(&mut watched.lock(), HALF_LIFE_US);
        assert_eq!(watched.report().requests, 15_000);
        let size = watched.lock().simulation.size();
        watched.resize(size, BUDGET);
        assert_eq!(watched.report().requests, 15_000);
        let larger = Size { bytes: 200, ..size };
        watched.resize(larger, BUDGET);
        let report = watched.report();
        assert_eq!((report.requests, report.points[2].bytes), (0, 200));
        assert_eq!(report.measured, None);
    }
}
