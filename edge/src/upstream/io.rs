//! A socket to an origin server, as hyper wants it, with a record of what went over it.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use hyper::rt::ReadBufCursor;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::pool::Seat;

/// A connection's socket and what went over it so far, for hyper and for us.
pub(super) struct Wire {
    stream: RefCell<TcpStream>,
    /// The server's address.
    pub(super) peer: Option<SocketAddr>,
    /// Bytes received.
    pub(super) read: Cell<u64>,
    /// Bytes the kernel took.
    pub(super) written: Cell<u64>,
    /// Whether the last write found the socket full.
    pub(super) write_blocked: Cell<bool>,
    /// Whether a write found that the server reads no more.
    pub(super) write_broken: Cell<bool>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Rc<Wire> {
        Rc::new(Wire {
            peer: stream.peer_addr().ok(),
            stream: RefCell::new(stream),
            read: Cell::default(),
            written: Cell::default(),
            write_blocked: Cell::default(),
            write_broken: Cell::default(),
        })
    }

    /// Whether the server has neither closed nor sent anything. Asks the kernel and not only the
    /// runtime, which learns of an event with its next turn.
    pub(super) fn is_quiet(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let seen = rustix::net::recv(&*self.stream.borrow(), &mut [0; 1], flags);
        seen.is_err_and(|e| e == Errno::AGAIN)
    }

    /// Notes a write's outcome. A server may answer and close without reading the rest of a
    /// request; the answer lies in our receive buffer then. So a write it refuses counts as done,
    /// and what was received is read: the answer, or the end that tells of the failure.
    fn note(&self, len: usize, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.write_blocked.set(polled.is_pending());
        match polled {
            Poll::Ready(Ok(n)) => self.written.set(self.written.get() + n as u64),
            Poll::Ready(Err(e)) if is_refusal(&e) => {
                self.write_broken.set(true);
                return Poll::Ready(Ok(len));
            }
            _ => {}
        }
        polled
    }
}

/// hyper's end of the wire.
pub(super) struct Io(pub(super) Rc<Wire>);

fn is_refusal(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}

impl hyper::rt::Read for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let n = {
            // SAFETY: the bytes are only handed to `ReadBuf::uninit`, which never puts
            // uninitialized bytes in place of initialized ones.
            let mut into = ReadBuf::uninit(unsafe { buf.as_mut() });
            ready!(Pin::new(&mut *self.0.stream.borrow_mut()).poll_read(cx, &mut into))?;
            into.filled().len()
        };
        // SAFETY: `filled` says that the first `n` bytes of the cursor are initialized now.
        unsafe { buf.advance(n) };
        self.0.read.set(self.0.read.get() + n as u64);
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.0.write_broken.get() {
            return Poll::Ready(Ok(buf.len()));
        }
        let polled = Pin::new(&mut *self.0.stream.borrow_mut()).poll_write(cx, buf);
        self.0.note(buf.len(), polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A head alone, as most requests are, is cheaper to send than to gather.
        if let [only] = bufs {
            return self.poll_write(cx, only);
        }
        let len = bufs.iter().map(|buf| buf.len()).sum();
        if self.0.write_broken.get() {
            return Poll::Ready(Ok(len));
        }
        let polled = Pin::new(&mut *self.0.stream.borrow_mut()).poll_write_vectored(cx, bufs);
        self.0.note(len, polled)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.stream.borrow_mut()).poll_shutdown(cx)
    }
}

/// A connection after 101: bytes both ways. Counts as one of the server's connections until it is
/// dropped.
pub(super) struct Tunnel {
    wire: Rc<Wire>,
    /// What the server sent right behind its head.
    early: Bytes,
    _seat: Seat,
}

impl Tunnel {
    pub(super) fn new(wire: Rc<Wire>, early: Bytes, seat: Seat) -> Tunnel {
        Tunnel {
            wire,
            early,
            _seat: seat,
        }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return Pin::new(&mut *self.wire.stream.borrow_mut()).poll_read(cx, buf);
        }
        let n = self.early.len().min(buf.remaining());
        buf.put_slice(&self.early[..n]);
        self.early.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.wire.stream.borrow_mut()).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.wire.stream.borrow_mut()).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.wire.stream.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.wire.stream.borrow_mut()).poll_shutdown(cx)
    }
}
