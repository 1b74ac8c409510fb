//! What is known of what volumes have of an object, and when that is read.

use std::ops::Range;

use super::DiskCopy;
use crate::ranges::Ranges;

/// Ranges that are remembered of one object.
const FRAGMENTS_MAX: usize = 4096;

impl DiskCopy {
    /// Looks up which blocks of `range` are kept, some at most.
    pub(in crate::store) fn consult(&mut self, range: Range<u64>, length: u64, at_most: u64) {
        let range = range.start.min(length)..range.end.min(length);
        if range.is_empty() || self.known.covers(&range) {
            return;
        }
        let is_loading = self.volumes.is_loading(); // before anything is looked up
        let first = range.start / self.block;
        let last = (range.end - 1) / self.block;
        for number in first..=last.min(first.saturating_add(at_most)) {
            let bytes = self.range_of(number, length);
            if self.known.covers(&bytes) {
                continue;
            }
            let found = self.block_id(number).map(|id| self.volumes.find(&id));
            let is_there = found.is_some_and(|found| !found.is_empty());
            if is_there {
                self.there.insert(bytes.clone());
            }
            // What is not known while the index loads may come.
            if is_there || !is_loading {
                self.known.insert(bytes);
            }
        }
        if self.known.len() > FRAGMENTS_MAX {
            // Someone looks here and there in something huge: it is looked up again.
            self.known = Ranges::new();
            self.there = Ranges::new();
            self.aside = Ranges::new();
        }
    }

    /// Nothing is read from volumes before this time.
    pub(super) fn rest_until(&mut self, rested_us: u64) {
        self.aside.extend(self.there.iter());
        self.there = Ranges::new();
        self.rested_us = rested_us;
    }

    /// Has it read from volumes again, if it is time.
    pub(super) fn rested(&mut self, now_us: u64) {
        if !self.aside.is_empty() && now_us >= self.rested_us {
            self.there.extend(self.aside.iter());
            self.aside = Ranges::new();
        }
    }
}
