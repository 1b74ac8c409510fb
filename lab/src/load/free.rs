//! The places for requests that are free, and those that rest after a failed connection.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Time for which a connection rests after it could not be made. A server that refuses connections thus gets at
/// most ten attempts per second on each connection.
pub(super) const REST: Duration = Duration::from_millis(100);

/// The free places of a load. Over HTTP/1.1, a connection is one place; over HTTP/2, each of its streams is one.
#[derive(Debug)]
pub(super) struct Free {
    total: usize,
    /// Free places. The last one is taken next.
    ready: VecDeque<usize>,
    /// Whether the place that has been free for the longest time is taken next, and not the one that was freed last.
    rotate: bool,
    /// Places that are free again at these times.
    resting: BTreeSet<(Instant, usize)>,
}

impl Free {
    /// Creates this many free places, of which place 0 is taken first.
    pub(super) fn new(total: usize, rotate: bool) -> Free {
        Free {
            total,
            ready: (0..total).rev().collect(),
            rotate,
            resting: BTreeSet::new(),
        }
    }

    /// Takes a free place.
    pub(super) fn take(&mut self) -> Option<usize> {
        self.ready.pop_back()
    }

    /// Frees a place.
    pub(super) fn give(&mut self, place: usize) {
        match self.rotate {
            true => self.ready.push_front(place),
            false => self.ready.push_back(place),
        }
    }

    /// Frees a place at this time.
    pub(super) fn rest(&mut self, place: usize, until: Instant) {
        self.resting.insert((until, place));
    }

    /// Frees the places whose rest has ended.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some((until, place)) = self.resting.first().copied()
            && until <= now
        {
            self.resting.pop_first();
            self.give(place);
        }
    }

    /// Returns the number of places that can be taken now.
    pub(super) fn count(&self) -> usize {
        self.ready.len()
    }

    /// Whether no place can be taken now.
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Returns the time at which the next rest ends.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.resting.first().map(|(until, _)| *until)
    }

    /// Whether no place is in use.
    pub(super) fn are_all_back(&self) -> bool {
        self.ready.len() + self.resting.len() == self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_rest_before_they_are_free_again() {
        let now = Instant::now();
        let mut free = Free::new(2, false);
        assert_eq!(
            (free.take(), free.take(), free.take()),
            (Some(0), Some(1), None)
        );
        free.rest(1, now + REST);
        free.give(0);
        assert!(free.are_all_back() && !free.is_empty());
        assert_eq!(free.take(), Some(0));
        free.wake(now + REST / 2);
        assert!(free.is_empty() && !free.are_all_back());
        free.wake(free.next_wake().expect("a place rests"));
        assert_eq!(free.take(), Some(1));
    }

    #[test]
    fn places_are_taken_in_turn_if_they_rotate() {
        for (rotate, taken) in [(false, [0, 0, 0, 0]), (true, [0, 1, 2, 0])] {
            let mut free = Free::new(3, rotate);
            for expected in taken {
                let place = free.take().expect("a free place");
                assert_eq!(place, expected);
                free.give(place);
            }
        }
    }
}
