//! The TLS handshake at the start of a connection, before the first byte of its protocol.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustls::server::{Accepted, AcceptedAlert, Acceptor};

use crate::telemetry::{Counter, Counters};
use crate::tls::{Demand, HandshakeError, Incomplete, NoSettings, Refusal, Session, Terms};

use super::connection::Connection;
use super::deadlines::{Tick, ticks};
use super::handshakes::{Handshake, HandshakeLimits};
use super::lingering;
use super::worker::Worker;

/// Descriptions of alerts (RFC 8446 6.2).
const RECORD_OVERFLOW: u8 = 22;
const ILLEGAL_PARAMETER: u8 = 47;
const PROTOCOL_VERSION: u8 = 70;
const INTERNAL_ERROR: u8 = 80;
const UNRECOGNIZED_NAME: u8 = 112;

/// Returns a fatal alert in clear text (RFC 8446 5.1, 6): type, version, length, level, description.
fn alert(description: u8) -> [u8; 7] {
    [21, 3, 3, 0, 2, 2, description]
}

/// The response to a request in clear text.
const NOT_TLS: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\
    Content-Length: 42\r\n\r\nnot-tls: this port expects TLS (https://)\n";

/// Most bytes that a client may send for its first message: a record of the largest size (RFC 8446 5.1).
const HELLO_BYTES_MAX: usize = (16 << 10) + 5;

/// Runs the handshake of a connection to the listener with this index. Returns `None` if the connection must be closed.
pub(super) async fn run(mut connection: Connection, listener: u16) -> Option<Connection> {
    let mut handshake = PendingHandshake::begin(&mut connection, listener)?;
    let result = poll_fn(|cx| handshake.poll(&mut connection, cx)).await;
    let has_begun = handshake.received.first.is_some();
    let details = std::mem::take(&mut handshake.details);
    drop(handshake);
    match result {
        Ok(()) => Some(connection),
        // Health checks open a connection and send nothing.
        Err(Refusal::Closed) if !has_begun => None,
        Err(refusal) => {
            report(&connection, refusal, &details);
            if refusal == Refusal::NotTls {
                lingering::close(connection).await;
            }
            None
        }
    }
}

/// Counts a failed handshake.
fn report(connection: &Connection, refusal: Refusal, details: &Details) {
    let counters = &connection.worker.counters;
    counters.tls_handshakes_failed.add(1);
    if let Some(counter) = counter(counters, refusal) {
        counter.add(1);
    }
    tracing::debug!(
        client = %connection.peer.client,
        listener = %connection.peer.local,
        name = details.name,
        reason = refusal.name(),
        cause = details.cause,
        "a TLS handshake failed"
    );
}

/// Returns the counter of the handshakes that fail for this reason. `None` if they are counted elsewhere.
fn counter(counters: &Counters, refusal: Refusal) -> Option<&Counter> {
    Some(match refusal {
        Refusal::Version => &counters.tls_failed_version,
        Refusal::Parameters => &counters.tls_failed_parameters,
        Refusal::UnknownName => &counters.tls_failed_unknown_name,
        Refusal::NoCertificate => &counters.tls_failed_no_certificate,
        Refusal::Protocol => &counters.tls_failed_protocol,
        Refusal::ClientCertificate => &counters.tls_failed_client_certificate,
        Refusal::ByClient => &counters.tls_failed_refused_by_client,
        Refusal::NotTls => &counters.tls_failed_not_tls,
        Refusal::Malformed => &counters.tls_failed_malformed,
        Refusal::Timeout => &counters.tls_handshakes_late,
        Refusal::Evicted => &counters.tls_failed_evicted,
        Refusal::Closed => &counters.tls_failed_closed,
        Refusal::Internal => &counters.tls_failed_internal,
        // Counted by the handshake that takes the place.
        Refusal::Cut => return None,
    })
}

/// The facts about a handshake for the message that it failed. They are kept only if such messages are logged.
#[derive(Default)]
struct Details {
    /// The name that the client sent (SNI).
    name: Option<String>,
    /// Description of the error.
    cause: Option<String>,
}

impl Details {
    fn set_name(&mut self, name: Option<&str>) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.name = name.map(str::to_owned);
        }
    }

    fn set_cause(&mut self, error: &rustls::Error) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.cause = Some(error.to_string());
        }
    }
}

