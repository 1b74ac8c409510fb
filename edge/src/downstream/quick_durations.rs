//! The durations of requests that are answered without waiting. Only some are measured, since
//! reading the clock takes a noticeable part of the time of a hit from memory.

use std::cell::Cell;

use crate::sys::Clock;

/// One request in this many is measured.
const PERIOD: u32 = 16;

/// One worker's estimate of the durations of requests that are answered without waiting.
#[derive(Default)]
pub struct QuickDurations {
    /// Number of requests since the last measured one.
    count: Cell<u32>,
    /// The last measured duration in microseconds.
    last_us: Cell<Option<u64>>,
}

impl QuickDurations {
    /// Returns the duration of a request whose head was complete at `began_us`. Most requests get
    /// the duration of the last measured one, so that averages and percentiles stay right.
    #[inline]
    pub fn of(&self, clock: &Clock, began_us: u64) -> u64 {
        let count = self.count.get() + 1;
        self.count.set(count);
        match self.last_us.get() {
            Some(last_us) if count < PERIOD - 1 => last_us,
            Some(last_us) if count < PERIOD => {
                // The next request is measured. It begins at this time, unless the worker waits.
                clock.read_us();
                last_us
            }
            _ => {
                let measured_us = clock.read_us().saturating_sub(began_us);
                self.count.set(0);
                self.last_us.set(Some(measured_us));
                measured_us
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_in_a_period_is_measured() {
        let clock = Clock::manual(1);
        let durations = QuickDurations::default();
        let mut measured = Vec::new();
        for n in 0..3 * u64::from(PERIOD) {
            let began_us = clock.monotonic_us();
            clock.advance_us(n);
            measured.push(durations.of(&clock, began_us));
        }
        let period = u64::from(PERIOD);
        for (n, duration_us) in (0..).zip(measured) {
            assert_eq!(duration_us, n / period * period);
        }
    }
}
