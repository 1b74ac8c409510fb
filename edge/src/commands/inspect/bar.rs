//! The bar: shows the bytes of an object, from the first to the last, in as many cells as fit.

use std::ops::Range;

use crate::admin::{ObjectState, Span};
use crate::ranges::Ranges;

/// The state of the bytes that one cell of the bar represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// All bytes are in memory.
    Stored,
    /// All bytes are stored, but some only on volumes.
    Kept,
    /// Some bytes are stored, in memory or on volumes.
    Partly,
    /// No byte is stored, and some are being fetched.
    Flying,
    /// No byte is stored or being fetched.
    Missing,
    /// The edge's response does not list the bytes.
    Unlisted,
}

/// An object's bytes as a row of cells.
pub struct Bar {
    pub cells: Vec<Cell>,
    /// Number of bytes that the bar represents. If the object's length is not known, somewhat more
    /// than the known bytes.
    pub bytes: u64,
}

/// Returns the bar of an object, or `None` for an object without a byte.
pub fn bar(object: &ObjectState, width: usize) -> Option<Bar> {
    let (stored, flying) = (ranges(&object.stored), ranges(&object.in_flight));
    let all = everywhere(object);
    let bytes = object.length.unwrap_or_else(|| reach(&all, &flying));
    if bytes == 0 {
        return None;
    }
    let listed_to = object.listed_to.unwrap_or(u64::MAX);
    let cells = (0..width).map(|index| {
        let cell = part(bytes, index, width);
        let size = cell.end - cell.start;
        match covered(&all, &cell) {
            n if n == size && covered(&stored, &cell) == size => Cell::Stored,
            n if n == size => Cell::Kept,
            0 if cell.end > listed_to => Cell::Unlisted,
            0 if flying.intersects(&cell) => Cell::Flying,
            0 => Cell::Missing,
            _ => Cell::Partly,
        }
    });
    Some(Bar {
        cells: cells.collect(),
        bytes,
    })
}

/// Returns the range of bytes that one cell represents, at least one byte.
fn part(bytes: u64, index: usize, width: usize) -> Range<u64> {
    let edge = |index: usize| (u128::from(bytes) * index as u128 / width as u128) as u64;
    edge(index)..edge(index + 1).max(edge(index) + 1)
}

/// Returns the number of bytes that the bar represents if the object's length is not known: a
/// quarter more than the known bytes.
fn reach(stored: &Ranges, flying: &Ranges) -> u64 {
    let ends = flying.iter().map(|flight| match flight.end {
        u64::MAX => flight.start,
        end => end,
    });
    let known = ends.chain([stored.end()]).max().unwrap_or(0);
    match stored.is_empty() && flying.is_empty() {
        true => 0,
        false => known.saturating_add(known / 4).max(1),
    }
}

fn covered(ranges: &Ranges, cell: &Range<u64>) -> u64 {
    ranges.within(cell.clone()).map(|r| r.end - r.start).sum()
}

/// Returns the bytes that are in memory or on a volume.
pub fn everywhere(object: &ObjectState) -> Ranges {
    let kept = object.volumes.iter().flat_map(|its| &its.stored);
    let all = object.stored.iter().chain(kept);
    all.map(|span| span.range()).collect()
}

/// Returns the ranges in the edge's response. A range whose end is before its start is empty.
fn ranges(spans: &[Span]) -> Ranges {
    spans.iter().map(|span| span.range()).collect()
}

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "lists with one range are intended"
)]
mod tests {
    use crate::admin::OnVolume;
    use proptest::prelude::*;

    use super::*;

    fn drawn(object: &ObjectState, width: usize) -> String {
        let sign = |cell: &Cell| match cell {
            Cell::Stored => '#',
            Cell::Kept => '=',
            Cell::Partly => '+',
            Cell::Flying => '>',
            Cell::Missing => '.',
            Cell::Unlisted => '?',
        };
        bar(object, width).map_or(String::new(), |bar| bar.cells.iter().map(sign).collect())
    }

    fn object(length: Option<u64>, stored: &[Range<u64>], in_flight: &[Range<u64>]) -> ObjectState {
        let spans = |ranges: &[Range<u64>]| ranges.iter().cloned().map(Span::of).collect();
        ObjectState {
            length,
            stored: spans(stored),
            in_flight: spans(in_flight),
            ..ObjectState::default()
        }
    }

    #[test]
    fn each_cell_shows_the_state_of_its_bytes() {
        let some = object(Some(100), &[0..30, 35..36], &[40..60]);
        assert_eq!(drawn(&some, 10), "###+>>....");
        assert_eq!(drawn(&object(Some(2), &[0..1], &[]), 6), "###...");
        assert_eq!(drawn(&object(Some(0), &[], &[]), 6), "");
    }

    #[test]
    fn bytes_that_are_only_on_a_volume_are_drawn_differently() {
        let mut kept = object(Some(100), &[0..15], &[80..90]);
        let on = |ranges: &[Range<u64>]| OnVolume {
            stored: ranges.iter().cloned().map(Span::of).collect(),
            ..OnVolume::default()
        };
        kept.volumes = vec![on(&[0..30]), on(&[30..50, 85..86])];
        assert_eq!(drawn(&kept, 10), "#====...+.");
        kept.length = None;
        kept.in_flight.clear();
        assert_eq!(drawn(&kept, 10).len(), 10);
    }

    #[test]
    fn without_a_length_a_quarter_more_than_the_known_bytes_is_drawn() {
        assert_eq!(
            drawn(&object(None, &[0..80], &[80..u64::MAX]), 10),
            "########>>"
        );
        assert_eq!(drawn(&object(None, &[], &[0..u64::MAX]), 4), ">>>>");
        assert_eq!(drawn(&object(None, &[], &[]), 4), "");
    }

    #[test]
    fn unlisted_bytes_are_not_drawn_as_missing() {
        let mut sparse = object(Some(100), &[0..10, 40..45], &[]);
        sparse.listed_to = Some(50);
        assert_eq!(drawn(&sparse, 10), "#...+?????");
    }

    proptest! {
        // For arbitrary ranges, the bar has the requested width, and the state of each cell agrees
        // with its bytes.
        #[test]
        fn the_bar_agrees_with_the_bytes(
            length in prop_oneof![0..200u64, Just(u64::MAX)],
            stored in prop::collection::vec((0..250u64, 0..250u64), 0..5),
            flying in prop::collection::vec((0..250u64, 0..250u64), 0..3),
            width in 1..60usize,
        ) {
            let ranges = |pairs: &[(u64, u64)]| -> Vec<Range<u64>> { pairs.iter().map(|(a, b)| *a..*b).collect() };
            let (stored, flying) = (ranges(&stored), ranges(&flying));
            let drawn = bar(&object(Some(length), &stored, &flying), width);
            let cells = drawn.map_or(Vec::new(), |bar| bar.cells);
            prop_assert_eq!(cells.len(), if length == 0 { 0 } else { width });
            for (index, cell) in cells.iter().enumerate().filter(|_| length < 200) {
                let bytes = part(length, index, width);
                let held = |list: &[Range<u64>]| bytes.clone().filter(|b| list.iter().any(|r| r.contains(b))).count() as u64;
                let right = match (held(&stored), held(&flying)) {
                    (n, _) if n == bytes.end - bytes.start => Cell::Stored,
                    (0, 0) => Cell::Missing,
                    (0, _) => Cell::Flying,
                    _ => Cell::Partly,
                };
                prop_assert_eq!(*cell, right, "cell {}", index);
            }
        }
    }
}