/// A handshake in progress.
struct PendingHandshake {
    /// Reads the client's first message. `None` once it has been read.
    acceptor: Option<Acceptor>,
    listener: u16,
    received: Received,
    /// The client's first message while the certificate for its name is obtained, and the wait for that.
    demanding: Option<(Accepted, Demand)>,
    /// Tick at which the handshake has taken too long.
    deadline: Tick,
    count: HandshakeCount,
    details: Details,
}

/// The bytes that the client has sent, until the transport is encrypted.
#[derive(Default)]
struct Received {
    /// The first byte.
    first: Option<u8>,
    incomplete: Incomplete,
}

/// Guard that counts the handshake as unfinished.
struct HandshakeCount {
    worker: Rc<Worker>,
    handshake: Handshake,
    /// Bytes of the client's first message that are in memory.
    bytes: usize,
}

impl HandshakeCount {
    /// Counts the bytes of the first message.
    fn set_bytes(&mut self, bytes: usize) {
        let gauge = &self.worker.counters.tls_memory_now;
        gauge.add(bytes as u64);
        gauge.sub(self.bytes as u64);
        self.bytes = bytes;
    }
}

impl Drop for HandshakeCount {
    fn drop(&mut self) {
        self.set_bytes(0);
        self.worker.handshakes.end(self.handshake);
        self.worker.counters.tls_handshakes_now.sub(1);
    }
}

impl PendingHandshake {
    /// Counts a new handshake. Returns `None` if its client has too many.
    fn begin(connection: &mut Connection, listener: u16) -> Option<PendingHandshake> {
        let worker = &connection.worker;
        let options = &worker.serving().options;
        let limits = HandshakeLimits {
            total: options.handshakes,
            per_client: options.handshakes_per_ip,
        };
        let client = connection.peer.address.ip();
        let begun = worker.handshakes.begin(connection.slot, client, limits);
        let Some(begun) = begun else {
            worker.counters.tls_handshakes_over_ip.add(1);
            return None;
        };
        worker.counters.tls_handshakes_now.add(1);
        if let Some(slot) = begun.cut {
            worker.counters.tls_handshakes_cut.add(1);
            worker.deadlines.expire(slot);
        }
        let time = ticks(options.handshake_timeout);
        let deadline = worker.deadlines.now().saturating_add(time);
        worker.deadlines.set(connection.slot, deadline, true);
        Some(PendingHandshake {
            acceptor: Some(Acceptor::default()),
            listener,
            received: Received::default(),
            demanding: None,
            deadline,
            count: HandshakeCount {
                worker: worker.clone(),
                handshake: begun.handshake,
                bytes: 0,
            },
            details: Details::default(),
        })
    }

