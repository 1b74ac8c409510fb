//! A socket that is connected to an origin server, over TCP or a Unix socket.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::options::Limits;
use super::state::ServerState;
use crate::sys::Address;
use crate::sys::clock::timer_now;
use crate::sys::connect::{ConnectError, connect, connect_either, connect_unix};
use crate::tls;

/// A socket of one of the supported kinds.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects to a server, or to another port of its host, within the time that `limits` has for it.
    pub(super) async fn connect(
        state: &ServerState,
        limits: &Limits,
    ) -> Result<Socket, ConnectError> {
        let (options, timeout) = (&limits.tcp, limits.connect);
        let server = state.server();
        if let Some(path) = &server.unix {
            return connect_unix(path, timeout).await.map(Socket::Unix);
        }
        let Some(address) = state.peer() else {
            let port = limits.port.unwrap_or(server.port);
            let stream = connect(&server.host, port, options, timeout).await?;
            return Ok(Socket::Tcp(stream));
        };
        let (first, other) = match limits.own_address || state.is_avoided() {
            // A check or a trial of another server would say nothing about this one.
            true => (
                limits
                    .port
                    .map_or(address, |port| SocketAddr::new(address.ip(), port)),
                None,
            ),
            false => state.other().in_order(address, timer_now()),
        };
        let stream = connect_either(first, other, address, options, timeout).await?;
        if other.is_some()
            && let Ok(opened) = stream.peer_addr()
        {
            state.other().note_opened(opened, first, timer_now());
        }
        Ok(Socket::Tcp(stream))
    }

    /// Returns the server's address.
    pub(super) fn peer(&self) -> Option<Address> {
        match self {
            Socket::Tcp(stream) => stream.peer_addr().ok().map(Address::Ip),
            Socket::Unix(_) => Some(Address::Unix),
        }
    }

    /// Ready when there may be bytes to read, or the end of the stream, as far as the runtime
    /// knows.
    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(stream) => stream.poll_read_ready(cx),
            Socket::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Whether the server has neither closed the connection nor sent anything. Queries the kernel,
    /// since the runtime learns of an event only when it polls next.
    pub(super) fn is_quiet(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let seen = rustix::net::recv(self, &mut [0; 1], flags);
        seen.is_err_and(|e| e == Errno::AGAIN)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
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
            Socket::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
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
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Socket::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Sockets have no buffer of their own.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// The byte stream below TLS.
impl tls::Wire for Socket {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        ready!(AsyncRead::poll_read(Pin::new(self), cx, &mut buf))?;
        Poll::Ready(Ok(buf.filled().len()))
    }

    fn read_now(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::net::recv(&*self, buf, RecvFlags::DONTWAIT) {
            Ok((n, _)) => Ok(Some(n)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write_vectored(cx, slices)
    }

    fn acknowledged(&self) -> Option<u64> {
        None
    }

    fn shutdown_write(&mut self) {
        // Fails only if the connection is closed already.
        let _ = rustix::net::shutdown(&*self, Shutdown::Write);
    }
}
