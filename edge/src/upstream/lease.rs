//! The pool grants an exchange either a lease, which is room on an open connection, or the right to
//! open a connection.

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

/// The pool's grant for one exchange.
pub(super) enum Grant {
    /// Room on a connection that was used before.
    Lease(Lease),
    /// The right to open a connection.
    Opening(Opening),
}

/// Room for one exchange on a connection. To drop it before the exchange is complete closes the
/// connection, as HTTP/1.1 knows no other way to abandon an exchange.
///
/// HTTP/1.1 has room for one exchange, so the lease holds the whole connection. In a protocol
/// that carries several, the lease holds a stream, and the connection stays in the pool as long as
/// it has room.
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

    /// The server's index.
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
    /// Room for this exchange on a connection that has some.
    pub(super) fn new(exchange: InProgress, connection: Box<Connection>) -> Lease {
        Lease {
            exchange,
            connection,
        }
    }

    /// The server's index.
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

    /// Closes the connection. The same exchange may open another in its place.
    pub(super) fn reopen(self) -> Opening {
        Opening {
            exchange: self.exchange,
            permit: self.connection.close(),
        }
    }

    /// The exchange is over: the connection, for the pool.
    pub(super) fn end(self) -> Box<Connection> {
        self.connection
    }

    /// Sends a request and waits for the final head. Interim heads except 100 go to `interim`.
    /// `spare` gets the memory of an earlier head.
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

    /// Notes how the exchange went, for the balancer.
    pub(super) fn note(&mut self, outcome: Outcome) {
        self.exchange.note(outcome);
    }

    /// Notes that the exchange failed, for the balancer.
    pub(super) fn note_failure(&mut self, fault: &Fault) {
        self.exchange.note_failure(fault);
    }

    /// The next step through the content that was received.
    pub(super) fn step(&mut self) -> Result<Step, Fault> {
        self.connection.step()
    }

    /// Whether all content was taken.
    pub(super) fn has_ended(&self) -> bool {
        self.connection.has_ended()
    }

    /// Whether all of this room may be filled with content directly from the transport.
    pub(super) fn may_fill(&self, room: &ReadBuf<'_>) -> bool {
        self.connection.may_fill(room)
    }

    /// Sends what is left of the request and reads more of the content, into `room` if there is one,
    /// which `may_fill` allowed; 0 at the end of the connection. A fault if the connection broke or
    /// the request cannot be completed.
    pub(super) fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
        room: Option<&mut ReadBuf<'_>>,
    ) -> Poll<Result<usize, Fault>> {
        self.connection.poll_content(cx, room)
    }

    /// Which limit the wait for more content has exceeded, if any. To be called whenever
    /// `poll_content` is pending.
    pub(super) fn watch_body(&mut self, limits: &Limits) -> Option<Reason> {
        self.connection.watch_body(limits)
    }

    /// The server has closed the connection: a fault unless that is the content's end.
    pub(super) fn end_of_connection(&mut self) -> Result<(), Fault> {
        self.connection.end()
    }

    /// After 101: sends what is left of the request and turns the connection into a tunnel.
    pub(super) async fn into_tunnel(
        self,
        limits: &Limits,
    ) -> Result<Tunnel<impl AsyncRead + AsyncWrite + Unpin + 'static>, Fault> {
        let (transport, early, permit) = self.connection.into_tunnel(limits).await?;
        Ok(Tunnel {
            stream: transport.into_stream(),
            early,
            _exchange: self.exchange,
            _permit: permit,
        })
    }
}
