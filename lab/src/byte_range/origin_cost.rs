//! The cost of a part of a round for the origin: requests, bytes, and bytes sent more than once. No I/O.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::origin::Seen;

/// The cost for the origin of the requests for one file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct OriginCost<T = f64> {
    /// Requests that the origin received.
    #[serde(rename = "req")]
    pub requests: T,
    /// Body bytes that the origin sent.
    pub sent: T,
    /// `sent` divided by the size of the distinct blocks that contain the requested ranges.
    #[serde(rename = "over")]
    pub over_blocks: T,
    /// Highest number of times that the origin sent the same requested byte.
    #[serde(rename = "most")]
    pub times: T,
}

impl<T> OriginCost<T> {
    /// Returns one value for each figure; `None` if one of them is missing. `value` receives the function that picks the
    /// figure.
    pub(super) fn each<U>(
        value: impl Fn(fn(&OriginCost<T>) -> &T) -> Option<U>,
    ) -> Option<OriginCost<U>> {
        Some(OriginCost {
            requests: value(|cost| &cost.requests)?,
            sent: value(|cost| &cost.sent)?,
            over_blocks: value(|cost| &cost.over_blocks)?,
            times: value(|cost| &cost.times)?,
        })
    }
}

impl OriginCost {
    /// Computes the cost of the origin's requests in `seen`. Clients requested the ranges `wanted` of a file of
    /// `length` bytes; a block has `block` bytes.
    pub(super) fn of(seen: &[Seen], wanted: &[Range<u64>], block: u64, length: u64) -> OriginCost {
        let spans: Vec<Range<u64>> = seen.iter().map(span).collect();
        let sent: u64 = spans.iter().map(|span| span.end - span.start).sum();
        let touched = touched(wanted, block, length);
        OriginCost {
            requests: seen.len() as f64,
            sent: sent as f64,
            over_blocks: sent as f64 / touched.max(1) as f64,
            times: f64::from(most(&spans, wanted)),
        }
    }
}

/// Returns the range of the file that was sent for a request. A body is sent from its beginning, so its length gives
/// the end, even if the body was cut.
fn span(seen: &Seen) -> Range<u64> {
    let first = seen.range.map_or(0, |(first, _)| first);
    first..first + seen.sent
}

/// Returns the total size of the distinct blocks that overlap `wanted`.
fn touched(wanted: &[Range<u64>], block: u64, length: u64) -> u64 {
    let mut blocks: Vec<u64> = wanted
        .iter()
        .filter(|range| !range.is_empty())
        .flat_map(|range| range.start / block..=(range.end - 1) / block)
        .collect();
    blocks.sort_unstable();
    blocks.dedup();
    let bytes = |number: &u64| (length - number * block).min(block);
    blocks.iter().map(bytes).sum()
}

/// Returns the largest number of `spans` that contain the same byte of `wanted`.
fn most(spans: &[Range<u64>], wanted: &[Range<u64>]) -> u32 {
    let mut edges: Vec<(u64, i32)> = Vec::new();
    for span in spans {
        for wanted in wanted {
            let (start, end) = (span.start.max(wanted.start), span.end.min(wanted.end));
            if start < end {
                edges.extend([(start, 1), (end, -1)]);
            }
        }
    }
    // At equal positions, ends sort before beginnings.
    edges.sort_unstable();
    let (mut depth, mut most) = (0, 0);
    for (_, step) in edges {
        depth += step;
        most = most.max(depth);
    }
    most.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_counts_once_and_the_last_one_may_be_shorter() {
        assert_eq!(touched(&[5..6, 7..12, 8..9], 10, 100), 20);
        assert_eq!(touched(&[95..96, 97..98], 10, 98), 8);
        assert_eq!(touched(&[3..3, 7..7], 10, 100), 0);
    }

    #[test]
    fn the_requested_byte_sent_most_often_is_counted() {
        let wanted = [10..20, 40..50];
        assert_eq!(most(&[], &wanted), 0);
        assert_eq!(most(&[0..10, 20..40, 50..60], &wanted), 0);
        assert_eq!(most(&[0..15, 15..60], &wanted), 1);
        assert_eq!(most(&[0..16, 15..60, 45..46], &wanted), 2);
        assert_eq!(most(&[0..60, 0..60, 19..20], &wanted), 3);
    }
}