    fn poll(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Refusal>> {
        let worker = self.count.worker.clone();
        worker.watch(connection.slot, cx);
        if worker.is_cut() {
            connection.transport.reset_on_drop();
            return Poll::Ready(Err(Refusal::Closed));
        }
        let mut result = self.advance(connection, cx);
        let (is_draining, is_evicted) = (worker.is_draining(), self.is_evicted(connection));
        let is_silent = result.is_pending() && self.received.first.is_none();
        if is_silent && (is_draining || is_evicted) {
            // The first bytes may have arrived in this moment, like a request on an idle connection.
            let has_begun = connection.fill_now();
            if has_begun && is_evicted {
                worker.deadlines.set(connection.slot, self.deadline, true);
            }
            result = match has_begun {
                true => self.advance(connection, cx),
                false if is_draining => Poll::Ready(Err(Refusal::Closed)),
                false => Poll::Pending,
            };
        }
        if result.is_pending() && worker.deadlines.expired(connection.slot) {
            result = Poll::Ready(Err(self.late()));
        }
        match &result {
            Poll::Ready(Ok(())) => self.finish(connection),
            Poll::Ready(Err(_)) | Poll::Pending => connection.release_buffer(),
        }
        result
    }

    /// Whether the connection must make room for others.
    fn is_evicted(&self, connection: &Connection) -> bool {
        let is_late = self.count.worker.deadlines.expired(connection.slot);
        is_late && matches!(self.late(), Refusal::Evicted)
    }

    /// Returns the reason for which the deadline has passed: connections that must make room get an earlier one.
    fn late(&self) -> Refusal {
        let worker = &self.count.worker;
        if worker.handshakes.is_cut(self.count.handshake) {
            Refusal::Cut
        } else if worker.deadlines.now() < self.deadline {
            Refusal::Evicted
        } else {
            Refusal::Timeout
        }
    }

    fn advance(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Refusal>> {
        while self.acceptor.is_some() {
            ready!(self.read_hello(connection, cx))?;
        }
        if let Some((_, demand)) = &mut self.demanding {
            ready!(demand.poll(cx));
        }
        if let Some((accepted, _)) = self.demanding.take() {
            self.begin_session(accepted, false, connection, cx)?;
        }
        let Some(tls) = connection.transport.tls() else {
            return Poll::Ready(Err(Refusal::Internal));
        };
        tls.poll_handshake(cx)
            .map_err(|error| self.refusal_of(&error))
    }

    /// Reads a part of the client's first message, and answers it once it is complete.
    fn read_hello(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Refusal>> {
        let Some(acceptor) = &mut self.acceptor else {
            return Poll::Ready(Ok(()));
        };
        let mut wire = Wire {
            connection,
            cx,
            received: &mut self.received,
        };
        match acceptor.read_tls(&mut wire) {
            Ok(0) => return Poll::Ready(Err(Refusal::Closed)),
            Ok(_) => self.count.set_bytes(self.received.incomplete.bytes()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let _ = self.wire(connection, cx).write(&alert(RECORD_OVERFLOW));
                return Poll::Ready(Err(Refusal::Malformed));
            }
            Err(_) => return Poll::Ready(Err(Refusal::Closed)),
        }
        if self
            .received
            .first
            .is_some_and(|byte| byte.is_ascii_uppercase())
        {
            // Every method of HTTP begins with a capital letter, and no message of TLS does.
            let _ = self.wire(connection, cx).write(NOT_TLS);
            return Poll::Ready(Err(Refusal::NotTls));
        }
        match acceptor.accept() {
            Ok(None) if self.count.bytes > HELLO_BYTES_MAX => {
                let _ = self.wire(connection, cx).write(&alert(ILLEGAL_PARAMETER));
                Poll::Ready(Err(Refusal::Malformed))
            }
            Ok(None) => Poll::Ready(Ok(())),
            Ok(Some(accepted)) => {
                self.acceptor = None;
                self.details.set_name(accepted.client_hello().server_name());
                Poll::Ready(self.begin_session(accepted, true, connection, cx))
            }
            Err((error, alert)) => Poll::Ready(Err(self.refuse(&error, alert, connection, cx))),
        }
    }

    /// Chooses the settings for the name that the client sent, and begins the session, unless `may_demand` is set and
    /// the certificate has to be obtained first.
    fn begin_session(
        &mut self,
        accepted: Accepted,
        may_demand: bool,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Result<(), Refusal> {
        let serving = connection.worker.serving();
        let Some(server) = serving.tls(self.listener) else {
            return Err(Refusal::Internal);
        };
        let (policy, config) = match server.settings(&accepted.client_hello()) {
            Ok(settings) => settings,
            Err(why) => {
                let name = accepted.client_hello().server_name().map(str::to_owned);
                let may_demand = may_demand && why == NoSettings::OnDemand;
                let demand = name
                    .filter(|_| may_demand)
                    .and_then(|name| server.demand(&name));
                let Some(demand) = demand else {
                    return Err(self.refuse_name(why, connection, cx));
                };
                self.demanding = Some((accepted, demand));
                return Ok(());
            }
        };
        // From now on, the transport counts its memory.
        self.count.set_bytes(0);
        let terms = Terms {
            listener: self.listener,
            policy,
        };
        let session = accepted
            .into_connection(config)
            .map_err(|(error, alert)| self.refuse(&error, alert, connection, cx))?;
        let counters = connection.worker.counters.clone();
        let incomplete = std::mem::take(&mut self.received.incomplete);
        let transport = &mut connection.transport;
        transport.encrypt(session, incomplete, terms, counters);
        // The buffer of a PROXY protocol header may hold more than the first message.
        let rest = connection.take_input();
        let Some(tls) = connection.transport.tls() else {
            return Ok(());
        };
        tls.take_received(cx, &rest)
            .map_err(|error| self.refusal_of(&error))
    }

    /// Sends the alert to a client for whose name there are no settings.
    fn refuse_name(
        &mut self,
        why: NoSettings,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Refusal {
        let (description, refusal) = match why {
            NoSettings::UnknownName => (UNRECOGNIZED_NAME, Refusal::UnknownName),
            NoSettings::NoCertificate | NoSettings::OnDemand => {
                (UNRECOGNIZED_NAME, Refusal::NoCertificate)
            }
            NoSettings::Internal => (INTERNAL_ERROR, Refusal::Internal),
        };
        let _ = self.wire(connection, cx).write(&alert(description));
        refusal
    }

    fn refusal_of(&mut self, error: &HandshakeError) -> Refusal {
        match error {
            HandshakeError::Closed => Refusal::Closed,
            HandshakeError::Failed(error) => {
                self.details.set_cause(error);
                Refusal::of(error)
            }
        }
    }

    /// Sends the alert for an error.
    fn refuse(
        &mut self,
        error: &rustls::Error,
        mut error_alert: AcceptedAlert,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Refusal {
        self.details.set_cause(error);
        let refusal = Refusal::of(error);
        let mut wire = self.wire(connection, cx);
        // For a version without signature algorithms, rustls would send `handshake_failure`.
        let _ = match refusal {
            Refusal::Version => wire.write_all(&alert(PROTOCOL_VERSION)),
            _ => error_alert.write_all(&mut wire),
        };
        refusal
    }

    fn finish(&self, connection: &mut Connection) {
        let Some(tls) = connection.transport.tls() else {
            return;
        };
        let session = Session::of(tls.session());
        let counters = &connection.worker.counters;
        match session.is_some_and(Session::resumed) {
            true => counters.tls_resumed.add(1),
            false => counters.tls_handshakes.add(1),
        }
        connection.peer.tls = session;
    }

    fn wire<'a, 'c>(
        &'a mut self,
        connection: &'a mut Connection,
        cx: &'a mut Context<'c>,
    ) -> Wire<'a, 'c> {
        Wire {
            connection,
            cx,
            received: &mut self.received,
        }
    }
}

/// Reads and writes the transport of a connection, without waiting.
struct Wire<'a, 'c> {
    connection: &'a mut Connection,
    cx: &'a mut Context<'c>,
    received: &'a mut Received,
}

impl Read for Wire<'_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let input = self.connection.input();
        let n = match input.is_empty() {
            true => match self.connection.transport.poll_read(self.cx, buf) {
                Poll::Ready(read) => read?,
                Poll::Pending => return Err(io::ErrorKind::WouldBlock.into()),
            },
            false => {
                let n = input.len().min(buf.len());
                buf[..n].copy_from_slice(&input[..n]);
                self.connection.consume(n);
                n
            }
        };
        if n > 0 {
            self.received.first.get_or_insert(buf[0]);
            self.received.incomplete.fed(&buf[..n]);
        }
        Ok(n)
    }
}

impl Write for Wire<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let slices = [io::IoSlice::new(bytes)];
        match self
            .connection
            .transport
            .poll_write(self.cx, &slices, false)
        {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
