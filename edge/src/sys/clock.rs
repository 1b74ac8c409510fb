//! The clock, which all code reads through this module, so that tests can set it.

use std::cell::Cell;
#[cfg(test)]
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

thread_local! {
    /// The thread's last reading of the system clock by `read_us`, in microseconds. `None`: too old.
    static LAST_US: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The system clock, or a clock that a test sets. Cheap to clone.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System {
        start: Instant,
    },
    #[cfg(test)]
    Manual {
        now_us: Arc<AtomicU64>,
    },
}

impl Clock {
    /// Returns the system clock.
    pub fn system() -> Clock {
        Clock(Source::System {
            start: Instant::now(),
        })
    }

    /// Returns a clock that stays at this Unix time until `advance_us` moves it.
    #[cfg(test)]
    pub fn manual(unix_s: u64) -> Clock {
        Clock(Source::Manual {
            now_us: Arc::new(AtomicU64::new(unix_s * 1_000_000)),
        })
    }

    /// Returns the microseconds of a monotonic clock; only differences are meaningful.
    #[inline]
    pub fn monotonic_us(&self) -> u64 {
        match &self.0 {
            Source::System { start } => start.elapsed().as_micros() as u64,
            #[cfg(test)]
            Source::Manual { now_us } => now_us.load(Ordering::SeqCst),
        }
    }

    /// Returns the same microseconds, and keeps them for `recent_us`.
    #[inline]
    pub fn read_us(&self) -> u64 {
        let now_us = self.monotonic_us();
        LAST_US.set(Some(now_us));
        now_us
    }

    /// Returns the last value of `read_us` on this thread, which saves reading the clock. Reads the
    /// clock if `forget` was called since.
    #[inline]
    pub fn recent_us(&self) -> u64 {
        match &self.0 {
            Source::System { .. } => LAST_US.get().unwrap_or_else(|| self.read_us()),
            #[cfg(test)]
            Source::Manual { .. } => self.monotonic_us(),
        }
    }

    /// Whether this is the value that `recent_us` returns without reading the clock.
    #[inline]
    pub fn is_recent(&self, us: u64) -> bool {
        match &self.0 {
            Source::System { .. } => LAST_US.get() == Some(us),
            #[cfg(test)]
            Source::Manual { .. } => false,
        }
    }

    /// Makes the next `recent_us` of this thread read the clock. Called when the thread has waited
    /// or worked for more than a few microseconds.
    #[inline]
    pub fn forget() {
        LAST_US.set(None);
    }

    /// Returns the Unix time in whole seconds.
    pub fn unix_s(&self) -> i64 {
        (self.unix_ms() / 1000).cast_signed()
    }

    /// Returns the milliseconds since the Unix epoch.
    #[inline]
    pub fn unix_ms(&self) -> u64 {
        match &self.0 {
            Source::System { .. } => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| d.as_millis() as u64),
            #[cfg(test)]
            Source::Manual { now_us } => now_us.load(Ordering::SeqCst) / 1000,
        }
    }

    /// Moves a manual clock forward; has no effect on the system clock.
    #[cfg(test)]
    pub fn advance_us(&self, by_us: u64) {
        if let Source::Manual { now_us } = &self.0 {
            now_us.fetch_add(by_us, Ordering::SeqCst);
        }
    }
}

/// Returns the current time of tokio's timers, for deadlines that are passed to tokio.
#[inline]
pub fn timer_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_by_advance() {
        let clock = Clock::manual(1_000);
        assert_eq!(
            (clock.unix_ms(), clock.monotonic_us()),
            (1_000_000, 1_000_000_000)
        );
        clock.clone().advance_us(2_500);
        assert_eq!(clock.unix_ms(), 1_000_002);
    }
}
