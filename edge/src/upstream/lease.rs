//! Grants of the pool: an exchange gets either a lease, which is room on an open connection, or the
//! right to open a connection.

use std::sync::Arc;

use super::connection::{Connection, Stream};
use super::inbound::{Failure, Received};
use super::openings::OpeningGuard;
use super::options::Limits;
use super::outbound::Outbound;
use super::permit::{InProgress, Permit};
use super::recording::Recorder;
use super::state::ServerState;
use super::transport::{Transport, Unconnected};
use crate::balance::Outcome;
use crate::handler::{Duplex, Fault};
use crate::reason::Reason;

/// The permission of the pool for one exchange with a server.
pub(super) enum Grant {
    /// Room on a connection that is already open.
    Lease(Lease),
    /// The right to open a connection.
    Opening(Opening),
    /// Nothing: an attempt to connect to this server, the last one that could be used, has just
    /// failed for this reason.
    Refused(usize, Reason),
}

/// Room for one exchange on a connection. If the lease is dropped before the exchange is complete,
/// the exchange is abandoned.
pub(super) struct Lease {
    exchange: InProgress,
    pub(super) stream: Stream,
}

/// The right to open a connection for an exchange.
pub(super) struct Opening {
    exchange: InProgress,
    permit: Permit,
    /// Whether the connection must be one of HTTP/1.1.
    needs_http1: bool,
    /// Tells the requests that wait for the connection when it is open.
    _awaited: Option<OpeningGuard>,
}

/// A connection that was opened for an exchange.
pub(super) struct Opened {
    /// Room for the exchange.
    pub(super) lease: Lease,
    /// The connection, if it has room for further exchanges.
    pub(super) rest: Option<Connection>,
}

impl Opening {
    pub(super) fn new(exchange: InProgress, permit: Permit) -> Opening {
        Opening {
            exchange,
            permit,
            needs_http1: false,
            _awaited: None,
        }
    }

    /// Demands a connection of HTTP/1.1.
    pub(super) fn over_http1(self) -> Opening {
        Opening {
            needs_http1: true,
            ..self
        }
    }

    /// Has other requests wait for the connection until the guard is dropped.
    pub(super) fn awaited(self, guard: OpeningGuard) -> Opening {
        Opening {
            _awaited: Some(guard),
            ..self
        }
    }

    /// Returns the index of the server to which the connection will be opened.
    pub(super) fn server(&self) -> usize {
        self.permit.server
    }

    /// Returns the state of the server that all workers share.
    pub(super) fn state(&self) -> Arc<ServerState> {
        self.permit.state().clone()
    }

    /// Connects within the time that `limits` has for it.
    pub(super) async fn connect(mut self, limits: &Limits) -> Result<Opened, Fault> {
        let recorder = self.permit.recorder().cloned();
        let began_us = recorder.as_ref().map_or(0, Recorder::now_us);
        match Transport::connect(self.permit.state(), limits, self.needs_http1).await {
            Ok(mut transport) => {
                if let Some(recorder) = recorder {
                    transport.record(&recorder, self.permit.state().id(), began_us);
                }
                if !self.needs_http1 {
                    let protocol = self.permit.state().protocol();
                    protocol.note(transport.is_http2());
                }
                let connection = Connection::new(transport, self.permit, limits);
                let (stream, rest) = connection.begin();
                let lease = Lease::new(self.exchange, stream);
                Ok(Opened { lease, rest })
            }
            Err(Unconnected { reason, detail }) => {
                // An error at another port says nothing about connections for requests.
                if let Some(detail) = detail.filter(|_| limits.port.is_none()) {
                    self.permit.state().note_detail(detail);
                }
                let fault = Fault::from(reason);
                self.exchange.note_failure(&fault);
                Err(fault)
            }
        }
    }
}

impl Lease {
    /// Creates the lease of `stream` for this exchange.
    pub(super) fn new(exchange: InProgress, stream: Stream) -> Lease {
        Lease { exchange, stream }
    }

    /// Returns the index of the connection's server.
    pub(super) fn server(&self) -> usize {
        self.exchange.server
    }

    /// Sends a request and waits for the final head. Interim heads except 100 are passed to
    /// `interim`.
    pub(super) async fn send(
        &mut self,
        outbound: &Outbound<'_>,
        limits: &Limits,
        interim: impl FnMut(Received),
    ) -> Result<Received, Failure> {
        let sent = self.stream.send(outbound, limits, interim).await;
        if let Err(failure) = &sent {
            self.exchange.note_failure(&failure.fault);
        }
        sent
    }

    /// Begins the record of the exchange, whose request has this target and is sent at the time `sent_us`.
    pub(super) fn begin_recording(&mut self, target: &str, sent_us: u64) {
        self.exchange.recording = self.stream.begin_recording(target, sent_us);
    }

    /// Notes bytes of content that were received.
    pub(super) fn note_bytes(&mut self, bytes: u64) {
        self.exchange.note_bytes(bytes);
    }

    /// Notes the outcome of the exchange, for the balancer.
    pub(super) fn note(&mut self, outcome: Outcome) {
        self.exchange.note(outcome);
    }

    /// Notes the time from sending the request to the end of the response, in microseconds, and the
    /// time `now_us` of the end.
    pub(super) fn note_end(&mut self, took_us: u64, now_us: u64) {
        self.exchange.note_end(took_us, now_us);
    }

    /// Notes that the exchange failed, for the balancer.
    pub(super) fn note_failure(&mut self, fault: &Fault) {
        self.exchange.note_failure(fault);
    }

    /// Ends an exchange that is complete at the time `now_us`. Returns the connection if it is not in the
    /// pool and now has room for an exchange.
    pub(super) fn end(mut self, now_us: u64) -> Option<Connection> {
        self.exchange.note_complete(now_us);
        self.stream.end()
    }

    /// Abandons the room but not the exchange, which continues on another connection. Returns the
    /// permit of the connection unless the connection stays open.
    pub(super) fn abandon(mut self) -> (InProgress, Option<Permit>) {
        self.exchange.recording = None;
        (self.exchange, self.stream.abandon())
    }

    /// After a 101: sends the unsent rest of the request and turns the exchange into a tunnel.
    pub(super) async fn into_tunnel(self, limits: &Limits) -> Result<Box<dyn Duplex>, Fault> {
        self.stream.into_tunnel(self.exchange, limits).await
    }
}
