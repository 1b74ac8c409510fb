//! Collects frames until they are written. Long content is referenced and not copied.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use smallvec::SmallVec;

use crate::upstream::transport::Transport;

/// Longest content in bytes that is copied.
const COPIED_MAX: usize = 4 << 10;
/// Bytes, and pieces, after which no more content is added before a write.
const BYTES_MAX: usize = 256 << 10;
const PIECES_MAX: usize = 48;
/// Largest buffer that an idle connection keeps, in bytes.
const IDLE_BYTES_MAX: usize = 1 << 10;

/// Bytes to be written, in order: the pieces, then the text.
#[derive(Default)]
pub(super) struct Output {
    pieces: VecDeque<Bytes>,
    /// Bytes in `pieces`.
    bytes: usize,
    /// Text after the pieces, of which `at` bytes have been written. Frames may be appended directly.
    pub(super) text: Vec<u8>,
    at: usize,
}

impl Output {
    /// Returns the number of bytes to be written.
    pub(super) fn len(&self) -> usize {
        self.bytes + self.text.len() - self.at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether enough has been collected for one write.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= BYTES_MAX || self.pieces.len() >= PIECES_MAX
    }

    /// Appends content.
    pub(super) fn content(&mut self, content: Bytes) {
        if content.len() <= COPIED_MAX {
            return self.text.extend_from_slice(&content);
        }
        if self.at < self.text.len() {
            let mut text = Bytes::from(std::mem::take(&mut self.text));
            text.advance(self.at);
            self.push(text);
        }
        self.text.clear();
        self.at = 0;
        self.push(content);
    }

    fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        self.pieces.push_back(piece);
    }

    /// Writes as much as the transport accepts. Ready when everything is written or the transport is broken.
    pub(super) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let text = &self.text[self.at..];
            let polled = if self.pieces.is_empty() {
                transport.poll_write(cx, text)
            } else {
                let pieces = self.pieces.iter().map(|piece| &piece[..]);
                let slices: SmallVec<[IoSlice<'_>; PIECES_MAX + 4]> = pieces
                    .chain([text])
                    .filter(|part| !part.is_empty())
                    .map(IoSlice::new)
                    .collect();
                transport.poll_write_vectored(cx, &slices)
            };
            match std::task::ready!(polled) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => self.written(n),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn written(&mut self, mut n: usize) {
        while let Some(piece) = self.pieces.front_mut()
            && n > 0
        {
            let part = n.min(piece.len());
            piece.advance(part);
            self.bytes -= part;
            n -= part;
            if piece.is_empty() {
                self.pieces.pop_front();
            }
        }
        self.at += n;
        if self.at == self.text.len() {
            self.text.clear();
            self.at = 0;
        }
    }

    /// Frees memory that an idle connection does not need. Returns whether there was any.
    pub(super) fn rest(&mut self) -> bool {
        let is_large = self.text.capacity() > IDLE_BYTES_MAX && self.is_empty();
        if is_large {
            *self = Output::default();
        }
        is_large
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_their_order_and_are_counted() {
        let mut out = Output::default();
        out.text.extend_from_slice(b"head");
        out.content(Bytes::from_static(b"short"));
        out.content(Bytes::from(vec![b'x'; COPIED_MAX + 1]));
        out.text.extend_from_slice(b"tail");
        assert_eq!((out.pieces.len(), out.len()), (2, 9 + COPIED_MAX + 1 + 4));
        out.written(3);
        assert_eq!(&out.pieces[0][..], b"dshort");
        out.written(6 + COPIED_MAX + 1 + 1);
        assert_eq!((out.len(), &out.text[out.at..]), (3, &b"ail"[..]));
        out.content(Bytes::from(vec![b'y'; COPIED_MAX + 1]));
        assert_eq!(&out.pieces[0][..], b"ail");
        out.written(3 + COPIED_MAX + 1);
        assert!(out.is_empty() && !out.is_full());
        for _ in 0..PIECES_MAX {
            out.content(Bytes::from(vec![b'y'; COPIED_MAX + 1]));
        }
        assert!(out.is_full());
    }
}
