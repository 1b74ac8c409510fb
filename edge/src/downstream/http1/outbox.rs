//! Bytes on their way to the client: text of our own, shared content and parts of files, in order.
//! What lies in memory is one `writev`, a part of a file one `sendfile`.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::handler::FileRange;
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
    File(FileRange),
}

impl Piece {
    fn length(&self) -> usize {
        match self {
            Piece::Text(range) => range.len(),
            Piece::Content(bytes) => bytes.len(),
            Piece::File(part) => (part.range.end - part.range.start) as usize,
        }
    }
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

    /// Adds a part of a file, which is not empty.
    pub fn file(&mut self, part: FileRange) {
        let piece = Piece::File(part);
        self.bytes += piece.length();
        self.pieces.push(piece);
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

    /// Bytes of a part of a file that is the last piece and not, or not wholly, written; 0 if that is
    /// another one.
    pub fn file_left(&self) -> usize {
        match &self.pieces[self.first..] {
            [piece @ Piece::File(_)] => piece.length() - self.offset,
            _ => 0,
        }
    }

    /// Forgets those bytes.
    pub fn drop_file(&mut self) {
        if self.file_left() == self.bytes {
            self.clear();
        }
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
        let n = match self.pieces.get(self.first) {
            Some(Piece::File(part)) => {
                let range = part.range.start + self.offset as u64..part.range.end;
                ready!(socket.poll_send_file(cx, &part.file, range))?
            }
            _ => ready!(self.poll_write_memory(cx, socket))?,
        };
        // A file that has become shorter gives nothing.
        if n == 0 && self.bytes > 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.written(n);
        Poll::Ready(Ok(n))
    }

    /// Writes what lies in memory before the next part of a file.
    fn poll_write_memory(
        &self,
        cx: &mut Context<'_>,
        socket: &mut Socket,
    ) -> Poll<io::Result<usize>> {
        let mut slices: SmallVec<[IoSlice<'_>; 8]> = SmallVec::new();
        let mut skip = self.offset;
        let mut more = false;
        for piece in self.pieces[self.first..].iter().take(PIECES_MAX + 2) {
            let bytes = match piece {
                Piece::Text(range) => &self.text[range.clone()],
                Piece::Content(bytes) => bytes,
                Piece::File(_) => {
                    more = true;
                    break;
                }
            };
            slices.push(IoSlice::new(&bytes[skip..]));
            skip = 0;
        }
        // A part of a file lies in the page cache in any case.
        if !more && self.bytes >= MUCH {
            socket.fit_send_buffer();
        }
        socket.poll_write(cx, &slices, more)
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
            let length = piece.length();
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
    fn parts_of_files_come_in_their_place() {
        let mut file = tempfile::tempfile().expect("a file");
        std::io::Write::write_all(&mut file, b"0123456789").expect("written");
        let file = std::sync::Arc::new(std::os::fd::OwnedFd::from(file));
        let part = |range| FileRange {
            file: file.clone(),
            range,
        };
        let mut outbox = Outbox::default();
        outbox.text(|t| t.extend_from_slice(b"head "));
        outbox.file(part(2..9));
        outbox.text(|t| t.extend_from_slice(b" tail"));
        outbox.file(part(0..1));
        assert_eq!(sent(outbox), b"head 2345678 tail0");
    }

    #[test]
    fn a_file_that_is_too_short_is_an_error() {
        let file = std::os::fd::OwnedFd::from(tempfile::tempfile().expect("a file"));
        let mut outbox = Outbox::default();
        outbox.file(FileRange {
            file: file.into(),
            range: 0..1,
        });
        let (mut near, _far) = Socket::pair(3);
        let mut cx = Context::from_waker(Waker::noop());
        let written = outbox.poll_write(&mut cx, &mut near);
        assert!(matches!(written, Poll::Ready(Err(_))));
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
