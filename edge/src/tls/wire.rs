//! The byte stream below TLS, and the readers and writers by which rustls uses it.

use std::io::{self, IoSlice, Read, Write};
use std::task::{Context, Poll};

/// The byte stream below TLS. The methods never wait: `Pending` means that the task is woken later.
pub trait Wire {
    /// Reads bytes that have arrived. Returns 0 at the end.
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>>;
    /// Reads bytes that have arrived, even if the runtime has not reported them. `None`: there are none.
    fn read_now(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>>;
    /// Writes as much of the slices as fits.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;
    /// Returns the number of bytes that the other end has acknowledged, if it is known.
    fn acknowledged(&self) -> Option<u64>;
    /// Closes the outgoing direction.
    fn shutdown_write(&mut self);
}

/// A reader that has no bytes, and is not at its end.
pub(super) struct NoBytes;

impl Read for NoBytes {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Writes ciphertext to the transport below.
pub(super) struct WireWriter<'a, 'w, W> {
    pub(super) wire: &'a mut W,
    pub(super) cx: &'a mut Context<'w>,
}

impl<W: Wire> Write for WireWriter<'_, '_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.wire.poll_write(self.cx, slices) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
