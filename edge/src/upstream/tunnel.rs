//! A connection after 101 (Switching Protocols), which carries bytes in both directions.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::permit::{InProgress, Permit};
use super::recording::ConnectionRecord;

/// The origin's end of a tunnel. Counts as one of the server's connections, and as an exchange in
/// progress, until it is dropped.
pub(super) struct Tunnel<S> {
    pub(super) stream: S,
    /// The record of the connection, if there is one.
    pub(super) record: Option<ConnectionRecord>,
    /// Bytes that the server sent directly after its head.
    pub(super) early: Bytes,
    pub(super) _exchange: InProgress,
    pub(super) permit: Permit,
}

impl<S> Tunnel<S> {
    fn count_written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(n)) = &written {
            self.permit.count_traffic(0, *n as u64);
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tunnel<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            let before = buf.filled().len();
            let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
            let n = buf.filled().len() - before;
            self.permit.count_traffic(n as u64, 0);
            if n == 0 && polled.is_ready() {
                self.record
                    .iter()
                    .for_each(ConnectionRecord::note_server_ends);
            }
            return polled;
        }
        let n = self.early.len().min(buf.remaining());
        buf.put_slice(&self.early[..n]);
        self.early.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tunnel<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.count_written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.count_written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
