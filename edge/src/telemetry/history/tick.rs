//! The moments at which readings are recorded, and the steps of rings that end at them.

use std::ops::Range;

/// Largest difference between the clocks at which a tick counts as regular, in seconds.
const JITTER_S: f64 = 0.5;
/// Longest delay of a tick, in seconds, after which its readings still fill all steps since the one before. After a
/// longer delay, for example in a virtual machine that was stopped, the history has a gap.
const FILLED_S: f64 = 15.0;

/// A moment, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Unix time in whole seconds.
    pub unix_s: u64,
    /// Time of the monotonic clock in microseconds.
    pub monotonic_us: u64,
}

/// The time between two moments at which readings were taken one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tick {
    before_s: u64,
    now_s: u64,
    elapsed_s: f64,
}

impl Tick {
    /// Returns the time between two moments.
    pub fn between(before: Moment, now: Moment) -> Tick {
        let elapsed_s = now.monotonic_us.saturating_sub(before.monotonic_us) as f64 / 1e6;
        let whole_s = now.unix_s as f64 - before.unix_s as f64;
        Tick {
            before_s: before.unix_s,
            now_s: now.unix_s,
            // A rate over a whole number of seconds shows a single request as a whole number.
            elapsed_s: match (elapsed_s - whole_s).abs() < JITTER_S {
                true => whole_s,
                false => elapsed_s,
            },
        }
    }

    /// Returns the Unix time at which the tick began, in seconds.
    pub fn before_s(&self) -> u64 {
        self.before_s
    }

    /// Returns the Unix time of the tick, in seconds.
    pub fn now_s(&self) -> u64 {
        self.now_s
    }

    /// Returns the length of the tick in seconds, whatever happened to the clock.
    pub fn elapsed_s(&self) -> f64 {
        self.elapsed_s
    }

    /// Returns the numbers of the steps that ended in this tick and for which its readings stand. `None`: no step ended.
    pub(super) fn ended(&self, step_s: u32) -> Option<Range<u64>> {
        let step_s = u64::from(step_s);
        let (before, now) = (self.before_s / step_s, self.now_s / step_s);
        if before >= now {
            return None;
        }
        Some(match self.is_filled() {
            true => before..now,
            false => now - 1..now,
        })
    }

    /// Whether the readings stand for all the time since the ones before.
    pub(super) fn is_filled(&self) -> bool {
        let whole_s = self.now_s.saturating_sub(self.before_s) as f64;
        self.elapsed_s <= FILLED_S && whole_s <= self.elapsed_s + JITTER_S
    }

    /// Whether the clock was set back, so that steps that have begun will not end.
    pub(super) fn is_backwards(&self, step_s: u32) -> bool {
        self.now_s / u64::from(step_s) < self.before_s / u64::from(step_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(before: (u64, u64), now: (u64, u64)) -> Tick {
        let moment = |(unix_s, ms): (u64, u64)| Moment {
            unix_s,
            monotonic_us: ms * 1000,
        };
        Tick::between(moment(before), moment(now))
    }

    #[test]
    fn a_regular_tick_ends_its_steps() {
        let regular = tick((99, 5_000), (100, 6_003));
        assert_eq!(regular.elapsed_s(), 1.0);
        assert_eq!(regular.ended(1), Some(99..100));
        assert_eq!(regular.ended(10), Some(9..10));
        assert_eq!(tick((100, 0), (101, 1_000)).ended(10), None);
    }

    #[test]
    fn a_late_tick_fills_the_steps_since_the_one_before() {
        assert_eq!(tick((100, 0), (103, 3_100)).ended(1), Some(100..103));
        let stopped = tick((100, 0), (4_000, 3_900_000));
        assert_eq!(stopped.ended(1), Some(3_999..4_000));
    }

    #[test]
    fn a_clock_that_is_set_changes_no_rate() {
        let forward = tick((100, 0), (3_700, 1_000));
        assert_eq!(forward.elapsed_s(), 1.0);
        assert_eq!(forward.ended(1), Some(3_699..3_700));
        let back = tick((3_700, 0), (100, 1_000));
        assert_eq!((back.elapsed_s(), back.ended(1)), (1.0, None));
        assert!(back.is_backwards(1) && !forward.is_backwards(1));
        let twice = tick((100, 0), (100, 900));
        assert_eq!((twice.elapsed_s(), twice.ended(1)), (0.9, None));
    }
}
