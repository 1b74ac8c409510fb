//! Enforces the minimum rate and the longest pause of a transfer.

use std::time::Duration;

use crate::downstream::deadlines::{NEVER, TICK, Tick, ticks};

/// Measures the rate of one transfer over the time spent waiting for the client. That time adds to
/// a debt of bytes, at the minimum rate. Transferred bytes reduce the debt, but never below zero,
/// so that a client that was fast once cannot be slow for long afterwards.
#[derive(Default)]
pub struct Pace {
    since: Option<Tick>,
    /// Bytes owed, multiplied by the ticks per second, so that each tick adds exactly `rate_min`.
    debt: u64,
    rate_min: u64,
}

const TICKS_PER_SECOND: u64 = 1000 / TICK.as_millis() as u64;

/// The limits of a transfer.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Longest time between two transfers of bytes.
    pub pause: Duration,
    /// Minimum rate in bytes per second. 0: no minimum.
    pub rate_min: u64,
    /// Tolerated debt, as the time in which the minimum rate builds it up.
    pub grace: Duration,
}

impl Pace {
    /// Counts transferred bytes and stops the clock.
    pub fn progress(&mut self, now: Tick, bytes: usize) {
        self.stop(now);
        let paid = (bytes as u64).saturating_mul(TICKS_PER_SECOND);
        self.debt = self.debt.saturating_sub(paid);
    }

    /// Stops the clock, since the transfer does not wait for the client now.
    pub fn stop(&mut self, now: Tick) {
        if let Some(since) = self.since.take() {
            let cost = u64::from(now.saturating_sub(since)).saturating_mul(self.rate_min);
            self.debt = self.debt.saturating_add(cost);
        }
    }

    /// Starts the clock unless it runs, since the transfer waits for the client. Returns the tick
    /// at which the client is too late: after the longest pause, or when the debt exceeds what
    /// `grace` allows.
    pub fn wait(&mut self, now: Tick, rule: &Rule) -> Tick {
        let since = *self.since.get_or_insert(now);
        let pause = since.saturating_add(ticks(rule.pause));
        self.rate_min = rule.rate_min;
        if rule.rate_min == 0 {
            return pause;
        }
        let owed = Tick::try_from(self.debt.div_ceil(rule.rate_min)).unwrap_or(NEVER);
        let left = ticks(rule.grace).saturating_sub(owed);
        pause.min(since.saturating_add(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule {
        pause: Duration::from_secs(10),
        rate_min: 100,
        grace: Duration::from_secs(2),
    };

    #[test]
    fn a_trickle_is_cut_after_the_grace_and_a_stall_after_the_pause() {
        let mut pace = Pace::default();
        assert_eq!(pace.wait(0, &RULE), 21, "two seconds and the current tick");
        let mut now = 0;
        while pace.wait(now, &RULE) > now {
            now += 9;
            pace.progress(now, 1);
        }
        assert!((20..=30).contains(&now), "a byte in 0.9 s: {now}");
    }

    #[test]
    fn a_client_that_was_fast_is_cut_no_later_when_it_becomes_slow() {
        let mut pace = Pace::default();
        let mut now = 0;
        for _ in 0..1_000 {
            pace.wait(now, &RULE);
            now += 1;
            pace.progress(now, 1_000);
        }
        let slow_from = now;
        while pace.wait(now, &RULE) > now + 9 {
            now += 10;
            pace.progress(now, 1);
        }
        let lasted = now - slow_from;
        assert!((10..=30).contains(&lasted), "{lasted} ticks of slowness");
    }

    #[test]
    fn a_client_that_keeps_the_rate_is_never_cut() {
        let mut pace = Pace::default();
        for second in 0..1_000 {
            let now = second * 10;
            assert!(pace.wait(now, &RULE) > now + 10, "after {second} s");
            pace.progress(now + 10, 100);
        }
    }

    #[test]
    fn only_time_spent_waiting_counts() {
        let mut pace = Pace::default();
        pace.wait(0, &RULE);
        pace.stop(10);
        assert_eq!(pace.wait(1_000, &RULE), 1_000 + 11);
    }
}
