//! The minimum rate at which a server has to send the content of a response.

use std::time::Duration;

use tokio::time::Instant;

/// The time by which a server has fallen behind the minimum rate. Only time in which content is
/// awaited counts: a client that reads slowly does not make the server late.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Minimum rate in bytes per second; 0: none.
    rate: u64,
    /// Time that the server would have to make up for. A burst is not saved up for later.
    behind: Duration,
    /// Time since which content is awaited.
    since: Option<Instant>,
}

impl Pace {
    /// Begins to wait for content that has to arrive at this rate. Returns the longest time for
    /// which nothing may arrive: `longest`, less the time by which the server is behind. At this
    /// rate the server is behind by that much after it has sent nothing for so long.
    pub(super) fn wait(&mut self, rate: u64, longest: Duration, now: Instant) -> Duration {
        if rate > 0 {
            self.rate = rate;
            self.since.get_or_insert(now);
        }
        longest.saturating_sub(self.behind)
    }

    /// Notes that bytes have arrived. `now` returns the current time.
    pub(super) fn arrived(&mut self, bytes: usize, now: impl FnOnce() -> Instant) {
        if let Some(since) = self.since.take() {
            self.behind += now().saturating_duration_since(since);
        }
        if !self.behind.is_zero() {
            let covered_us = bytes as u64 * 1_000_000 / self.rate.max(1);
            let covered = Duration::from_micros(covered_us);
            self.behind = self.behind.saturating_sub(covered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Sends `bytes` after each second, until the server is late. Returns the number of seconds.
    fn seconds_until_late(rate: u64, bytes: usize) -> Option<u32> {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for second in 1..1000 {
            if pace.wait(rate, 10 * SECOND, now) < SECOND {
                return Some(second);
            }
            now += SECOND;
            pace.arrived(bytes, || now);
        }
        None
    }

    #[test]
    fn a_server_below_the_rate_is_late_in_the_end() {
        assert_eq!(seconds_until_late(100, 0), Some(11));
        assert_eq!(seconds_until_late(100, 1), Some(11));
        assert_eq!(seconds_until_late(100, 50), Some(20));
        assert_eq!(seconds_until_late(100, 100), None);
        assert_eq!(seconds_until_late(0, 0), None);
    }

    #[test]
    fn a_burst_does_not_pay_for_a_later_wait_and_unawaited_time_does_not_count() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        pace.arrived(1_000_000, || now);
        assert_eq!(pace.wait(100, 10 * SECOND, now), 10 * SECOND);
        now += 3 * SECOND;
        // A second look at the same wait does not begin another one.
        assert_eq!(pace.wait(100, 10 * SECOND, now), 10 * SECOND);
        pace.arrived(100, || now);
        now += 60 * SECOND;
        assert_eq!(pace.wait(100, 10 * SECOND, now), 8 * SECOND);
        pace.arrived(1_000_000, || now);
        assert_eq!(pace.wait(100, 10 * SECOND, now), 10 * SECOND);
    }
}
