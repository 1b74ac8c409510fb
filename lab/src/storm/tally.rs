//! The judgements of the storm's clients, and their counters. No I/O.

use std::collections::HashSet;
use std::ops::Range;

/// Largest number of wrong and failed responses that are described.
pub(super) const SAMPLES_MAX: usize = 5;

/// The judgement of one response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All bytes arrived and are right.
    Right,
    /// A byte differs from the version that the response's ETag names. The text describes the byte.
    Wrong(String),
    /// No response, or a response that does not fit the request. The text says why.
    Failed(String),
    /// The body ended before its announced length; the bytes that arrived are right.
    Cut,
}

/// Counts of one client, or of all clients.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) right: u64,
    pub(super) wrong: u64,
    pub(super) failed: u64,
    pub(super) cut: u64,
    /// Responses with a version that had been replaced for more than max-age and a second.
    pub(super) stale: u64,
    /// Body bytes received.
    pub(super) bytes: u64,
    /// Descriptions of some wrong and failed responses.
    pub(super) samples: Vec<String>,
    /// File, version and block of all bytes that were requested and answered with a valid head.
    touched: HashSet<(usize, u32, u64)>,
}

impl Tally {
    pub(super) fn count(&mut self, verdict: Verdict) {
        let (counter, why) = match verdict {
            Verdict::Right => (&mut self.right, None),
            Verdict::Cut => (&mut self.cut, None),
            Verdict::Wrong(why) => (&mut self.wrong, Some(why)),
            Verdict::Failed(why) => (&mut self.failed, Some(why)),
        };
        *counter += 1;
        self.samples
            .extend(why.filter(|_| self.samples.len() < SAMPLES_MAX));
    }

    pub(super) fn touch(&mut self, file: usize, version: u32, bytes: &Range<u64>, block: u64) {
        let blocks = bytes.start / block..bytes.end.div_ceil(block);
        self.touched
            .extend(blocks.map(|number| (file, version, number)));
    }

    pub(super) fn add(&mut self, other: Tally) {
        self.right += other.right;
        self.wrong += other.wrong;
        self.failed += other.failed;
        self.cut += other.cut;
        self.stale += other.stale;
        self.bytes += other.bytes;
        self.touched.extend(other.touched);
        let room = SAMPLES_MAX.saturating_sub(self.samples.len());
        self.samples.extend(other.samples.into_iter().take(room));
    }

    pub(super) fn requests(&self) -> u64 {
        self.right + self.wrong + self.failed + self.cut
    }

    /// Returns the total size of the distinct blocks. The last block of a file may be shorter.
    pub(super) fn touched_bytes(&self, files: &[u64], block: u64) -> u64 {
        let bytes = |(file, _, number): &(usize, u32, u64)| {
            files[*file].saturating_sub(number * block).min(block)
        };
        self.touched.iter().map(bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_once_for_each_version() {
        let mut one = Tally::default();
        one.touch(0, 0, &(5..25), 10);
        one.touch(0, 0, &(19..20), 10);
        let mut two = Tally::default();
        two.touch(0, 0, &(0..10), 10);
        two.touch(0, 1, &(20..25), 10);
        two.count(Verdict::Cut);
        one.add(two);
        // Blocks of 10, 10 and 5 bytes of version 0, and the last one of version 1.
        assert_eq!(one.touched_bytes(&[25], 10), 30);
        assert_eq!((one.cut, one.requests()), (1, 1));
    }

    #[test]
    fn only_the_first_samples_are_kept() {
        let mut tally = Tally::default();
        for number in 0..100 {
            tally.count(Verdict::Failed(number.to_string()));
        }
        assert_eq!((tally.failed, tally.samples.len()), (100, SAMPLES_MAX));
    }
}
