//! Collects output before it is written: heads and framing, shared content and parts of files, in
//! order. Consecutive bytes in memory are written by one `writev`, a part of a file by one
//! `sendfile`.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::downstream::connection::Connection;
use crate::downstream::transport::Transport;
use crate::downstream::turn::Turn;
use crate::handler::FileRange;

/// Most pieces collected before a write.
const PIECES_MAX: usize = 64;
/// Bytes after which no more pieces are collected before a write.
const BYTES_MAX: usize = 1 << 20;
/// Size in bytes from which a write first limits the send buffer (`Transport::fit_send_buffer`).
const LARGE_WRITE: usize = 256 << 10;
/// Longest content in bytes that is copied instead of referenced.
const COPIED_MAX: usize = 8 << 10;
/// Most text memory, in bytes, of an outbox that is kept for reuse.
const TEXT_KEPT: usize = 16 << 10;
/// Most outboxes kept for reuse per worker.
const POOLED_MAX: usize = 64;

thread_local! {
    static POOL: RefCell<Vec<Outbox>> = const { RefCell::new(Vec::new()) };
}

/// A queue of pieces to be written. Heads and chunk framing are text in one buffer; long content is
/// shared, not copied.
#[derive(Default)]
pub struct Outbox {
    text: Vec<u8>,
    pieces: Vec<Piece>,
    /// Number of pieces that have been written completely, and bytes written of the next piece.
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
    /// Returns an empty outbox from the worker's pool.
    #[inline]
    pub fn pooled() -> Outbox {
        let pooled = POOL.with_borrow_mut(Vec::pop);
        pooled.unwrap_or_default()
    }

    /// Empties the outbox and returns it to the worker's pool.
    #[inline]
    pub fn recycle(mut self) {
        self.clear();
        if self.text.capacity() > TEXT_KEPT {
            return;
        }
        // While a thread ends, the thread-local pool may already have been destroyed.
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            if pool.len() < POOLED_MAX {
                pool.push(self);
            }
        });
    }

    /// Appends text.
    #[inline]
    pub fn text(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        write(&mut self.text);
        let end = self.text.len();
        if start == end {
            return;
        }
        self.bytes += end - start;
        match self.pieces[self.first..].last_mut() {
            // Adjacent texts are joined into one piece.
            Some(Piece::Text(range)) if range.end == start => range.end = end,
            _ => self.pieces.push(Piece::Text(start..end)),
        }
    }

    /// Appends content, which must not be empty. Short content is copied into the text before it,
    /// since one piece costs less to send than two.
    #[inline]
    pub fn content(&mut self, bytes: Bytes) {
        self.content_copied(bytes, COPIED_MAX);
    }

    /// Like `content`, but content is copied up to this length in bytes.
    #[inline]
    pub fn content_copied(&mut self, bytes: Bytes, copied_max: usize) {
        if bytes.len() <= copied_max
            && let Some(Piece::Text(_)) = self.pieces[self.first..].last()
        {
            return self.text(|text| text.extend_from_slice(&bytes));
        }
        self.bytes += bytes.len();
        self.pieces.push(Piece::Content(bytes));
    }

    /// Appends a part of a file, which must not be empty.
    pub fn file(&mut self, part: FileRange) {
        let piece = Piece::File(part);
        self.bytes += piece.length();
        self.pieces.push(piece);
    }

    /// Whether everything has been written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether enough has been collected for one write.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.bytes >= BYTES_MAX || self.pieces.len() - self.first >= PIECES_MAX
    }

    /// Returns the unwritten bytes of a part of a file, if that part is the only piece left, else
    /// 0.
    pub fn file_left(&self) -> usize {
        match &self.pieces[self.first..] {
            [piece @ Piece::File(_)] => piece.length() - self.offset,
            _ => 0,
        }
    }

    /// Removes the part of a file that `file_left` reports.
    pub fn drop_file(&mut self) {
        if self.file_left() == self.bytes {
            self.clear();
        }
    }

    /// Returns the number of bytes still to be written.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Makes one write and counts the bytes written.
    #[inline]
    pub fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        turn: &mut Turn,
    ) -> Poll<io::Result<()>> {
        let n = ready!(self.poll_write(cx, &mut connection.transport))?;
        let counters = &connection.worker.counters;
        counters.client_bytes_out.add(n as u64);
        connection.written += n as u64;
        turn.wrote(n);
        Poll::Ready(Ok(()))
    }

    /// Makes one write. Returns the number of bytes written.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
    ) -> Poll<io::Result<usize>> {
        let n = match self.pieces.get(self.first) {
            Some(Piece::File(part)) => {
                let range = part.range.start + self.offset as u64..part.range.end;
                ready!(transport.poll_send_file(cx, &part.file, range))?
            }
            _ => ready!(self.poll_write_memory(cx, transport))?,
        };
        // `sendfile` wrote nothing because the file has become shorter.
        if n == 0 && self.bytes > 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.written(n);
        Poll::Ready(Ok(n))
    }

    /// Writes the pieces in memory that come before the next part of a file.
    fn poll_write_memory(
        &self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
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
        // Only pieces in memory are counted here, since `sendfile` does not copy a part of a file
        // into the send buffer.
        if !more && self.bytes >= LARGE_WRITE {
            transport.fit_send_buffer();
        }
        transport.poll_write(cx, &slices, more)
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
            // Content is released as soon as it has been written, since the rest may take long.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::net::Accepted;
    use std::os::unix::net::UnixStream;
    use std::task::Waker;

    /// Writes all of the outbox into a transport that holds three bytes at a time, and returns what
    /// the other end receives.
    fn sent(mut outbox: Outbox) -> Vec<u8> {
        let (mut near, mut far) = Transport::pair(3);
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
    fn pieces_are_written_in_order_however_few_bytes_fit() {
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
    fn parts_of_files_are_sent_in_order() {
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
        let (mut near, mut far) = sockets();
        let mut cx = Context::from_waker(Waker::noop());
        while !outbox.is_empty() {
            let written = outbox.poll_write(&mut cx, &mut near);
            assert!(matches!(written, Poll::Ready(Ok(1..))));
        }
        let mut got = [0; 18];
        std::io::Read::read_exact(&mut far, &mut got).expect("all of it");
        assert_eq!(&got, b"head 2345678 tail0");
    }

    /// Returns a transport that sends files, and its other end.
    fn sockets() -> (Transport, UnixStream) {
        let (near, far) = UnixStream::pair().expect("a pair");
        near.set_nonblocking(true).expect("set");
        let address = ([127, 0, 0, 1], 1).into();
        let accepted = Accepted {
            fd: near.into(),
            address,
            local: address,
            sized: true,
        };
        (Transport::new(accepted), far)
    }

    #[test]
    fn a_file_that_is_too_short_is_an_error() {
        let file = std::os::fd::OwnedFd::from(tempfile::tempfile().expect("a file"));
        let mut outbox = Outbox::default();
        outbox.file(FileRange {
            file: file.into(),
            range: 0..1,
        });
        let (mut near, _far) = sockets();
        let mut cx = Context::from_waker(Waker::noop());
        let written = outbox.poll_write(&mut cx, &mut near);
        assert!(matches!(written, Poll::Ready(Err(_))));
    }

    #[test]
    fn short_content_joins_the_text_before_it() {
        let mut outbox = Outbox::default();
        outbox.text(|t| t.extend_from_slice(b"head "));
        outbox.content(Bytes::from_static(b"content"));
        outbox.text(|t| t.extend_from_slice(b"\r\n"));
        assert_eq!(outbox.pieces.len(), 1);
        assert_eq!(sent(outbox), b"head content\r\n");
    }
}
