//! A byte stream of tokio below TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::wire::Wire;

/// A byte stream of tokio, such as a `TcpStream`, below TLS.
pub struct AsyncWire<T>(pub T);

impl<T: AsyncRead + AsyncWrite + Unpin> Wire for AsyncWire<T> {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut buf))?;
        Poll::Ready(Ok(buf.filled().len()))
    }

    fn read_now(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        match self.poll_read(&mut Context::from_waker(Waker::noop()), buf) {
            Poll::Ready(read) => read.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }

    fn acknowledged(&self) -> Option<u64> {
        None
    }

    fn shutdown_write(&mut self) {
        // For sockets this never waits.
        let mut cx = Context::from_waker(Waker::noop());
        let _ = Pin::new(&mut self.0).poll_shutdown(&mut cx);
    }
}
