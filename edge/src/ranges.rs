//! Sets of byte ranges, with union, difference, and the present and missing parts of a range.

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

/// A set of bytes as half-open ranges, which are sorted, disjoint, not empty and not adjacent.
///
/// Extending the last range is O(1), since this happens for every part of a response body that arrives. Other changes take a binary search
/// and the moving of later ranges. Empty and inverted ranges count as no bytes everywhere. The number of ranges is not limited here: the
/// caller, which decides where fetches begin, limits it.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Ranges(SmallVec<[Range<u64>; 2]>);

impl Ranges {
    /// Returns the empty set.
    pub const fn new() -> Ranges {
        Ranges(SmallVec::new_const())
    }

    /// Adds a range to the set; ranges that overlap or are adjacent are joined.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        match self.0.last_mut() {
            Some(last) if range.start > last.end => self.0.push(range),
            Some(last) if range.start >= last.start => last.end = last.end.max(range.end),
            Some(_) => self.insert_inside(range),
            None => self.0.push(range),
        }
    }

    /// Adds a range that begins before the last range of the set.
    fn insert_inside(&mut self, range: Range<u64>) {
        let from = self.0.partition_point(|r| r.end < range.start);
        let to = self.0.partition_point(|r| r.start <= range.end);
        if from == to {
            self.0.insert(from, range);
            return;
        }
        let end = self.0[to - 1].end.max(range.end);
        let joined = &mut self.0[from];
        joined.start = joined.start.min(range.start);
        joined.end = end;
        self.0.drain(from + 1..to);
    }

    /// Removes the bytes of a range from the set.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let from = self.0.partition_point(|r| r.end <= range.start);
        let to = self.0.partition_point(|r| r.start < range.end);
        if from >= to {
            return;
        }
        let before = self.0[from].start..range.start;
        let after = range.end..self.0[to - 1].end;
        self.0.drain(from..to);
        for rest in [after, before] {
            if !rest.is_empty() {
                self.0.insert(from, rest);
            }
        }
    }

    /// Whether the set contains the byte at this offset.
    pub fn contains(&self, position: u64) -> bool {
        self.run_at(position).is_some()
    }

    /// Whether the set contains all bytes of the range; true for an empty range.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.contiguous_from(range.start) >= range.end
    }

    /// Whether the set contains any byte of the range.
    pub fn intersects(&self, range: &Range<u64>) -> bool {
        self.within(range.clone()).next().is_some()
    }

    /// Returns the end of the set's range that contains `position`; `position` itself if the set does not contain that byte.
    pub fn contiguous_from(&self, position: u64) -> u64 {
        self.run_at(position).map_or(position, |run| run.end)
    }

    /// Returns the parts of a range that are in the set, in order.
    pub fn within(&self, want: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let want = if want.is_empty() { 0..0 } else { want };
        let from = self.0.partition_point(|r| r.end <= want.start);
        self.0[from..]
            .iter()
            .take_while(move |r| r.start < want.end)
            .map(move |r| r.start.max(want.start)..r.end.min(want.end))
    }

    /// Returns the parts of a range that are not in the set, in order.
    pub fn gaps(&self, want: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let end = want.end;
        let mut position = want.start;
        let mut present = self.within(want);
        std::iter::from_fn(move || {
            while position < end {
                let part = present.next().unwrap_or(end..end);
                let gap = position..part.start;
                position = part.end;
                if !gap.is_empty() {
                    return Some(gap);
                }
            }
            None
        })
    }

    /// Returns the number of bytes in the set.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|r| r.end - r.start).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of ranges in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the offset after the last byte of the set; 0 for the empty set.
    pub fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last.end)
    }

    /// Returns the ranges of the set, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + ExactSizeIterator + '_ {
        self.0.iter().cloned()
    }

    fn run_at(&self, position: u64) -> Option<&Range<u64>> {
        let at = self.0.partition_point(|r| r.end <= position);
        self.0.get(at).filter(|r| r.start <= position)
    }
}

impl From<Range<u64>> for Ranges {
    fn from(range: Range<u64>) -> Ranges {
        Ranges::from_iter([range])
    }
}

impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Ranges {
        let mut all = Ranges::new();
        all.extend(ranges);
        all
    }
}

