//! A TLS stream over any other byte stream: drives rustls directly, without a task or a queue of its own. The stream is
//! the same for servers and clients.
//!
//! Bytes count as written only once the stream below has taken their ciphertext. Until then the caller repeats the same
//! bytes, so all bounds, timeouts and counts of the caller mean the same as in clear text.
//!
//! The kernel's TLS (kTLS) would replace `encrypt` and `poll_flush`.

use std::cell::RefCell;
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::task::{Context, Poll, Waker};

use rustls::{CommonState, Connection};

use super::incomplete::Incomplete;
use super::pieces::Pieces;
use super::wire::{NoBytes, Wire, WireWriter};

/// Most plaintext that is encrypted before the ciphertext is written, and thus the most that waits for a client that
/// does not read.
const BATCH_BYTES: usize = 64 << 10;
/// Largest record, in bytes of plaintext (RFC 8446 5.1). Smaller ones cost more CPU per byte.
const RECORD_BYTES: usize = 16 << 10;
/// Size of the first records of a large response. A client can't use a record before its last byte has arrived, and a
/// connection begins by sending about 14 KiB per round trip.
const EARLY_RECORD_BYTES: usize = 4 << 10;
/// Bytes of a response that are sent in such records.
const EARLY_BYTES: usize = 16 << 10;
/// Longest write that fits into one record in any case.
const SHORT_BYTES: usize = 8 << 10;
/// Most bytes of ciphertext read at once.
const READ_BYTES: usize = 16 << 10;
/// Number of times that rustls has to read a buffer (4 KiB) until a record of the largest size is complete.
const RECORD_READS: usize = 5;

thread_local! {
    /// Ciphertext that is being read, one buffer for all connections of a worker.
    static RECEIVED: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// A TLS stream.
pub struct Stream<W: Wire> {
    session: Connection,
    wire: W,
    /// Ciphertext that was read and that rustls has no room for. Usually empty.
    unfed: Vec<u8>,
    /// The bytes that rustls keeps since they are a part of a record or message.
    incomplete: Incomplete,
    /// Bytes by which rustls has enlarged its buffer for incomplete records.
    enlarged: usize,
    /// Decrypted bytes that have not been read.
    unread: usize,
    /// Bytes at the beginning of the caller's data that are encrypted but not reported as written.
    owed: usize,
    /// Bytes that have been encrypted since bytes last arrived: those of the current response.
    in_response: usize,
    /// Bytes of plaintext reported as written, and of ciphertext taken by the stream below.
    plain_written: u64,
    wire_written: u64,
    closing: Closing,
    /// Whether received bytes are discarded instead of decrypted.
    is_discarding: bool,
}

/// The end of the outgoing direction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    /// The direction is open.
    Open,
    /// `close_notify` has been queued. The direction is closed once it has been written.
    Notifying,
    /// The direction is closed, or must not look as if it ended properly.
    Done,
}

impl<W: Wire> Stream<W> {
    /// Creates a stream that begins or continues the handshake of this session.
    pub fn new(wire: W, mut session: Connection) -> Stream<W> {
        // `encrypt` bounds the ciphertext. The limit of rustls (64 KiB) would count the ciphertext's framing, too.
        session.set_buffer_limit(None);
        Stream {
            session,
            wire,
            unfed: Vec::new(),
            incomplete: Incomplete::default(),
            enlarged: 0,
            unread: 0,
            owed: 0,
            in_response: 0,
            plain_written: 0,
            wire_written: 0,
            closing: Closing::Open,
            is_discarding: false,
        }
    }

    /// Adds the bytes that the session was given before the stream was created.
    pub fn after(mut self, incomplete: Incomplete) -> Stream<W> {
        self.enlarged = incomplete.bytes();
        self.incomplete = incomplete;
        self
    }

    /// Returns the state of the session.
    pub fn session(&self) -> &CommonState {
        &self.session
    }

    /// Returns the stream below.
    pub fn wire(&mut self) -> &mut W {
        &mut self.wire
    }

