//! The interim (1xx) heads before one response.

use std::collections::VecDeque;

use super::field_block::FieldBlock;
use super::status::Status;

/// A queue of the 1xx heads (RFC 9110 15.2) that come before one response. Number and size are
/// limited: further heads are dropped, since they are only hints.
#[derive(Clone, Debug, Default)]
pub struct InterimHeads {
    heads: VecDeque<(Status, FieldBlock)>,
    /// Number and bytes of all heads so far.
    count: usize,
    bytes: usize,
}

impl InterimHeads {
    /// Most heads before one response.
    pub const COUNT_MAX: usize = 16;
    /// Largest size of their header lines together, in bytes.
    pub const BYTES_MAX: usize = 16 << 10;

    /// Appends a head, unless the limit is reached. Returns whether the head was appended.
    pub fn push(&mut self, status: Status, fields: FieldBlock) -> bool {
        let bytes = self.bytes + fields.text().len();
        let fits = self.count < Self::COUNT_MAX && bytes <= Self::BYTES_MAX;
        if fits {
            (self.count, self.bytes) = (self.count + 1, bytes);
            self.heads.push_back((status, fields));
        }
        fits
    }

    /// Removes and returns the first head.
    pub fn pop(&mut self) -> Option<(Status, FieldBlock)> {
        self.heads.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_beyond_the_limit_are_dropped() {
        let mut few = InterimHeads::default();
        for status in 0..40 {
            few.push(status, FieldBlock::new());
        }
        let kept: Vec<_> = std::iter::from_fn(|| few.pop())
            .map(|(status, _)| status)
            .collect();
        assert!(kept.iter().copied().eq(0..InterimHeads::COUNT_MAX as u16));
        // Heads that were taken count, too.
        few.push(103, FieldBlock::new());
        assert!(few.pop().is_none());
        let mut long = InterimHeads::default();
        let value = "x".repeat(InterimHeads::BYTES_MAX / 2);
        let fields: FieldBlock = [("link", &*value)].into_iter().collect();
        long.push(103, fields.clone());
        long.push(103, fields);
        assert!(long.pop().is_some() && long.pop().is_none());
    }
}
