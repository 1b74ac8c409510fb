//! A byte stream to an origin server: the only place where it is opened, read and written. Nothing
//! else in this folder uses a socket.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::options::Server;
use crate::http::Scheme;
use crate::reason::Reason;
use crate::sys::Address;
use crate::sys::connect::{ConnectError, connect};

/// A socket of one of the supported kinds.
enum Socket {
    Tcp(TcpStream),
}

/// A byte stream to a server, with counts of the bytes sent and received.
pub(super) struct Transport {
    socket: Socket,
    /// The server's address.
    peer: Option<Address>,
    /// Bytes received.
    read: u64,
    /// Bytes that the kernel accepted for sending.
    written: u64,
    /// Whether the last write found the socket's send buffer full.
    write_blocked: bool,
    /// Whether a write failed because the server no longer reads.
    write_broken: bool,
}

impl Transport {
    /// Connects to a server within `timeout`.
    pub(super) async fn connect(server: &Server, timeout: Duration) -> Result<Transport, Reason> {
        match server.scheme {
            Scheme::Http => {}
            // The configuration refuses `https` servers, so this is never reached.
            Scheme::Https => return Err(Reason::ConnectFailed),
        }
        let stream = connect(&server.host, server.port, timeout)
            .await
            .map_err(|e| match e {
                ConnectError::Unresolved => Reason::Unresolved,
                ConnectError::Failed => Reason::ConnectFailed,
                ConnectError::Timeout => Reason::ConnectTimeout,
            })?;
        Ok(Transport {
            peer: stream.peer_addr().ok().map(Address::Ip),
            socket: Socket::Tcp(stream),
            read: 0,
            written: 0,
            write_blocked: false,
            write_broken: false,
        })
    }

    /// Returns the server's address.
    pub(super) fn peer(&self) -> Option<Address> {
        self.peer
    }

    /// Returns the number of bytes received so far.
    pub(super) fn read_total(&self) -> u64 {
        self.read
    }

    /// Returns the number of bytes that the kernel accepted for sending so far.
    pub(super) fn written_total(&self) -> u64 {
        self.written
    }

    /// Whether the last write found the socket's send buffer full.
    pub(super) fn is_write_blocked(&self) -> bool {
        self.write_blocked
    }

    /// Whether a write failed because the server no longer reads.
    pub(super) fn is_write_broken(&self) -> bool {
        self.write_broken
    }

    /// Whether the server has neither closed the connection nor sent anything. Queries the kernel,
    /// since the runtime learns of an event only when it polls next.
    pub(super) fn is_quiet(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let seen = rustix::net::recv(&self.socket, &mut [0; 1], flags);
        seen.is_err_and(|e| e == Errno::AGAIN)
    }

    /// Ready when there may be bytes to read, or the end of the stream, as far as the runtime
    /// knows.
    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_read_ready(cx)
    }

    /// Reads into the spare capacity of `buffer`. Returns 0 at the end of the stream.
    pub(super) fn poll_read_buffer(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        let n = ready!(pin!(self.socket.read_buf(buffer)).poll(cx))?;
        self.read += n as u64;
        Poll::Ready(Ok(n))
    }

    /// Reads into `room` and returns the number of bytes, 0 at the end of the stream.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let before = room.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, room))?;
        let n = room.filled().len() - before;
        self.read += n as u64;
        Poll::Ready(Ok(n))
    }

    /// Writes as many bytes as the kernel accepts.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.write_broken {
            return Poll::Ready(Ok(bytes.len()));
        }
        // The send buffer nearly always has room, so the kernel is tried first; the runtime is
        // polled only when the buffer is full.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let polled = match rustix::net::send(&self.socket, bytes, flags) {
            Err(Errno::AGAIN | Errno::INTR) => Pin::new(&mut self.socket).poll_write(cx, bytes),
            sent => Poll::Ready(sent.map_err(io::Error::from)),
        };
        self.note_write(bytes.len(), polled)
    }

    /// Does what `poll_write` does, for several slices.
    pub(super) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        if self.write_broken {
            return Poll::Ready(Ok(length));
        }
        let polled = Pin::new(&mut self.socket).poll_write_vectored(cx, slices);
        self.note_write(length, polled)
    }

    /// Notes a write's result. A server may respond and close without reading the rest of the
    /// request; its response is then in the socket's receive buffer. A write that fails for this
    /// reason counts as done, so that the caller goes on to read the response, or the end of the
    /// connection.
    fn note_write(
        &mut self,
        length: usize,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.write_blocked = polled.is_pending();
        match polled {
            Poll::Ready(Ok(n)) => self.written += n as u64,
            Poll::Ready(Err(e)) if is_refusal(&e) => {
                self.write_broken = true;
                return Poll::Ready(Ok(length));
            }
            _ => {}
        }
        polled
    }

    /// Returns the plain byte stream, for a tunnel.
    pub(super) fn into_stream(self) -> impl AsyncRead + AsyncWrite + Unpin + 'static {
        self.socket
    }
}

impl Socket {
    /// Ready when there may be bytes to read, or the end of the stream, as far as the runtime
    /// knows.
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(stream) => stream.poll_read_ready(cx),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Socket::Tcp(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

fn is_refusal(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}
