//! TLS over another transport of a client.

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::CommonState;

use super::wire::Wire;
use crate::telemetry::Counters;
use crate::tls::{self, ClientCertificate, HandshakeError, Stream, Terms};

/// Memory of an idle connection, in bytes: this type and the buffers of rustls, measured as growth of the process for
/// each connection.
const IDLE_BYTES: usize = 9 << 10;

/// A TLS connection over another transport.
pub struct Tls {
    stream: Stream<Wire>,
    terms: Terms,
    /// The client's certificate, once the handshake is complete.
    certificate: Option<Rc<ClientCertificate>>,
    /// Length of the client's certificates, which rustls keeps.
    chain_bytes: usize,
    counters: Arc<Counters>,
    /// The memory that is counted for the connection, in bytes.
    counted: usize,
}

impl Tls {
    /// Creates a TLS connection whose handshake is not complete.
    pub fn new(stream: Stream<Wire>, terms: Terms, counters: Arc<Counters>) -> Tls {
        let mut tls = Tls {
            stream,
            terms,
            certificate: None,
            chain_bytes: 0,
            counters,
            counted: 0,
        };
        tls.count_memory();
        tls
    }

    /// Counts the connection's memory again: that of an idle one, the client's certificates, and bytes that wait for the
    /// client, for rustls or in rustls.
    #[inline]
    fn count_memory(&mut self) {
        let now = IDLE_BYTES + self.stream.held_bytes() + self.chain_bytes;
        if now == self.counted {
            return;
        }
        let gauge = &self.counters.tls_memory_now;
        gauge.sub(self.counted as u64);
        gauge.add(now as u64);
        self.counted = now;
    }

    /// Continues the handshake. Ready once it is complete.
    ///
    /// # Errors
    ///
    /// The handshake has failed. The client has been sent an alert, as far as possible.
    pub fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HandshakeError>> {
        let result = self.stream.poll_handshake(cx);
        self.count_memory();
        ready!(result)?;
        if !self.stream.session().wants_write() {
            // There is no ticket to send along with the acknowledgement of the client's last message.
            self.stream.wire().acknowledge_now();
        }
        let chain = self.stream.session().peer_certificates();
        let chain = chain.unwrap_or_default();
        let certificate = chain.first();
        self.certificate = certificate.map(|leaf| Rc::new(ClientCertificate::of(leaf)));
        self.chain_bytes = chain.iter().map(|certificate| certificate.len()).sum();
        self.count_memory();
        Poll::Ready(Ok(()))
    }

    /// Returns the TLS session.
    pub fn session(&self) -> &CommonState {
        self.stream.session()
    }

    /// Returns the settings of the handshake.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// Returns the client's certificate, if the client has one.
    pub fn certificate(&self) -> Option<&Rc<ClientCertificate>> {
        self.certificate.as_ref()
    }

    /// Takes bytes that were read before the transport was encrypted.
    ///
    /// # Errors
    ///
    /// The handshake has failed. The client has been sent an alert, as far as possible.
    pub fn take_received(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Result<(), HandshakeError> {
        let taken = self.stream.take_received(cx, bytes);
        self.count_memory();
        taken
    }

    /// Reads decrypted bytes. Returns 0 at the end of the stream.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let read = self.stream.poll_read(cx, buf);
        self.count_memory();
        read
    }

    /// Reads without waiting. Returns `None` if no byte has arrived.
    pub fn read_now(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        let read = self.stream.read_now(buf);
        self.count_memory();
        read
    }

    /// Waits until the client has closed its sending direction or reset the connection.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = self.stream.poll_flush(cx);
        self.stream.wire().poll_closed(cx)
    }

    /// Encrypts and writes as much of the slices as fits. After a return of fewer bytes, the next call must begin with
    /// the rest of the same bytes.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream.poll_write(cx, slices);
        self.count_memory();
        written
    }

    /// Passes the option on: see `Transport::fit_send_buffer`.
    pub fn fit_send_buffer(&mut self) {
        self.stream.wire().fit_send_buffer();
    }

    /// Returns the bytes of plaintext that the client has surely acknowledged.
    pub fn acknowledged(&self) -> Option<u64> {
        self.stream.acknowledged()
    }

    /// Ends the outgoing direction with `close_notify`, so that the client can tell the end from a truncation.
    pub fn shutdown_write(&mut self) {
        self.stream.shutdown_write();
    }

    /// Ends the outgoing direction like `shutdown_write`. Ready when all of it has been written.
    pub fn poll_shutdown_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_shutdown_write(cx)
    }

    /// Whether the outgoing direction has ended and all of it has been written.
    pub fn is_closed(&self) -> bool {
        self.stream.is_closed()
    }

    /// Stops decrypting: further reads return the bytes of the wire.
    pub fn discard_input(&mut self) {
        self.stream.discard_input();
        self.count_memory();
    }

    /// Keeps the end from being announced when the transport is dropped.
    pub fn withhold_end(&mut self) {
        self.stream.abort();
    }

    /// Makes dropping the transport reset the connection.
    pub fn reset_on_drop(&mut self) {
        self.stream.abort();
        self.stream.wire().reset_on_drop();
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        self.counters.tls_memory_now.sub(self.counted as u64);
    }
}

impl tls::Wire for Wire {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        Wire::poll_read(self, cx, buf)
    }

    fn read_now(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        Wire::read_now(self, buf)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Wire::poll_write(self, cx, slices, false)
    }

    fn acknowledged(&self) -> Option<u64> {
        Wire::acknowledged(self)
    }

    fn shutdown_write(&mut self) {
        Wire::shutdown_write(self);
    }
}