impl Extend<Range<u64>> for Ranges {
    fn extend<I: IntoIterator<Item = Range<u64>>>(&mut self, ranges: I) {
        for range in ranges {
            self.insert(range);
        }
    }
}

/// Formats the set as `0-99,200-299`, with inclusive ends as in a Range header (RFC 9110 14.1.2). The empty set is `-`.
impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("-");
        }
        for (i, range) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}-{}", range.start, range.end - 1)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const SPAN: u64 = 48;

    /// Returns the maximal runs of `positions`, which are the ranges that `Ranges` must contain.
    fn runs(positions: &BTreeSet<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for &p in positions {
            match runs.last_mut() {
                Some(run) if run.end == p => run.end += 1,
                _ => runs.push(p..p + 1),
            }
        }
        runs
    }

    fn a_range() -> impl Strategy<Value = Range<u64>> {
        (0..SPAN, 0..SPAN).prop_map(|(a, b)| a..b)
    }

    fn changes() -> impl Strategy<Value = Vec<(bool, Range<u64>)>> {
        prop::collection::vec((prop::bool::weighted(0.7), a_range()), 0..24)
    }

    fn both(changes: &[(bool, Range<u64>)]) -> (Ranges, BTreeSet<u64>) {
        let (mut ranges, mut model) = (Ranges::new(), BTreeSet::new());
        for (add, range) in changes {
            if *add {
                ranges.insert(range.clone());
                model.extend(range.clone());
            } else {
                ranges.remove(range.clone());
                model.retain(|p| !range.contains(p));
            }
        }
        (ranges, model)
    }

    proptest! {
        #[test]
        fn a_set_contains_exactly_the_maximal_runs(changes in changes()) {
            let (ranges, model) = both(&changes);
            prop_assert_eq!(ranges.iter().collect::<Vec<_>>(), runs(&model));
            prop_assert_eq!(ranges.total(), model.len() as u64);
            prop_assert_eq!(ranges.is_empty(), model.is_empty());
            prop_assert_eq!(ranges.len(), runs(&model).len());
            prop_assert_eq!(ranges.end(), model.last().map_or(0, |p| p + 1));
            prop_assert_eq!(ranges.iter().collect::<Ranges>(), ranges);
        }

        #[test]
        fn questions_about_a_range_are_answered_as_by_the_model(changes in changes(), want in a_range()) {
            let (ranges, model) = both(&changes);
            let wanted: BTreeSet<u64> = want.clone().collect();
            let present = wanted.intersection(&model).copied().collect();
            let missing = wanted.difference(&model).copied().collect();
            prop_assert_eq!(ranges.within(want.clone()).collect::<Vec<_>>(), runs(&present));
            prop_assert_eq!(ranges.gaps(want.clone()).collect::<Vec<_>>(), runs(&missing));
            prop_assert_eq!(ranges.covers(&want), missing.is_empty());
            prop_assert_eq!(ranges.intersects(&want), !present.is_empty());
        }

        #[test]
        fn questions_about_a_position_are_answered_as_by_the_model(changes in changes(), position in 0..SPAN) {
            let (ranges, model) = both(&changes);
            prop_assert_eq!(ranges.contains(position), model.contains(&position));
            let mut end = position;
            while model.contains(&end) {
                end += 1;
            }
            prop_assert_eq!(ranges.contiguous_from(position), end);
        }
    }

    #[test]
    fn the_ends_of_u64_are_ordinary_positions() {
        let mut ranges = Ranges::from(0..u64::MAX);
        assert!(ranges.covers(&(0..u64::MAX)));
        assert_eq!(ranges.total(), u64::MAX);
        ranges.remove(10..u64::MAX);
        ranges.insert(u64::MAX - 1..u64::MAX);
        let mut gaps = ranges.gaps(0..u64::MAX);
        assert_eq!((gaps.next(), gaps.next()), (Some(10..u64::MAX - 1), None));
    }

    #[test]
    fn ranges_are_formatted_as_in_a_range_header() {
        let mut ranges = Ranges::new();
        assert_eq!(ranges.to_string(), "-");
        ranges.extend([0..100, 200..300]);
        assert_eq!(ranges.to_string(), "0-99,200-299");
        assert_eq!(format!("{ranges:?}"), "[0..100, 200..300]");
    }
}
