//! A TLS connection to an origin server.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::socket::Socket;
use crate::tls;

/// Most bytes that one read returns. A record of TLS has no more (RFC 8446 5.1).
const READ_BYTES: usize = 16 << 10;

/// A TLS connection over a socket, whose handshake is complete.
pub(super) struct Encrypted(pub(super) tls::Stream<Socket>);

impl Encrypted {
    /// Ready when there may be bytes to read, or the end of the stream, as far as the runtime
    /// knows.
    pub(super) fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.has_unread() {
            true => Poll::Ready(Ok(())),
            false => self.0.wire().poll_read_ready(cx),
        }
    }

    /// Returns the socket.
    pub(super) fn socket(&self) -> &Socket {
        self.0.wire_ref()
    }

    /// Whether the server has neither closed the connection nor sent anything but messages of TLS,
    /// such as tickets.
    pub(super) fn is_quiet(&mut self) -> bool {
        !self.0.has_arrived()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buf.remaining().min(READ_BYTES);
        let n = ready!(self.0.poll_read(cx, buf.initialize_unfilled_to(room)))?;
        buf.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_shutdown_write(cx)
    }
}