    /// Returns the stream below, for reading its properties.
    pub fn wire_ref(&self) -> &W {
        &self.wire
    }

    /// Continues the handshake. Ready once it is complete.
    ///
    /// # Errors
    ///
    /// The handshake has failed. The other end has been sent an alert, as far as possible.
    pub fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HandshakeError>> {
        while self.session.is_handshaking() {
            match self.poll_receive(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(HandshakeError::Closed)),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => {
                    let _ = self.poll_flush(cx);
                    return Poll::Ready(Err(HandshakeError::of(error)));
                }
                Poll::Pending => {
                    if let Poll::Ready(Err(_)) = self.poll_flush(cx) {
                        return Poll::Ready(Err(HandshakeError::Closed));
                    }
                    return Poll::Pending;
                }
            }
        }
        // Tickets and the end of the handshake are written with the first bytes, or when the connection next waits.
        Poll::Ready(Ok(()))
    }

    /// Takes ciphertext that was read before the stream was created.
    ///
    /// # Errors
    ///
    /// The handshake has failed. The other end has been sent an alert, as far as possible.
    pub fn take_received(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Result<(), HandshakeError> {
        self.feed(bytes).map_err(|error| {
            let _ = self.poll_flush(cx);
            HandshakeError::of(error)
        })
    }

    /// Reads decrypted bytes. Returns 0 at the end of the stream.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the stream ended without `close_notify`, so that it may be truncated.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.is_discarding {
            let _ = self.poll_flush(cx);
            return self.wire.poll_read(cx, buf);
        }
        loop {
            if let Some(read) = self.take_plaintext(buf) {
                if !matches!(read, Ok(1..)) {
                    // The other end may still read: tickets and alerts go out before the end is acted on.
                    let _ = self.poll_flush(cx);
                }
                return Poll::Ready(read);
            }
            match self.poll_receive(cx) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => {
                    let _ = self.poll_flush(cx);
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => {
                    if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
                        return Poll::Ready(Err(error));
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Reads without waiting. Returns `None` if no byte has arrived.
    pub fn read_now(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            if let Some(read) = self.take_plaintext(buf) {
                return read.map(Some);
            }
            let wire = &mut self.wire;
            let mut more = vec![0; READ_BYTES];
            let Some(n) = wire.read_now(&mut more)? else {
                return Ok(None);
            };
            self.received(&more[..n])?;
        }
    }

    /// Whether decrypted bytes, or ciphertext that was read already, have not been read.
    pub fn has_unread(&self) -> bool {
        self.unread > 0 || !self.unfed.is_empty()
    }

    /// Processes bytes that have arrived, even if the runtime has not reported them. Returns whether
    /// decrypted bytes, the end of the stream or an error can be read.
    pub fn has_arrived(&mut self) -> bool {
        loop {
            let nothing = self.session.reader().fill_buf().map(|_| ());
            if !nothing.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                return true;
            }
            let arrived = RECEIVED.with_borrow_mut(|buffer| match self.wire.read_now(buffer) {
                Ok(Some(n)) => self.received(&buffer[..n]).map(|()| true),
                Ok(None) => Ok(false),
                Err(error) => Err(error),
            });
            match arrived {
                Ok(true) => {}
                Ok(false) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Encrypts and writes as much of the slices as fits. After a return of fewer bytes, the next call must begin with
    /// the rest of the same bytes.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.owed == 0 {
            self.owed = self.encrypt(slices)?;
        }
        let before = self.wire_written;
        let done = match self.poll_flush(cx) {
            Poll::Ready(Ok(())) => self.owed,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            // A part of the ciphertext was taken. The last byte is not reported before all of it is.
            Poll::Pending => {
                let taken = usize::try_from(self.wire_written - before).unwrap_or(usize::MAX);
                match taken.min(self.owed.saturating_sub(1)) {
                    0 => return Poll::Pending,
                    part => part,
                }
            }
        };
        self.owed -= done;
        self.plain_written += done as u64;
        Poll::Ready(Ok(done))
    }

    /// Returns the bytes of plaintext that the other end has surely acknowledged.
    pub fn acknowledged(&self) -> Option<u64> {
        let on_the_way = self.wire_written.saturating_sub(self.wire.acknowledged()?);
        Some(self.plain_written.saturating_sub(on_the_way))
    }

    /// Ends the outgoing direction with `close_notify`, so that the other end can tell the end from a truncation.
    pub fn shutdown_write(&mut self) {
        if self.closing == Closing::Open {
            self.session.send_close_notify();
            self.closing = Closing::Notifying;
            // The rest that the kernel does not take now is written by a later poll, or when the connection is dropped.
            let _ = self.poll_flush(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Ends the outgoing direction, and waits until all of it has been written.
    pub fn poll_shutdown_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shutdown_write();
        self.poll_flush(cx)
    }

    /// Whether the outgoing direction has ended and all of it has been written.
    pub fn is_closed(&self) -> bool {
        self.closing == Closing::Done
    }

    /// Stops decrypting: further reads return the bytes of the wire.
    pub fn discard_input(&mut self) {
        self.is_discarding = true;
        self.unfed = Vec::new();
    }

    /// Keeps the end of the stream from looking proper when it is dropped.
    pub fn abort(&mut self) {
        self.closing = Closing::Done;
    }

    /// Returns the number of bytes in memory that wait for the other end, for decryption or for being read.
    pub fn held_bytes(&self) -> usize {
        self.owed + self.unfed.len() + self.incomplete.bytes().max(self.enlarged) + self.unread
    }

    /// Returns plaintext that has arrived. `None`: there is none yet.
    fn take_plaintext(&mut self, buf: &mut [u8]) -> Option<io::Result<usize>> {
        match self.session.reader().read(buf) {
            Ok(n) => {
                self.unread = self.unread.saturating_sub(n);
                Some(Ok(n))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            // Among these is `UnexpectedEof`, if the stream ended without `close_notify` (RFC 8446 6.1).
            Err(error) => Some(Err(error)),
        }
    }

    /// Reads and processes ciphertext. Returns the number of bytes, 0 at the end.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if !self.unfed.is_empty() {
            let unfed = std::mem::take(&mut self.unfed);
            self.feed(&unfed)?;
            return Poll::Ready(Ok(unfed.len()));
        }
        RECEIVED.with_borrow_mut(|buffer| {
            let Poll::Ready(read) = self.wire.poll_read(cx, buffer) else {
                self.shrink();
                return Poll::Pending;
            };
            let n = read?;
            self.received(&buffer[..n])?;
            Poll::Ready(Ok(n))
        })
    }

    fn received(&mut self, bytes: &[u8]) -> io::Result<()> {
        // The next response begins with small records again.
        self.in_response = 0;
        match bytes.is_empty() {
            true => self.session.read_tls(&mut io::empty()).map(|_| ()),
            false => self.feed(bytes),
        }
    }

    /// Makes rustls free the memory that a large record has taken.
    fn shrink(&mut self) {
        if self.enlarged > 0 && self.incomplete.bytes() == 0 {
            self.enlarged = 0;
            // rustls shrinks an empty buffer before it reads, whether there are bytes or not.
            let _ = self.session.read_tls(&mut NoBytes);
        }
    }

    /// Passes ciphertext to rustls, as much as it has room for.
    fn feed(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let before = bytes;
            self.enlarged = match self.incomplete.bytes() {
                0 => 0,
                kept => kept.max(self.enlarged),
            };
            match self.session.read_tls(&mut bytes) {
                // Bytes after `close_notify` are ignored (RFC 8446 6.1).
                Ok(0) => return Ok(()),
                Ok(n) => self.incomplete.fed(&before[..n]),
                // rustls takes no more until its plaintext has been read.
                Err(error) if error.kind() == io::ErrorKind::Other => {
                    self.unfed = bytes.to_vec();
                    return Ok(());
                }
                // The record or message is longer than rustls allows.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(self.refuse_oversized());
                }
                Err(error) => return Err(error),
            }
            let state = self.session.process_new_packets().map_err(|error| {
                // After an error, the end must not look proper, even if rustls has sent no alert.
                self.closing = Closing::Done;
                invalid(error)
            })?;
            if !self.session.is_handshaking() {
                self.incomplete.end_handshake();
            }
            let unread = state.plaintext_bytes_to_read();
            if unread > self.unread {
                self.incomplete.has_data();
            }
            self.unread = unread;
            if self.incomplete.is_too_much() {
                return Err(self.refuse_oversized());
            }
        }
        Ok(())
    }

    /// Queues an alert since the other end has sent too much without data (RFC 8446 6.2), and returns the error.
    fn refuse_oversized(&mut self) -> io::Error {
        // rustls has no function that sends an alert, but sends one for an invalid record. Zeros make every record
        // invalid, whether they begin or complete it.
        for _ in 0..RECORD_READS {
            if self.session.read_tls(&mut io::repeat(0)).is_err()
                || self.session.process_new_packets().is_err()
            {
                break;
            }
        }
        invalid(rustls::Error::PeerSentOversizedRecord)
    }

    /// Writes all ciphertext. Ready when none is left.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut writer = WireWriter {
                wire: &mut self.wire,
                cx,
            };
            match self.session.write_tls(&mut writer) {
                Ok(n) => self.wire_written += n as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if self.closing == Closing::Notifying {
            self.closing = Closing::Done;
            self.wire.shutdown_write();
        }
        Poll::Ready(Ok(()))
    }

    /// Encrypts the beginning of the slices, at most one batch. Returns the number of bytes.
    fn encrypt(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut rest = Pieces::of(slices);
        let mut done = 0;
        while done < total.min(BATCH_BYTES) {
            let record = match total - done {
                left if left <= SHORT_BYTES => SHORT_BYTES,
                _ if self.in_response < EARLY_BYTES => EARLY_RECORD_BYTES,
                _ => RECORD_BYTES,
            };
            let pieces = rest.take(record.min(BATCH_BYTES - done));
            let n = self.session.writer().write_vectored(&pieces)?;
            let length: usize = pieces.iter().map(|piece| piece.len()).sum();
            if n < length {
                // rustls takes less than its limit only if it has failed.
                return Err(io::ErrorKind::WriteZero.into());
            }
            done += n;
            self.in_response += n;
        }
        Ok(done)
    }
}

