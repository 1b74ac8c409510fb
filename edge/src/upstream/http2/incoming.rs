//! The content of a response that has arrived and was not taken yet. Its bytes are bounded by the stream's window.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Length in bytes from which content shares the memory in which it was received. Shorter content is copied, so that a few
/// bytes that are not taken do not keep much memory in use.
const SHARED_MIN: usize = 4 << 10;
/// Number of bytes not taken from which on all further content is copied: each piece may keep a whole read's memory in use,
/// of which the rest may have been content of other streams.
const SHARED_MAX: usize = 64 << 10;
/// Size of the memory into which short content is copied.
const TAIL: usize = 8 << 10;

/// Received content, in order: the pieces, then the tail.
#[derive(Default)]
pub(super) struct Incoming {
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    /// Number of bytes in both.
    bytes: usize,
}

impl Incoming {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Whether content of this length is to be added by reference. Otherwise it is copied.
    pub(super) fn shares(&self, length: usize) -> bool {
        length >= SHARED_MIN && self.bytes < SHARED_MAX
    }

    /// Adds content by reference.
    pub(super) fn share(&mut self, content: Bytes) {
        self.bytes += content.len();
        if !self.tail.is_empty() {
            let tail = self.tail.split();
            self.pieces.push_back(tail.freeze());
        }
        self.pieces.push_back(content);
    }

    /// Adds a copy of content.
    pub(super) fn copy(&mut self, content: &[u8]) {
        let room = self.tail.capacity() - self.tail.len();
        if !self.tail.is_empty() && content.len() > room {
            let tail = std::mem::take(&mut self.tail);
            self.pieces.push_back(tail.freeze());
        }
        if self.tail.is_empty() && !self.pieces.is_empty() {
            // More will follow, since this is not the whole content.
            self.tail.reserve(TAIL.max(content.len()));
        }
        self.tail.extend_from_slice(content);
        self.bytes += content.len();
    }

    /// Takes the next piece.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        let piece = match self.pieces.pop_front() {
            Some(piece) => piece,
            None if self.tail.is_empty() => return None,
            None => std::mem::take(&mut self.tail).freeze(),
        };
        self.bytes -= piece.len();
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_keeps_its_order_and_short_pieces_share_memory() {
        let mut incoming = Incoming::default();
        let mut expected = Vec::new();
        for n in 0..30_000_u32 {
            let byte = [n as u8];
            incoming.copy(&byte);
            expected.extend_from_slice(&byte);
            if n % 10_000 == 0 {
                incoming.share(Bytes::from(vec![1; SHARED_MIN]));
                expected.extend_from_slice(&[1; SHARED_MIN]);
            }
        }
        assert!(incoming.pieces.len() < 40, "{}", incoming.pieces.len());
        assert_eq!(incoming.len(), expected.len());
        let mut taken = Vec::new();
        while let Some(piece) = incoming.take() {
            taken.extend_from_slice(&piece);
        }
        assert!(incoming.is_empty() && taken == expected);
    }

    #[test]
    fn short_content_and_content_after_much_else_is_copied() {
        let mut incoming = Incoming::default();
        assert!(!incoming.shares(SHARED_MIN - 1));
        while incoming.len() < SHARED_MAX {
            assert!(incoming.shares(SHARED_MIN));
            incoming.share(Bytes::from(vec![1; SHARED_MIN]));
        }
        assert!(!incoming.shares(16 << 10));
        incoming.copy(&[2; 16 << 10]);
        incoming.take();
        incoming.take();
        assert_eq!(incoming.len(), SHARED_MAX + (8 << 10));
        (0..3).for_each(|_| drop(incoming.take()));
        assert!(incoming.shares(SHARED_MIN));
    }
}
