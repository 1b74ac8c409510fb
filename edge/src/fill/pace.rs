//! How many flights at once: as many as make it faster.

/// Flights at once to begin with.
const FIRST: usize = 4;

/// How many flights one want may have at once.
#[derive(Clone, Debug)]
pub struct Pace {
    max: usize,
    width: usize,
}

impl Pace {
    /// Never more than `max` flights.
    pub fn new(max: usize) -> Pace {
        let max = max.max(1);
        Pace {
            max,
            width: FIRST.min(max),
        }
    }

    /// Flights that may be under way at once, from 1 to `max`.
    pub fn width(&self) -> usize {
        self.width.min(self.max)
    }

    /// Tells how it goes: the monotonic time in microseconds, how many bytes of the want have come
    /// by now, and how many flights are bringing bytes of it. Best before each asking of a policy.
    pub fn observe(&mut self, _now_us: u64, _brought: u64, _flights: usize) {}
}
