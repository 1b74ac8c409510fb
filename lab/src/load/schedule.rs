//! When the requests of an open loop ought to be sent: evenly, at one rate or at one that rises evenly. No I/O.

use std::time::Duration;

use super::LoadPlan;

/// Rates below this make no progress.
const SLOWEST: f64 = 1e-3;

#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    /// Requests a second at the beginning.
    from: f64,
    /// What comes to that each second.
    slope: f64,
}

impl Schedule {
    /// That of an open loop; `None` for a closed one.
    ///
    /// Errors: a rate that falls, or that rises without an end.
    pub(super) fn of(plan: &LoadPlan) -> anyhow::Result<Option<Schedule>> {
        let Some(rate) = plan.rate else {
            anyhow::ensure!(plan.rising_to.is_none(), "what rises begins at a rate");
            return Ok(None);
        };
        let from = rate.max(SLOWEST);
        let to = plan.rising_to.unwrap_or(from);
        let rises = plan.rising_to.is_some();
        anyhow::ensure!(
            to.is_finite() && to >= from,
            "a rate can only rise, not from {from} to {to}"
        );
        let slope = match plan.seconds {
            Some(seconds) if seconds > 0.0 => (to - from) / seconds,
            _ if rises => anyhow::bail!("what rises has a number of seconds for it"),
            _ => 0.0,
        };
        Ok(Some(Schedule { from, slope }))
    }

    /// After what time request `number`, counted from 0, is due.
    pub(super) fn due(&self, number: u64) -> Duration {
        let number = number as f64;
        // The root of slope/2 t² + from t = number, in the form that also has an answer where nothing rises.
        let root = (self.from * self.from + 2.0 * self.slope * number).sqrt();
        Duration::from_secs_f64(2.0 * number / (self.from + root))
    }

    /// How many requests are due before so many seconds are over.
    pub(super) fn before(&self, seconds: f64) -> u64 {
        let count = seconds * (self.from + 0.5 * self.slope * seconds);
        // That of number 0 is at 0 s.
        count.max(0.0).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(rate: f64, rising_to: Option<f64>, seconds: Option<f64>) -> Schedule {
        let plan = LoadPlan {
            rate: Some(rate),
            rising_to,
            seconds,
            ..LoadPlan::new("127.0.0.1:1".parse().expect("an address"), "/")
        };
        let schedule = Schedule::of(&plan).expect("a good plan");
        schedule.expect("an open loop")
    }

    #[test]
    fn a_steady_rate_is_even() {
        let steady = schedule(200.0, None, Some(9.0));
        assert_eq!(steady.due(0), Duration::ZERO);
        assert_eq!(steady.due(100), Duration::from_millis(500));
        assert_eq!(steady.before(0.5), 100);
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
    fn rates_only_rise_and_within_a_time() {
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
