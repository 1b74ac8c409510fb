//! The schedule of an open loop: the times of requests at a constant or linearly rising rate, and the thread that sends
//! each of them. Does no I/O.

use std::time::Duration;

use super::LoadPlan;

/// Lowest permitted rate in requests per second.
const SLOWEST: f64 = 1e-3;

#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    /// Rate in requests per second at the beginning.
    from: f64,
    /// Increase of the rate per second, in requests per second.
    slope: f64,
}

impl Schedule {
    /// Returns the schedule of an open loop, or `None` for a closed loop.
    ///
    /// Errors: the rate falls, or rises without `seconds`.
    pub(super) fn of(plan: &LoadPlan) -> anyhow::Result<Option<Schedule>> {
        let Some(rate) = plan.rate else {
            anyhow::ensure!(plan.rising_to.is_none(), "rising_to needs a rate");
            return Ok(None);
        };
        let from = rate.max(SLOWEST);
        let to = plan.rising_to.unwrap_or(from);
        let rises = plan.rising_to.is_some();
        anyhow::ensure!(
            to.is_finite() && to >= from,
            "a rate can't fall from {from} to {to}"
        );
        let slope = match plan.seconds {
            Some(seconds) if seconds > 0.0 => (to - from) / seconds,
            _ if rises => anyhow::bail!("rising_to needs seconds"),
            _ => 0.0,
        };
        Ok(Some(Schedule { from, slope }))
    }

    /// Returns the time since the start at which request number `number`, counted from 0, is due.
    pub(super) fn due(&self, number: u64) -> Duration {
        let number = number as f64;
        // The solution t of slope/2 t² + from t = number, in a form that is also valid if the slope is zero.
        let root = (self.from * self.from + 2.0 * self.slope * number).sqrt();
        Duration::from_secs_f64(2.0 * number / (self.from + root))
    }

    /// Returns the number of requests that are due before this many seconds have passed.
    pub(super) fn before(&self, seconds: f64) -> u64 {
        let count = seconds * (self.from + 0.5 * self.slope * seconds);
        // Request 0 is due at 0 s, so the number is rounded up, but not because of a rounding error.
        (count - 1e-6).max(0.0).ceil() as u64
    }
}

/// One of several threads, which take turns with the requests of a load: request `k` of the load belongs to thread `k`
/// modulo the number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    /// Number of the thread, counted from 0.
    pub(super) number: u64,
    pub(super) threads: u64,
}

impl Turn {
    pub(super) fn new(number: usize, threads: usize) -> Turn {
        Turn {
            number: number as u64,
            threads: threads.max(1) as u64,
        }
    }

    /// Returns the number in the whole load of the thread's request number `own`, both counted from 0.
    pub(super) fn place(self, own: u64) -> u64 {
        own.saturating_mul(self.threads).saturating_add(self.number)
    }

    /// Returns how many of the first `whole` requests of the load belong to the thread.
    pub(super) fn count(self, whole: u64) -> u64 {
        whole.saturating_sub(self.number).div_ceil(self.threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns_with_all_requests() {
        let turns: Vec<Turn> = (0..3).map(|number| Turn::new(number, 3)).collect();
        let mut places: Vec<u64> = Vec::new();
        for own in 0..5 {
            places.extend(turns.iter().map(|turn| turn.place(own)));
        }
        assert_eq!(places, (0..15).collect::<Vec<u64>>());
        for whole in 0..20 {
            let counts: Vec<u64> = turns.iter().map(|turn| turn.count(whole)).collect();
            assert_eq!(counts.iter().sum::<u64>(), whole);
            for (turn, count) in turns.iter().zip(counts) {
                assert!(count == 0 || turn.place(count - 1) < whole);
                assert!(turn.place(count) >= whole);
            }
        }
    }

    fn schedule(rate: f64, rising_to: Option<f64>, seconds: Option<f64>) -> Schedule {
        let plan = LoadPlan {
            rate: Some(rate),
            rising_to,
            seconds,
            ..LoadPlan::new("127.0.0.1:1".parse().expect("an address"), "/")
        };
        let schedule = Schedule::of(&plan).expect("a valid plan");
        schedule.expect("an open loop")
    }

    #[test]
    fn a_constant_rate_has_equal_intervals() {
        let steady = schedule(200.0, None, Some(9.0));
        assert_eq!(steady.due(0), Duration::ZERO);
        assert_eq!(steady.due(100), Duration::from_millis(500));
        assert_eq!(steady.before(0.5), 100);
        assert_eq!(schedule(100.0, None, None).before(0.07), 7);
    }

    #[test]
    fn a_rising_rate_has_its_mean_in_the_middle() {
        let rising = schedule(100.0, Some(300.0), Some(10.0));
        assert_eq!(rising.before(10.0), 2000);
        assert_eq!(rising.before(5.0), 750);
        let mut before = Duration::ZERO;
        for number in 0..2000 {
            let due = rising.due(number);
            assert!(number == 0 || due > before, "request {number}");
            assert!(rising.before(due.as_secs_f64() + 1e-6) > number);
            before = due;
        }
        assert!((9.99..10.0).contains(&before.as_secs_f64()), "{before:?}");
    }

    #[test]
    fn falling_rates_and_endless_ramps_are_refused() {
        let plan = |rate, rising_to, seconds| LoadPlan {
            rate,
            rising_to,
            seconds,
            ..LoadPlan::new("127.0.0.1:1".parse().expect("an address"), "/")
        };
        assert!(Schedule::of(&plan(None, None, None)).is_ok());
        for wrong in [
            plan(None, Some(5.0), Some(1.0)),
            plan(Some(5.0), Some(4.0), Some(1.0)),
            plan(Some(5.0), Some(f64::NAN), Some(1.0)),
            plan(Some(5.0), Some(6.0), None),
        ] {
            assert!(Schedule::of(&wrong).is_err(), "{wrong:?}");
        }
    }
}
