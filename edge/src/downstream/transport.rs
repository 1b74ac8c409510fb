//! The transport of a connection's bytes in both directions: a kernel socket, or memory in tests.
//! TLS and QUIC streams will be further kinds.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use crate::sys::net::{Accepted, Socket};

#[cfg(test)]
mod memory;

/// A byte stream to one client. A read or write allocates nothing.
pub struct Transport(Kind);

enum Kind {
    Socket(Socket),
    #[cfg(test)]
    Memory(memory::End),
}

impl Transport {
    /// Creates the transport of a connection that the kernel accepted. The runtime of the calling
    /// thread serves it from now on.
    pub fn new(accepted: Accepted) -> Transport {
        Transport(Kind::Socket(Socket::new(accepted)))
    }

    /// Creates two connected transports in memory that hold at most `capacity` unread bytes in each
    /// direction.
    #[cfg(test)]
    pub fn pair(capacity: usize) -> (Transport, Transport) {
        let (a, b) = memory::pair(capacity);
        (Transport(Kind::Memory(a)), Transport(Kind::Memory(b)))
    }

    /// Reads bytes that have arrived. Returns 0 at the end of the stream.
    #[inline]
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Kind::Socket(socket) => socket.poll_read(cx, buf),
            #[cfg(test)]
            Kind::Memory(end) => end.poll_read(cx, buf),
        }
    }

    /// Reads without waiting, even if the runtime has not reported the transport readable. Returns
    /// `None` if no byte has arrived.
    pub fn read_now(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        match &mut self.0 {
            Kind::Socket(socket) => socket.read_now(buf),
            #[cfg(test)]
            Kind::Memory(end) => end.read_now(buf),
        }
    }

    /// Writes as much of the slices as fits into the send buffer. `more` says that further bytes
    /// follow at once, so that a packet that is not full may wait for them.
    #[inline]
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Kind::Socket(socket) => socket.poll_write(cx, slices, more),
            #[cfg(test)]
            Kind::Memory(end) => end.poll_write(cx, slices),
        }
    }

    /// Whether `poll_send_file` is supported. If not, files have to be read into memory and written
    /// as bytes.
    #[inline]
    pub fn sends_files(&self) -> bool {
        match &self.0 {
            Kind::Socket(_) => true,
            #[cfg(test)]
            Kind::Memory(_) => false,
        }
    }

    /// Sends as many bytes of this part of a file as fit into the send buffer. Returns 0 if the
    /// file ends before the part does.
    ///
    /// # Errors
    ///
    /// The error of the system call; `Unsupported` if this transport does not send files.
    pub fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &OwnedFd,
        range: Range<u64>,
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Kind::Socket(socket) => socket.poll_send_file(cx, file, range),
            #[cfg(test)]
            Kind::Memory(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Limits the send buffer before a large response is sent: see `Socket::fit_send_buffer`.
    #[inline]
    pub fn fit_send_buffer(&mut self) {
        match &mut self.0 {
            Kind::Socket(socket) => socket.fit_send_buffer(),
            #[cfg(test)]
            Kind::Memory(_) => {}
        }
    }

    /// Returns the bytes that the client has acknowledged since the connection began, if the
    /// transport knows.
    pub fn acknowledged(&self) -> Option<u64> {
        match &self.0 {
            Kind::Socket(socket) => socket.acknowledged(),
            #[cfg(test)]
            Kind::Memory(_) => None,
        }
    }

    /// Closes the outgoing direction. The incoming one stays open.
    pub fn shutdown_write(&mut self) {
        match &mut self.0 {
            Kind::Socket(socket) => socket.shutdown_write(),
            #[cfg(test)]
            Kind::Memory(end) => end.shutdown_write(),
        }
    }

    /// Makes dropping the transport reset the connection, so that a truncated response cannot look complete and no
    /// unsent byte is kept.
    pub fn reset_on_drop(&mut self) {
        match &mut self.0 {
            Kind::Socket(socket) => socket.reset_on_drop(),
            #[cfg(test)]
            Kind::Memory(end) => end.reset(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_an_error_to_the_other_end() {
        let (mut a, mut b) = Transport::pair(8);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut buf = [0; 8];
        assert!(b.poll_read(&mut cx, &mut buf).is_pending());
        a.reset_on_drop();
        drop(a);
        assert!(matches!(
            b.poll_read(&mut cx, &mut buf),
            Poll::Ready(Err(_))
        ));
    }
}
