//! A ring: the points of one member at one resolution. The newest point takes the place of the oldest one.

use super::code::ABSENT;

/// The resolution of a ring and the number of its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize {
    /// Seconds that one point stands for.
    pub step_s: u32,
    /// Number of points.
    pub points: u32,
}

impl RingSize {
    /// Returns the time that the points stand for, in seconds.
    pub fn span_s(self) -> u64 {
        u64::from(self.step_s) * u64::from(self.points)
    }
}

/// Points of fixed number and width, allocated at once. A point has the number of its step: the Unix time of its
/// beginning, divided by the step.
#[derive(Debug)]
pub struct Ring {
    size: RingSize,
    /// Number of codes of a point.
    width: usize,
    codes: Box<[u16]>,
    /// Numbers of the first point and of the newest one since the ring was created.
    held: Option<(u64, u64)>,
    /// Number of the newest point that was saved.
    saved: Option<u64>,
}

impl Ring {
    /// Creates an empty ring for points of `width` codes.
    pub fn new(size: RingSize, width: usize) -> Ring {
        Ring {
            size,
            width,
            // Memory of zeros takes room only once it is written to.
            codes: vec![ABSENT; size.points as usize * width].into_boxed_slice(),
            held: None,
            saved: None,
        }
    }

    /// Returns the ring's resolution and its number of points.
    pub fn size(&self) -> RingSize {
        self.size
    }

    /// Returns the number of the newest point.
    pub fn newest(&self) -> Option<u64> {
        self.held.map(|(_, newest)| newest)
    }

    /// Adds a point, or replaces the newest one. The points between the one before and this one are absent. Points with
    /// higher numbers, which exist if the clock was set back, become absent.
    pub fn push(&mut self, number: u64, point: &[u16]) {
        let points = u64::from(self.size.points);
        let (first, newest) = self.held.unwrap_or((number, number));
        let stale = match number > newest {
            true => newest + 1..number,
            false => number + 1..newest + 1,
        };
        for old in stale.take(points as usize) {
            let at = self.offset(old);
            self.codes[at..at + self.width].fill(ABSENT);
        }
        let at = self.offset(number);
        self.codes[at..at + self.width].copy_from_slice(point);
        self.held = Some((first.min(number), number));
        let before = number.checked_sub(1);
        self.saved = self
            .saved
            .and_then(|saved| before.map(|before| saved.min(before)));
    }

    /// Returns the codes of a point; `None` if the ring does not hold it.
    pub fn point(&self, number: u64) -> Option<&[u16]> {
        self.numbers().contains(&number).then(|| {
            let at = self.offset(number);
            &self.codes[at..at + self.width]
        })
    }

    /// Returns the numbers of the points that the ring holds. Some of these points may be absent.
    pub fn numbers(&self) -> std::ops::Range<u64> {
        let Some((first, newest)) = self.held else {
            return 0..0;
        };
        let oldest = (newest + 1).saturating_sub(u64::from(self.size.points));
        first.max(oldest)..newest + 1
    }

    /// Returns the numbers of the points to save, all of them or those since the last call, and marks them as saved.
    pub fn take_unsaved(&mut self, all: bool) -> std::ops::Range<u64> {
        let held = self.numbers();
        let saved = self.saved.filter(|_| !all);
        self.saved = self.newest();
        saved.map_or(held.start, |saved| held.start.max(saved + 1))..held.end
    }

    /// Notes that all points are saved.
    pub fn mark_saved(&mut self) {
        self.saved = self.newest();
    }

    fn offset(&self, number: u64) -> usize {
        (number % u64::from(self.size.points)) as usize * self.width
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const SIZE: RingSize = RingSize {
        step_s: 10,
        points: 7,
    };

    fn held(ring: &Ring) -> Vec<(u64, u16)> {
        let numbers = ring.numbers();
        let points = numbers.map(|number| (number, ring.point(number).expect("held")[0]));
        points.filter(|(_, code)| *code != ABSENT).collect()
    }

    #[test]
    fn the_newest_points_are_held() {
        let mut ring = Ring::new(SIZE, 2);
        assert_eq!((ring.newest(), ring.numbers()), (None, 0..0));
        for number in 100..110 {
            ring.push(number, &[number as u16, 5]);
        }
        assert_eq!((ring.newest(), ring.numbers()), (Some(109), 103..110));
        assert_eq!(ring.point(105), Some(&[105, 5][..]));
        assert_eq!((ring.point(102), ring.point(110)), (None, None));
        assert_eq!(ring.size().span_s(), 70);
    }

    #[test]
    fn points_are_saved_once_unless_all_are_wanted() {
        let mut ring = Ring::new(SIZE, 1);
        assert!(ring.take_unsaved(false).is_empty());
        (1..4).for_each(|number| ring.push(number, &[9]));
        assert_eq!(ring.take_unsaved(false), 1..4);
        assert!(ring.take_unsaved(false).is_empty());
        ring.push(4, &[9]);
        assert_eq!(ring.take_unsaved(false), 4..5);
        ring.push(4, &[8]);
        assert_eq!(ring.take_unsaved(false), 4..5, "a saved point was replaced");
        assert_eq!(ring.take_unsaved(true), 1..5);
        ring.push(20, &[9]);
        assert_eq!(ring.take_unsaved(false), 14..21);
    }

    proptest! {
        /// The ring holds the same points as a map from which those out of its reach were removed.
        #[test]
        fn a_ring_holds_what_a_map_holds(steps in prop::collection::vec((-12i64..12, 1u16..100), 0..60)) {
            let (mut ring, mut map) = (Ring::new(SIZE, 1), BTreeMap::new());
            let mut number = 1000u64;
            for (by, code) in steps {
                number = number.saturating_add_signed(by);
                ring.push(number, &[code]);
                map.insert(number, code);
                map.retain(|held, _| *held <= number && *held + u64::from(SIZE.points) > number);
                prop_assert_eq!(ring.newest(), Some(number));
                prop_assert_eq!(held(&ring), map.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>());
            }
        }
    }
}
