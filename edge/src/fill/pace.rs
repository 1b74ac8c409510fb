//! How many flights at once: as many as make it faster.

/// Flights at once to begin with.
const FIRST: usize = 4;

/// How long it is watched before it is judged, at least: microseconds.
const WINDOW_US: u64 = 100_000;
/// Fewer bytes than this tell nothing, unless they took as long as `SLOW_US`.
const TELLING: u64 = 64 << 10;
const SLOW_US: u64 = 1_000_000;
/// New flights take a while until they bring something: so many windows may be no faster.
const WINDOWS_MAX: u32 = 4;
/// How long it stays where more did not help, microseconds.
const HOLD_US: u64 = 1_000_000;

/// How many flights one want may have at once: twice as many as long as that makes it faster.
#[derive(Clone, Debug)]
pub struct Pace {
    max: usize,
    width: usize,
    /// Where the window began: when, and how many bytes had come.
    mark: Option<(u64, u64)>,
    trial: Option<Trial>,
    hold_until_us: u64,
}

/// It was widened, and is to be judged.
#[derive(Clone, Debug)]
struct Trial {
    width_before: usize,
    rate_before: u64,
    windows: u32,
}

impl Pace {
    /// Never more than `max` flights.
    pub fn new(max: usize) -> Pace {
        let max = max.max(1);
        Pace {
            max,
            width: FIRST.min(max),
            mark: None,
            trial: None,
            hold_until_us: 0,
        }
    }

    /// Flights that may be under way at once, from 1 to `max`.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Tells how it goes: the monotonic time in microseconds, how many bytes of the want have come
    /// by now, and how many flights are bringing bytes of it. Best before each asking of a policy.
    pub fn observe(&mut self, now_us: u64, brought: u64, flights: usize) {
        if flights * 4 < self.width * 3 {
            // More would not be used, and how fast it is says nothing about this width.
            self.mark = None;
            return;
        }
        let Some((since_us, before)) = self.mark else {
            self.mark = Some((now_us, brought));
            return;
        };
        let elapsed_us = now_us.saturating_sub(since_us);
        let came = brought.saturating_sub(before);
        if elapsed_us < WINDOW_US || (came < TELLING && elapsed_us < SLOW_US) {
            return;
        }
        self.mark = Some((now_us, brought));
        let rate = u128::from(came) * 1_000_000 / u128::from(elapsed_us);
        self.judge(now_us, u64::try_from(rate).unwrap_or(u64::MAX));
    }

    fn judge(&mut self, now_us: u64, rate: u64) {
        if let Some(trial) = &mut self.trial {
            // A quarter more, or it was chance.
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