impl<W: Wire> Drop for Stream<W> {
    fn drop(&mut self) {
        // After a panic, the data may be incomplete.
        let is_aborted = self.closing == Closing::Done || std::thread::panicking();
        if self.session.is_handshaking() || is_aborted {
            return;
        }
        if self.closing == Closing::Open {
            self.session.send_close_notify();
        }
        // Closing the socket closes the direction.
        self.closing = Closing::Done;
        let _ = self.poll_flush(&mut Context::from_waker(Waker::noop()));
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The reason why a handshake ended.
#[derive(Debug)]
pub enum HandshakeError {
    /// The other end closed the connection.
    Closed,
    /// Client and server can't agree, or one of them broke the rules.
    Failed(rustls::Error),
}

impl HandshakeError {
    fn of(error: io::Error) -> HandshakeError {
        let inner = error.into_inner().and_then(|inner| inner.downcast().ok());
        inner.map_or(HandshakeError::Closed, |error| {
            HandshakeError::Failed(*error)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::rc::Rc;
    use std::sync::Arc;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{ClientConnection, ServerConfig, ServerConnection};
    use sluice_lab::certificates::{Authority, Pair};
    use sluice_lab::client::tls_config;

    use super::*;

    /// One end of a stream in memory that holds at most `room` bytes in each direction.
    struct End {
        room: usize,
        incoming: Rc<RefCell<VecDeque<u8>>>,
        outgoing: Rc<RefCell<VecDeque<u8>>>,
    }

    fn pair(room: usize) -> (End, End) {
        let (one, other) = (Rc::<RefCell<_>>::default(), Rc::<RefCell<_>>::default());
        let end = |incoming: &Rc<_>, outgoing: &Rc<_>| End {
            room,
            incoming: Rc::clone(incoming),
            outgoing: Rc::clone(outgoing),
        };
        (end(&one, &other), end(&other, &one))
    }

    impl Wire for End {
        fn poll_read(&mut self, _: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
            match self.read_now(buf)? {
                Some(n) => Poll::Ready(Ok(n)),
                None => Poll::Pending,
            }
        }

        fn read_now(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
            let n = self.incoming.borrow_mut().read(buf)?;
            Ok((n > 0).then_some(n))
        }

        fn poll_write(
            &mut self,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let mut outgoing = self.outgoing.borrow_mut();
            let room = self.room - outgoing.len();
            let before = outgoing.len();
            outgoing.extend(slices.iter().flat_map(|s| s.iter()).take(room));
            match outgoing.len() - before {
                0 => Poll::Pending,
                n => Poll::Ready(Ok(n)),
            }
        }

        fn acknowledged(&self) -> Option<u64> {
            None
        }

        fn shutdown_write(&mut self) {}
    }

    /// Returns a server with a certificate for `localhost`, and a client that trusts this authority.
    fn ends(authority: &Authority, trusted: &Authority, room: usize) -> (Stream<End>, Stream<End>) {
        ends_with(authority.server(&["localhost"]), trusted, room)
    }

    /// Returns a server with this certificate, and a client that trusts this authority.
    fn ends_with(
        pair_of_keys: Pair,
        trusted: &Authority,
        room: usize,
    ) -> (Stream<End>, Stream<End>) {
        let chain = CertificateDer::pem_slice_iter(pair_of_keys.certificate.as_bytes());
        let chain: Result<Vec<_>, _> = chain.collect();
        let key = PrivateKeyDer::from_pem_slice(pair_of_keys.key.as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain.expect("a chain"), key)
            .expect("a certificate");
        let server = ServerConnection::new(Arc::new(config)).expect("a session");
        let name = ServerName::try_from("localhost").expect("a name");
        let config = Arc::new(tls_config(&trusted.der()));
        let client = ClientConnection::new(config, name).expect("a session");
        let (near, far) = pair(room);
        (
            Stream::new(near, server.into()),
            Stream::new(far, client.into()),
        )
    }

    /// Polls both handshakes until both are complete or one has failed.
    fn handshake(server: &mut Stream<End>, client: &mut Stream<End>) -> Result<(), HandshakeError> {
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            let at_client = client.poll_handshake(&mut cx)?;
            // The client's last message is otherwise sent with its first bytes.
            let _ = client.poll_flush(&mut cx);
            let at_server = server.poll_handshake(&mut cx);
            if let (Poll::Ready(()), Poll::Ready(done)) = (at_client, at_server) {
                return done;
            }
        }
    }

    #[test]
    fn a_client_and_a_server_exchange_bytes_however_few_fit_below() {
        let authority = Authority::new("Test authority");
        let mut cx = Context::from_waker(Waker::noop());
        for (room, length) in [(1, 20_001), (100, 50_001), (1 << 20, 100_001)] {
            let data: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            let (mut server, mut client) = ends(&authority, &authority, room);
            handshake(&mut server, &mut client).expect("both trust each other");
            for turn in 0..2 {
                let (from, to) = match turn {
                    0 => (&mut client, &mut server),
                    _ => (&mut server, &mut client),
                };
                let (mut rest, mut got, mut buf) = (&data[..], Vec::new(), [0; 5000]);
                while got.len() < data.len() {
                    if !rest.is_empty()
                        && let Poll::Ready(n) = from.poll_write(&mut cx, &[IoSlice::new(rest)])
                    {
                        rest = &rest[n.expect("written")..];
                    }
                    while let Poll::Ready(n) = to.poll_read(&mut cx, &mut buf) {
                        got.extend_from_slice(&buf[..n.expect("read")]);
                    }
                }
                assert!(got == data, "room for {room}");
            }
        }
    }

    /// Writes this data with one end, and reads all of it with the other one.
    fn transfer(from: &mut Stream<End>, to: &mut Stream<End>, data: &[u8]) {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut rest, mut got, mut buf) = (data, 0, [0; 5000]);
        while got < data.len() {
            if !rest.is_empty()
                && let Poll::Ready(n) = from.poll_write(&mut cx, &[IoSlice::new(rest)])
            {
                rest = &rest[n.expect("written")..];
            }
            while let Poll::Ready(n) = to.poll_read(&mut cx, &mut buf) {
                got += n.expect("read");
            }
        }
    }

    #[test]
    fn the_memory_of_a_large_record_is_counted_until_the_stream_waits() {
        let authority = Authority::new("Test authority");
        let (mut server, mut client) = ends(&authority, &authority, 1 << 20);
        handshake(&mut server, &mut client).expect("both trust each other");
        let mut cx = Context::from_waker(Waker::noop());
        // The first records of each direction are small.
        transfer(&mut client, &mut server, &[7; 40_000]);
        assert_eq!(server.held_bytes(), 0);
        let sent = client.poll_write(&mut cx, &[IoSlice::new(&[7; 16 << 10])]);
        assert!(matches!(sent, Poll::Ready(Ok(_))));
        let mut buf = [0; 16 << 10];
        for left in [12 << 10, 8 << 10, 4 << 10, 0] {
            let read = server.poll_read(&mut cx, &mut buf[..4 << 10]);
            assert!(matches!(read, Poll::Ready(Ok(_))));
            assert!(server.held_bytes() >= left);
        }
        assert!(server.held_bytes() > 0, "the buffer of the last record");
        assert!(server.poll_read(&mut cx, &mut buf).is_pending());
        assert_eq!(server.held_bytes(), 0);
        transfer(&mut client, &mut server, &[7; 100_000]);
    }

    #[test]
    fn a_chain_of_many_certificates_is_accepted() {
        let authority = Authority::new("Test authority");
        let mut pair = authority.server(&["localhost"]);
        while pair.certificate.len() < 50_000 {
            pair.certificate += &authority.pem();
        }
        let (mut server, mut client) = ends_with(pair, &authority, 1 << 20);
        handshake(&mut server, &mut client).expect("a long chain");
    }

    #[test]
    fn an_error_of_the_stream_itself_is_answered_with_an_alert() {
        let authority = Authority::new("Test authority");
        let mut cx = Context::from_waker(Waker::noop());
        // The error may come in the middle of a record.
        for part in [&[][..], &[23, 3], &[23, 3, 3, 0x40, 0, 1, 2, 3]] {
            let (mut server, mut client) = ends(&authority, &authority, 1 << 20);
            handshake(&mut server, &mut client).expect("both trust each other");
            server.feed(part).expect("a part of a record");
            let _ = server.refuse_oversized();
            assert!(server.poll_flush(&mut cx).is_ready());
            let error = match client.poll_read(&mut cx, &mut [0; 8]) {
                Poll::Ready(Err(error)) => HandshakeError::of(error),
                other => panic!("{other:?}"),
            };
            let alert = matches!(
                error,
                HandshakeError::Failed(rustls::Error::AlertReceived(_))
            );
            assert!(alert, "{error:?}");
        }
    }

    #[test]
    fn a_client_refuses_a_certificate_that_it_does_not_trust() {
        let other = Authority::new("Another authority");
        let (mut server, mut client) = ends(&Authority::new("Test authority"), &other, 1 << 20);
        let refused = handshake(&mut server, &mut client);
        let invalid = rustls::CertificateError::UnknownIssuer;
        assert!(
            matches!(&refused, Err(HandshakeError::Failed(rustls::Error::InvalidCertificate(why))) if *why == invalid),
            "{refused:?}"
        );
    }
}
