//! A socket to an origin server, with a record of what went over it.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::pool::Seat;

/// A connection's socket and what went over it so far.
pub(super) struct Wire {
    pub(super) stream: TcpStream,
    /// The server's address.
    pub(super) peer: Option<SocketAddr>,
    /// Bytes received.
    pub(super) read: u64,
    /// Bytes the kernel took.
    pub(super) written: u64,
    /// Whether the last write found the socket full.
    pub(super) write_blocked: bool,
    /// Whether a write found that the server reads no more.
    pub(super) write_broken: bool,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Wire {
        Wire {
            peer: stream.peer_addr().ok(),
            stream,
            read: 0,
            written: 0,
            write_blocked: false,
            write_broken: false,
        }
    }

    /// Whether the server has neither closed nor sent anything. Asks the kernel and not only the
    /// runtime, which learns of an event with its next turn.
    pub(super) fn is_quiet(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let seen = rustix::net::recv(&self.stream, &mut [0; 1], flags);
        seen.is_err_and(|e| e == Errno::AGAIN)
    }

    /// Writes what the kernel takes.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.write_broken {
            return Poll::Ready(Ok(bytes.len()));
        }
        // There is nearly always room: the kernel is asked first, and the runtime when there is none.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let polled = match rustix::net::send(&self.stream, bytes, flags) {
            Err(Errno::AGAIN | Errno::INTR) => Pin::new(&mut self.stream).poll_write(cx, bytes),
            sent => Poll::Ready(sent.map_err(io::Error::from)),
        };
        self.note(bytes.len(), polled)
    }

    /// `poll_write` of several slices.
    pub(super) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        if self.write_broken {
            return Poll::Ready(Ok(length));
        }
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note(length, polled)
    }

    /// Notes a write's outcome. A server may answer and close without reading the rest of a
    /// request; the answer lies in our receive buffer then. So a write it refuses counts as done,
    /// and what was received is read: the answer, or the end that tells of the failure.
    fn note(&mut self, len: usize, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.write_blocked = polled.is_pending();
        match polled {
            Poll::Ready(Ok(n)) => self.written += n as u64,
            Poll::Ready(Err(e)) if is_refusal(&e) => {
                self.write_broken = true;
                return Poll::Ready(Ok(len));
            }
            _ => {}
        }
        polled
    }
}

fn is_refusal(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}

/// A connection after 101: bytes both ways. Counts as one of the server's connections until it is
/// dropped.
pub(super) struct Tunnel {
    wire: Wire,
    /// What the server sent right behind its head.
    early: Bytes,
    _seat: Seat,
}

impl Tunnel {
    pub(super) fn new(wire: Wire, early: Bytes, seat: Seat) -> Tunnel {
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
            return Pin::new(&mut self.wire.stream).poll_read(cx, buf);
        }
        let n = self.early.len().min(buf.remaining());
        buf.put_slice(&self.early[..n]);
        self.early.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire.stream).poll_shutdown(cx)
    }
}
