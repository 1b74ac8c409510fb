//! Selects the requests of a route that are logged: by status, by duration, and a share of the
//! rest.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::sys::Random;

/// The log rule of a route. A request is logged if its status or its duration matches, else at
/// random.
#[derive(Clone, Debug, PartialEq)]
pub struct LogRule {
    /// Statuses whose requests are all logged.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// Duration above which all requests are logged.
    pub slower_than: Option<Duration>,
    /// Share of the other requests that is logged, from 0 to 1.
    pub sample: f64,
}

/// A log rule with the random number generator of one worker.
pub struct Selection {
    rule: LogRule,
    /// A request is logged if its random number is below this number.
    below: u64,
    random: Random,
}

impl LogRule {
    /// Returns the rule that logs every request.
    pub fn all() -> LogRule {
        LogRule {
            statuses: Vec::new(),
            slower_than: None,
            sample: 1.0,
        }
    }

    /// Returns the rule that logs no request.
    pub fn none() -> LogRule {
        LogRule {
            sample: 0.0,
            ..LogRule::all()
        }
    }

    /// Whether the rule logs some requests because of their status or duration.
    pub fn selects(&self) -> bool {
        !self.statuses.is_empty() || self.slower_than.is_some()
    }
}

impl Selection {
    /// Creates a selection by `rule` with this random number generator.
    pub fn new(rule: LogRule, random: Random) -> Selection {
        Selection {
            // If `sample` is 1, the product exceeds `u64`, and the conversion yields the greatest
            // number.
            below: (rule.sample.clamp(0.0, 1.0) * 2f64.powi(64)) as u64,
            rule,
            random,
        }
    }

    /// Whether a request with this status and duration is logged. Status 0 means that nothing could
    /// be sent.
    pub fn takes(&self, status: u16, request_us: u64) -> bool {
        let rule = &self.rule;
        let slow = |limit: &Duration| u128::from(request_us) > limit.as_micros();
        rule.statuses.iter().any(|range| range.contains(&status))
            || rule.slower_than.as_ref().is_some_and(slow)
            || self.below == u64::MAX
            || (self.below > 0 && self.random.next_u64() < self.below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(rule: LogRule, status: u16, us: u64) -> usize {
        let selection = Selection::new(rule, Random::seeded(1));
        (0..10_000).filter(|_| selection.takes(status, us)).count()
    }

    #[test]
    fn errors_are_all_logged_and_a_share_of_the_rest() {
        let rule = LogRule {
            statuses: vec![400..=499, 503..=503],
            slower_than: Some(Duration::from_secs(1)),
            sample: 0.01,
        };
        for (status, us) in [(404, 5), (503, 5), (200, 1_000_001)] {
            assert_eq!(taken(rule.clone(), status, us), 10_000, "{status} {us}");
        }
        for (status, us) in [(200, 5), (500, 5), (200, 1_000_000), (0, 0)] {
            let share = taken(rule.clone(), status, us);
            assert!((50..=150).contains(&share), "{share} of {status} {us}");
        }
    }

    #[test]
    fn the_rules_for_all_and_none_are_not_random() {
        assert_eq!(taken(LogRule::all(), 200, 5), 10_000);
        assert_eq!(taken(LogRule::none(), 500, u64::MAX), 0);
    }
}
