//! The transport of a connection's bytes in both directions: a kernel socket, TLS over one, or memory in tests.
//! QUIC streams will be a further kind.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ServerConnection;

use crate::sys::net::Accepted;
use crate::telemetry::Counters;
use crate::tls::{ClientCertificate, Incomplete, Stream, Terms};

#[cfg(any(test, feature = "test-rigs"))]
mod memory;
mod tls;
mod wire;

pub use tls::Tls;
use wire::Wire;

/// A byte stream to one client. A read or write allocates nothing.
pub struct Transport(Kind);

enum Kind {
    Wire(Wire),
    Tls(Box<Tls>),
    /// The transport has become a part of another one.
    Moved,
}

impl Transport {
    /// Creates the transport of a connection that the kernel accepted. The runtime of the calling
    /// thread serves it from now on.
    pub fn new(accepted: Accepted) -> Transport {
        Transport(Kind::Wire(Wire::new(accepted)))
    }

    /// Puts TLS on top of this transport, and continues the handshake of `session`, which has been given the bytes that
    /// `incomplete` counts.
    pub fn encrypt(
        &mut self,
        session: ServerConnection,
        incomplete: Incomplete,
        terms: Terms,
        counters: Arc<Counters>,
    ) {
        self.0 = match std::mem::replace(&mut self.0, Kind::Moved) {
            Kind::Wire(wire) => {
                let stream = Stream::new(wire, session.into()).after(incomplete);
                Kind::Tls(Box::new(Tls::new(stream, terms, counters)))
            }
            other => other,
        };
    }

    /// Returns the TLS of this transport, if it has any.
    pub fn tls(&mut self) -> Option<&mut Tls> {
        match &mut self.0 {
            Kind::Tls(tls) => Some(tls),
            _ => None,
        }
    }

    /// Returns the settings of the TLS handshake and the client's certificate, if there was a handshake.
    #[inline]
    pub fn handshake(&self) -> Option<(Terms, Option<&Rc<ClientCertificate>>)> {
        match &self.0 {
            Kind::Tls(tls) => Some((tls.terms(), tls.certificate())),
            _ => None,
        }
    }

    /// Creates two connected transports in memory that hold at most `capacity` unread bytes in each
    /// direction.
    #[cfg(any(test, feature = "test-rigs"))]
    pub fn pair(capacity: usize) -> (Transport, Transport) {
        let (a, b) = memory::pair(capacity);
        (
            Transport(Kind::Wire(Wire::Memory(a))),
            Transport(Kind::Wire(Wire::Memory(b))),
        )
    }

    /// Reads bytes that have arrived. Returns 0 at the end of the stream.
    #[inline]
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Kind::Wire(wire) => wire.poll_read(cx, buf),
            Kind::Tls(tls) => tls.poll_read(cx, buf),
            Kind::Moved => Poll::Ready(Err(moved())),
        }
    }

    /// Reads without waiting, even if the runtime has not reported the transport readable. Returns
    /// `None` if no byte has arrived.
    pub fn read_now(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        match &mut self.0 {
            Kind::Wire(wire) => wire.read_now(buf),
            Kind::Tls(tls) => tls.read_now(buf),
            Kind::Moved => Err(moved()),
        }
    }

    /// Waits until the client has closed its sending direction or reset the connection, even if
    /// unread bytes come before that.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Kind::Wire(wire) => wire.poll_closed(cx),
            Kind::Tls(tls) => tls.poll_closed(cx),
            Kind::Moved => Poll::Ready(Err(moved())),
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
            Kind::Wire(wire) => wire.poll_write(cx, slices, more),
            Kind::Tls(tls) => tls.poll_write(cx, slices),
            Kind::Moved => Poll::Ready(Err(moved())),
        }
    }

    /// Whether `poll_send_file` is supported. If not, files have to be read into memory and written
    /// as bytes.
    #[inline]
    pub fn sends_files(&self) -> bool {
        match &self.0 {
            Kind::Wire(wire) => wire.sends_files(),
            Kind::Tls(_) | Kind::Moved => false,
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
            Kind::Wire(wire) => wire.poll_send_file(cx, file, range),
            Kind::Tls(_) | Kind::Moved => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Limits the send buffer before a large response is sent: see `Socket::fit_send_buffer`.
    #[inline]
    pub fn fit_send_buffer(&mut self) {
        match &mut self.0 {
            Kind::Wire(wire) => wire.fit_send_buffer(),
            Kind::Tls(tls) => tls.fit_send_buffer(),
            Kind::Moved => {}
        }
    }

    /// Returns the bytes that the client has acknowledged since the connection began, if the
    /// transport knows.
    pub fn acknowledged(&self) -> Option<u64> {
        match &self.0 {
            Kind::Wire(wire) => wire.acknowledged(),
            Kind::Tls(tls) => tls.acknowledged(),
            Kind::Moved => None,
        }
    }

    /// Closes the outgoing direction. The incoming one stays open.
    pub fn shutdown_write(&mut self) {
        match &mut self.0 {
            Kind::Wire(wire) => wire.shutdown_write(),
            Kind::Tls(tls) => tls.shutdown_write(),
            Kind::Moved => {}
        }
    }

    /// Closes the outgoing direction. Ready when nothing of it waits in memory any more.
    pub fn poll_shutdown_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Kind::Tls(tls) => tls.poll_shutdown_write(cx),
            Kind::Wire(_) | Kind::Moved => {
                self.shutdown_write();
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Prepares dropping the transport after its last byte has been written. Returns false if the end of the outgoing
    /// direction still waits in memory, so that it needs `shutdown_write` and further polls.
    pub fn ends_at_once(&mut self) -> bool {
        match &mut self.0 {
            Kind::Tls(tls) => {
                tls.shutdown_write();
                tls.is_closed()
            }
            Kind::Wire(_) | Kind::Moved => true,
        }
    }

    /// Keeps TLS from announcing the end of the stream when the transport is dropped, since the stream may be truncated.
    pub fn withhold_end(&mut self) {
        if let Kind::Tls(tls) = &mut self.0 {
            tls.withhold_end();
        }
    }

    /// Makes further reads return bytes without a meaning, for a caller that discards them: they are not decrypted.
    pub fn discard_input(&mut self) {
        if let Kind::Tls(tls) = &mut self.0 {
            tls.discard_input();
        }
    }

    /// Makes dropping the transport reset the connection, so that a truncated response cannot look complete and no
    /// unsent byte is kept.
    pub fn reset_on_drop(&mut self) {
        match &mut self.0 {
            Kind::Wire(wire) => wire.reset_on_drop(),
            Kind::Tls(tls) => tls.reset_on_drop(),
            Kind::Moved => {}
        }
    }
}

/// Returns the error of a transport that has become a part of another one, and is never used again.
fn moved() -> io::Error {
    io::ErrorKind::NotConnected.into()
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
