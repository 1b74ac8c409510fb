//! Grants of the pool: an exchange gets either a lease, which is room on an open connection, or the
//! right to open a connection.

use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::http1::{Connection, Failure, Message, Received, Step};
use super::options::{Limits, Server};
use super::permit::{InProgress, Permit};
use super::transport::Transport;
use super::tunnel::Tunnel;
use crate::balance::Outcome;
use crate::handler::Fault;
use crate::reason::Reason;

/// The permission of the pool for one exchange with a server.
pub(super) enum Grant {
    /// Room on a connection that is already open.
    Lease(Lease),
    /// The right to open a connection.
    Opening(Opening),
}

/// Room for one exchange on a connection. If the lease is dropped before the exchange is complete,
/// the connection is closed, since HTTP/1.1 has no other way to abandon an exchange.
///
/// An HTTP/1.1 connection has room for one exchange, so the lease holds the whole connection. In a
/// protocol that multiplexes, the lease would hold a stream, and the connection would stay in the
/// pool while it has room.
pub(super) struct Lease {
    exchange: InProgress,
    connection: Box<Connection>,
}

/// The right to open a connection for an exchange.
pub(super) struct Opening {
    exchange: InProgress,
    permit: Permit,
}

impl Opening {
    pub(super) fn new(exchange: InProgress, permit: Permit) -> Opening {
        Opening { exchange, permit }
    }

    /// Returns the index of the server to which the connection will be opened.
    pub(super) fn server(&self) -> usize {
        self.permit.server
    }

    /// Connects within `timeout`.
    pub(super) async fn connect(
        mut self,
        server: &Server,
        timeout: Duration,
    ) -> Result<Lease, Fault> {
        match Transport::connect(server, timeout).await {
            Ok(transport) => Ok(Lease {
                exchange: self.exchange,
                connection: Connection::new(transport, self.permit),
            }),
            Err(cause) => {
                let fault = Fault::from(cause);
                self.exchange.note_failure(&fault);
                Err(fault)
            }
        }
    }
}

impl Lease {
    /// Creates the lease of `connection`, which has room, for this exchange.
    pub(super) fn new(exchange: InProgress, connection: Box<Connection>) -> Lease {
        Lease {
            exchange,
            connection,
        }
    }

    /// Returns the index of the connection's server.
    pub(super) fn server(&self) -> usize {
        self.connection.server()
    }

    /// The server's address.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.connection.peer()
    }

    /// Whether other exchanges went over this connection before.
    pub(super) fn is_reused(&self) -> bool {
        self.connection.uses() > 0
    }

    /// Whether the server has neither closed the connection nor sent anything as of now.
    pub(super) fn is_quiet(&self) -> bool {
        self.connection.is_quiet()
    }

    /// Closes the connection and returns the right to open another one in its place, for the same
    /// exchange.
    pub(super) fn reopen(self) -> Opening {
        Opening {
            exchange: self.exchange,
            permit: self.connection.close(),
        }
    }

    /// Ends the exchange and returns the connection, so that the caller can put it into the pool.
    pub(super) fn end(self) -> Box<Connection> {
        self.connection
    }

    /// Sends a request and waits for the final head. Interim heads except 100 are passed to
    /// `interim`. `spare` receives the buffer of an earlier head, for reuse.
    pub(super) async fn send(
        &mut self,
        message: Message,
        limits: &Limits,
        spare: &mut Vec<u8>,
        interim: impl FnMut(Received),
    ) -> Result<Received, Failure> {
        let sent = self.connection.send(message, limits, spare, interim).await;
        if let Err(failure) = &sent {
            self.exchange.note_failure(&failure.fault);
        }
        sent
    }

    /// Notes the outcome of the exchange, for the balancer.
    pub(super) fn note(&mut self, outcome: Outcome) {
        self.exchange.note(outcome);
    }

    /// Notes that the exchange failed, for the balancer.
    pub(super) fn note_failure(&mut self, fault: &Fault) {
        self.exchange.note_failure(fault);
    }

    /// Takes the next frame out of the received bytes of content.
    pub(super) fn step(&mut self) -> Result<Step, Fault> {
        self.connection.step()
    }

    /// Whether all content has been taken.
    pub(super) fn has_ended(&self) -> bool {
        self.connection.has_ended()
    }

    /// Whether `room` may be filled with content directly from the transport: no buffered bytes
    /// come first, and at least as many bytes of content follow as fit.
    pub(super) fn may_fill(&self, room: &ReadBuf<'_>) -> bool {
        self.connection.may_fill(room)
    }

    /// Sends the unsent rest of the request and reads more content: into `room` if given, which
    /// `may_fill` must have allowed. Returns the number of bytes, 0 when the server has closed the
    /// connection. Fails if the connection broke or the request cannot be completed.
    pub(super) fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
        room: Option<&mut ReadBuf<'_>>,
    ) -> Poll<Result<usize, Fault>> {
        self.connection.poll_content(cx, room)
    }

    /// Returns the timeout that the wait for more content has exceeded, if any. Must be called
    /// whenever `poll_content` is pending.
    pub(super) fn watch_body(&mut self, limits: &Limits) -> Option<Reason> {
        self.connection.watch_body(limits)
    }

    /// Handles that the server has closed the connection: a fault unless the close is the content's
    /// regular end.
    pub(super) fn end_of_connection(&mut self) -> Result<(), Fault> {
        self.connection.end()
    }

    /// After a 101: sends the unsent rest of the request and turns the connection into a tunnel.
    pub(super) async fn into_tunnel(
        self,
        limits: &Limits,
    ) -> Result<Tunnel<impl AsyncRead + AsyncWrite + Unpin + 'static>, Fault> {
        let mut exchange = self.exchange;
        let parts = self.connection.into_tunnel(limits).await;
        let (transport, early, permit) = parts.inspect_err(|fault| exchange.note_failure(fault))?;
        Ok(Tunnel {
            stream: transport.into_stream(),
            early,
            _exchange: exchange,
            _permit: permit,
        })
    }
}
