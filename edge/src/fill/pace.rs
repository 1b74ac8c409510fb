//! Adapts the number of concurrent flights of a request: the number is increased while that
//! increases the speed.

/// Initial number of concurrent flights.
const INITIAL_WIDTH: usize = 4;

/// Shortest time in microseconds over which a rate is measured.
const WINDOW_US: u64 = 100_000;
/// Fewest bytes over which a rate is measured. After `MEASURE_MAX_US` fewer bytes suffice.
const MEASURE_MIN_BYTES: u64 = 64 << 10;
const MEASURE_MAX_US: u64 = 1_000_000;
/// Largest number of measurements after which an increase of the width must show a higher rate. New
/// flights take a while to deliver bytes.
const WINDOWS_MAX: u32 = 4;
/// Time in microseconds for which the width stays unchanged after an increase without effect.
const HOLD_US: u64 = 1_000_000;

/// The width of a request: the number of flights that its want may have at the same time. The width
/// is doubled as long as that increases the speed.
#[derive(Clone, Debug)]
pub struct Pace {
    max: usize,
    width: usize,
    /// Start of the current measurement: the time in microseconds, and the number of bytes received
    /// by then.
    mark: Option<(u64, u64)>,
    trial: Option<Trial>,
    hold_until_us: u64,
}

/// An increase of the width whose effect is still being measured.
#[derive(Clone, Debug)]
struct Trial {
    width_before: usize,
    rate_before: u64,
    windows: u32,
}

impl Pace {
    /// Creates a pace whose width is at most `max` flights.
    pub fn new(max: usize) -> Pace {
        let max = max.max(1);
        Pace {
            max,
            width: INITIAL_WIDTH.min(max),
            mark: None,
            trial: None,
            hold_until_us: 0,
        }
    }

    /// Returns the permitted number of concurrent flights, from 1 to `max`.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Reports progress of the want: the monotonic time in microseconds, the bytes received so far,
    /// and the number of flights that deliver its bytes. The caller reports before each time that
    /// it consults a policy.
    pub fn observe(&mut self, now_us: u64, received: u64, flights: usize) {
        if flights * 4 < self.width * 3 {
            // Fewer flights are running than permitted. More would not be used, and the measured
            // speed is not that of the permitted number.
            self.mark = None;
            return;
        }
        let Some((since_us, before)) = self.mark else {
            self.mark = Some((now_us, received));
            return;
        };
        let elapsed_us = now_us.saturating_sub(since_us);
        let came = received.saturating_sub(before);
        if elapsed_us < WINDOW_US || (came < MEASURE_MIN_BYTES && elapsed_us < MEASURE_MAX_US) {
            return;
        }
        self.mark = Some((now_us, received));
        let rate = u128::from(came) * 1_000_000 / u128::from(elapsed_us);
        self.judge(now_us, u64::try_from(rate).unwrap_or(u64::MAX));
    }

    fn judge(&mut self, now_us: u64, rate: u64) {
        if let Some(trial) = &mut self.trial {
            // An increase of the rate by less than a quarter may be chance, so it does not count.
            if rate
                < trial
                    .rate_before
                    .saturating_add(trial.rate_before / 4)
                    .max(1)
            {
                trial.windows += 1;
                if trial.windows >= WINDOWS_MAX {
                    self.width = trial.width_before;
                    self.trial = None;
                    self.hold_until_us = now_us.saturating_add(HOLD_US);
                }
                return;
            }
        }
        self.trial = None;
        if self.width < self.max && now_us >= self.hold_until_us {
            self.trial = Some(Trial {
                width_before: self.width,
                rate_before: rate,
                windows: 0,
            });
            self.width = (self.width * 2).min(self.max);
        }
    }
}
