//! Bytes on their way to the client: text of our own and shared content, in order, one `writev`.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::sys::net::Socket;

/// Pieces and bytes gathered before a write.
pub const PIECES_MAX: usize = 64;
/// See `PIECES_MAX`.
pub const BYTES_MAX: usize = 1 << 20;
/// From so many bytes on it is worth asking how far the client is.
const MUCH: usize = 256 << 10;
/// Content up to this is copied rather than pointed to.
const COPIED_MAX: usize = 8 << 10;
/// Text memory that is worth keeping.
const TEXT_KEPT: usize = 16 << 10;

/// A queue of pieces. Heads and chunk framing are text in one buffer; content is shared, not copied.
#[derive(Default)]
pub struct Outbox {
    text: Vec<u8>,
    pieces: Vec<Piece>,
    /// Pieces written whole, and bytes of the next one.
    first: usize,
    offset: usize,
    bytes: usize,
}

enum Piece {
    Text(Range<usize>),
    Content(Bytes),
}

impl Outbox {
    /// Adds text.
    #[inline]
    pub fn text(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        write(&mut self.text);
        let end = self.text.len();
        self.bytes += end - start;
        match self.pieces[self.first..].last_mut() {
            // One piece of text after another is one piece.
            Some(Piece::Text(range)) if range.end == start => range.end = end,
            _ => self.pieces.push(Piece::Text(start..end)),
        }
    }

    /// Adds content, which is not empty. A little of it is copied behind the text before it: one
    /// piece is sent at less cost than two.
    #[inline]
    pub fn content(&mut self, bytes: Bytes) {
        if bytes.len() <= COPIED_MAX
            && let Some(Piece::Text(_)) = self.pieces[self.first..].last()
        {
            return self.text(|text| text.extend_from_slice(&bytes));
        }
        self.bytes += bytes.len();
        self.pieces.push(Piece::Content(bytes));
    }

    /// Whether everything is written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether enough is gathered for one write.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.bytes >= BYTES_MAX || self.pieces.len() - self.first >= PIECES_MAX
    }

    /// Bytes still to be written.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Writes once; says how many bytes went.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Socket,
    ) -> Poll<io::Result<usize>> {
        if self.bytes >= MUCH {
            socket.fit_send_buffer();
        }
        let mut slices: SmallVec<[IoSlice<'_>; 8]> = SmallVec::new();
        let mut skip = self.offset;
        for piece in self.pieces[self.first..].iter().take(PIECES_MAX + 2) {
            let bytes = match piece {
                Piece::Text(range) => &self.text[range.clone()],
                Piece::Content(bytes) => bytes,
            };
            slices.push(IoSlice::new(&bytes[skip..]));
            skip = 0;
        }
        let n = ready!(socket.poll_write(cx, &slices))?;
        if n == 0 && self.bytes > 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        drop(slices);
        self.written(n);
        Poll::Ready(Ok(n))
    }

    #[inline]
    fn written(&mut self, n: usize) {
        self.bytes -= n;
        if self.bytes == 0 {
            self.clear();
            return;
        }
        let mut left = self.offset + n;
        while let Some(piece) = self.pieces.get_mut(self.first) {
            let length = match piece {
                Piece::Text(range) => range.len(),
                Piece::Content(bytes) => bytes.len(),
            };
            if left < length {
                break;
            }
            left -= length;
            // Written content is let go at once, however long the rest takes.
            *piece = Piece::Text(0..0);
            self.first += 1;
        }
        self.offset = left;
        if self.first > 2 * PIECES_MAX {
            self.pieces.drain(..self.first);
            self.first = 0;
        }
    }

    fn clear(&mut self) {
        self.text.clear();
        self.pieces.clear();
        (self.first, self.offset, self.bytes) = (0, 0, 0);
    }

    /// Forgets everything; says whether the memory is worth keeping.
    pub fn clear_for_reuse(&mut self) -> bool {
        self.clear();
        self.text.capacity() <= TEXT_KEPT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// Writes all of it into a socket that takes three bytes at a time; what comes out.
    fn sent(mut outbox: Outbox) -> Vec<u8> {
        let (mut near, mut far) = Socket::pair(3);
        let mut cx = Context::from_waker(Waker::noop());
        let (mut got, mut buf, length) = (Vec::new(), [0; 2], outbox.len());
        while got.len() < length {
            if !outbox.is_empty() {
                let written = outbox.poll_write(&mut cx, &mut near);
                assert!(!matches!(written, Poll::Ready(Err(_))));
            }
            if let Poll::Ready(Ok(n)) = far.poll_read(&mut cx, &mut buf) {
                got.extend_from_slice(&buf[..n]);
            }
        }
        got
    }

    #[test]
    fn pieces_come_out_in_order_however_little_fits() {
        let content = vec![b'c'; COPIED_MAX + 1];
        let mut outbox = Outbox::default();
        outbox.text(|t| t.extend_from_slice(b"head "));
        outbox.text(|t| t.extend_from_slice(b"more "));
        outbox.content(content.clone().into());
        outbox.text(|t| t.extend_from_slice(b"\r\n"));
        assert_eq!(outbox.pieces.len(), 3);
        let got = sent(outbox);
        assert_eq!(got, [b"head more ", &content[..], b"\r\n"].concat());
    }

    #[test]
    fn a_little_content_joins_the_text_before_it() {
        let mut outbox = Outbox::default();
        outbox.text(|t| t.extend_from_slice(b"head "));
        outbox.content(Bytes::from_static(b"content"));
        outbox.text(|t| t.extend_from_slice(b"\r\n"));
        assert_eq!(outbox.pieces.len(), 1);
        assert_eq!(sent(outbox), b"head content\r\n");
    }
}
