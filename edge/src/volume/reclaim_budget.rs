//! The budget of a reclaim: how many bytes are copied to the open segment before the oldest segment is overwritten. Also a model of a
//! volume's segments for the hit-ratio experiment.

use std::collections::VecDeque;

/// Divisor of a segment's size: the quotient is the budget for copies.
const SHARE: u64 = 4;

/// Number of bytes that may still be copied to the open segment.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimBudget(u64);

impl ReclaimBudget {
    /// Returns the budget for one segment of this size: a fixed share of it, or the size of the largest record if that is more and fits
    /// into half a segment.
    pub fn of(segment: u64, largest: u64) -> ReclaimBudget {
        ReclaimBudget((segment / SHARE).max(largest.min(segment / 2)))
    }

    /// Returns the number of bytes left in the budget.
    pub fn left(&self) -> u64 {
        self.0
    }

    /// Whether records should be copied now, with `room` bytes left in the open segment: after one more new record of `largest` bytes, the
    /// segment might not have space for them.
    pub fn is_time(&self, room: u64, there: u64, largest: u64) -> bool {
        room < self.0.min(there) + largest
    }

    /// Takes `length` bytes from the budget. Returns false, and takes nothing, if fewer are left.
    pub fn take(&mut self, length: u64) -> bool {
        match self.0.checked_sub(length) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => false,
        }
    }
}

/// A model of a volume whose records all have length one. Keys are small numbers: the model's memory grows with the largest key.
pub struct Ring {
    segment: usize,
    segments: usize,
    /// The keys in each segment, from the oldest segment to the open one.
    log: VecDeque<Vec<u32>>,
    /// Number of the oldest segment.
    oldest: u64,
    entries: Vec<Entry>,
    written: u64,
    again: u64,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    /// Number of the segment that contains the key, plus one; 0: the key is not stored.
    segment: u64,
    used: bool,
}

impl Ring {
    /// Creates an empty model for about `records` records in this many segments: at least two segments of at least four records.
    pub fn new(records: usize, segments: usize) -> Ring {
        let segments = segments.max(2);
        Ring {
            segment: (records / segments).max(SHARE as usize),
            segments,
            log: VecDeque::from([Vec::new()]),
            oldest: 0,
            entries: Vec::new(),
            written: 0,
            again: 0,
        }
    }

    /// Returns whether a key is stored. If not, stores it.
    pub fn ask(&mut self, key: u32) -> bool {
        let at = key as usize;
        if at >= self.entries.len() {
            self.entries.resize(at + 1, Entry::default());
        }
        if self.entries[at].segment > 0 {
            self.entries[at].used = true;
            return true;
        }
        self.append(key);
        let room = (self.segment - self.open().len()) as u64;
        let budget = ReclaimBudget::of(self.segment as u64, 1);
        // The last part of the open segment is reserved for records copied from the oldest one.
        if self.log.len() == self.segments && room == budget.left() {
            self.write_again(budget);
        }
        if self.open().len() >= self.segment {
            self.log.push_back(Vec::new());
            if self.log.len() > self.segments {
                self.drop_oldest();
            }
        }
        false
    }

    /// Returns the number of copied records as a share of all records written.
    pub fn share_written_again(&self) -> f64 {
        self.again as f64 / self.written.max(1) as f64
    }

    fn open(&mut self) -> &mut Vec<u32> {
        // There is always an open segment, since `drop_oldest` runs only after a new one was added.
        let last = self.log.len() - 1;
        &mut self.log[last]
    }

    fn append(&mut self, key: u32) {
        self.open().push(key);
        self.written += 1;
        self.entries[key as usize] = Entry {
            segment: self.oldest + self.log.len() as u64,
            used: false,
        };
    }

    fn write_again(&mut self, mut budget: ReclaimBudget) {
        let candidates = self.log.front().cloned().unwrap_or_default();
        for key in candidates {
            let entry = self.entries[key as usize];
            if entry.segment == self.oldest + 1 && entry.used && budget.take(1) {
                self.append(key);
                self.again += 1;
            }
        }
    }

    fn drop_oldest(&mut self) {
        for key in self.log.pop_front().unwrap_or_default() {
            let entry = &mut self.entries[key as usize];
            if entry.segment == self.oldest + 1 {
                *entry = Entry::default();
            }
        }
        self.oldest += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_were_read_stay_longer_up_to_a_quarter() {
        // There are four segments of eight records; a quarter of a segment, two records, may be copied.
        let mut ring = Ring::new(32, 4);
        (0..3).for_each(|key| assert!(!ring.ask(key)));
        (0..3).for_each(|key| assert!(ring.ask(key)));
        // The open segment gets six new records, and then two copies of the oldest segment's records.
        (3..29).for_each(|key| assert!(!ring.ask(key)));
        assert_eq!(ring.again, 0);
        assert!(!ring.ask(29));
        assert_eq!(ring.again, 2);
        assert!(ring.ask(0) && ring.ask(1), "they moved");
        assert!(!ring.ask(2) && !ring.ask(3), "their segment went");
        assert!(ring.ask(8), "the next one is there");
    }

    #[test]
    fn one_large_record_fits_and_rewriting_begins_in_time() {
        assert_eq!(ReclaimBudget::of(64, 10).left(), 16);
        assert_eq!(ReclaimBudget::of(64, 20).left(), 20);
        assert_eq!(
            ReclaimBudget::of(64, 40).left(),
            32,
            "half a segment at most"
        );
        let budget = ReclaimBudget::of(64, 20);
        assert!(!budget.is_time(40, 1000, 20));
        assert!(
            budget.is_time(39, 1000, 20),
            "another one of 20 would leave 19"
        );
        assert!(!budget.is_time(39, 5, 5), "there is little");
    }

    #[test]
    fn the_ring_holds_at_most_its_capacity() {
        let mut ring = Ring::new(640, 64);
        for n in 0..10_000u32 {
            ring.ask(if n % 3 == 0 { n % 100 } else { n * 7919 % 1009 });
            let there = ring.entries.iter().filter(|e| e.segment > 0).count();
            assert!(there <= 640);
        }
        let lengths: usize = ring.log.iter().map(Vec::len).sum();
        assert!(lengths >= 630);
        let again = ring.share_written_again();
        assert!(again > 0.0 && again <= 0.25, "{again}");
    }
}
