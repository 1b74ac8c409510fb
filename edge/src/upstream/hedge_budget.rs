//! The budget of hedges: the time after which a response is late, and a limit on the number of
//! further requests.

use std::cell::Cell;

/// Number of responses before the time of a late one is known.
const SAMPLES_MIN: u32 = 20;
/// Part of itself by which the expected time changes with each response.
const STEP: f64 = 0.05;
/// Most hedges that requests can save up.
const SAVED_MAX: f64 = 10.0;

/// Options of hedging (`hedge` in `[upstream.NAME]`).
#[derive(Clone, Debug, PartialEq)]
pub struct HedgeOptions {
    /// Share of the responses that are not late, from 0 to 1.
    pub after: f64,
    /// Number of hedges that each fetch permits, from 0 to 1.
    pub at_most: f64,
    /// Largest range in bytes whose fetch is hedged.
    pub max_size: u64,
}

/// One worker's knowledge about an upstream's response times, and its budget of hedges.
pub(super) struct HedgeBudget {
    options: HedgeOptions,
    /// Time in microseconds within which the share `options.after` of the responses begins.
    expected_us: Cell<f64>,
    samples: Cell<u32>,
    left: Cell<f64>,
}

impl HedgeBudget {
    pub(super) fn new(options: HedgeOptions) -> HedgeBudget {
        HedgeBudget {
            options,
            expected_us: Cell::new(0.0),
            samples: Cell::new(0),
            left: Cell::new(0.0),
        }
    }

    /// Returns the largest range in bytes whose fetch is hedged.
    pub(super) fn max_size(&self) -> u64 {
        self.options.max_size
    }

    /// Adds the share of one fetch.
    pub(super) fn add_request(&self) {
        let left = self.left.get() + self.options.at_most;
        self.left.set(left.min(SAVED_MAX));
    }

    /// Takes one hedge. Returns whether there was one left.
    pub(super) fn take(&self) -> bool {
        let left = self.left.get();
        self.left.set(if left < 1.0 { left } else { left - 1.0 });
        left >= 1.0
    }

    /// Notes the time to the head of a response. The expected time moves up and down so that it
    /// stays where the share `options.after` of the times is below it.
    pub(super) fn note(&self, head_us: u64) {
        let (time, expected) = (head_us.max(1) as f64, self.expected_us.get());
        let share = self.options.after;
        self.expected_us.set(match expected {
            0.0 => time,
            _ if time > expected => expected * (1.0 + STEP * share),
            _ => expected * (1.0 - STEP * (1.0 - share)),
        });
        self.samples.set(self.samples.get().saturating_add(1));
    }

    /// Returns the time after which a response is late, in microseconds, if it is known.
    pub(super) fn after_us(&self) -> Option<u64> {
        (self.samples.get() >= SAMPLES_MIN).then(|| self.expected_us.get() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(at_most: f64) -> HedgeBudget {
        HedgeBudget::new(HedgeOptions {
            after: 0.95,
            at_most,
            max_size: 1 << 20,
        })
    }

    #[test]
    fn the_expected_time_is_exceeded_by_the_share_of_late_responses() {
        let budget = budget(0.05);
        let mut late = 0;
        for n in 0..40_000_u64 {
            // Times are spread evenly over 1 to 10,000 us.
            let time = n.wrapping_mul(7919) % 10_000 + 1;
            if n < 19 {
                assert_eq!(budget.after_us(), None);
            }
            if n >= 20_000 {
                late += u32::from(budget.after_us().is_some_and(|after| time > after));
            }
            budget.note(time);
        }
        assert!((600..1_400).contains(&late), "{late} of 20,000");
    }

    #[test]
    fn hedges_are_a_share_of_the_fetches() {
        let budget = budget(0.25);
        assert!(!budget.take());
        (0..8).for_each(|_| budget.add_request());
        assert!(budget.take() && budget.take() && !budget.take());
        (0..1_000).for_each(|_| budget.add_request());
        assert_eq!((0..100).take_while(|_| budget.take()).count(), 10);
    }
}
