//! A connection to a server, and one exchange on a connection, in any protocol. Only this file and
//! the folders of the protocols know which protocols there are.
//!
//! A connection is in the pool while it has room for an exchange. `Connection::begin` takes room
//! for one exchange from it, and `Stream::end` gives the room back. A connection of HTTP/2 stays in
//! the pool, which keeps it aside while it is full.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::ReadBuf;

use super::http1;
use super::http2;
use super::inbound::{Failure, Received, Step};
use super::options::Limits;
use super::outbound::Outbound;
use super::permit::{InProgress, Permit};
use super::recording::ExchangeRecording;
use super::sample::Sample;
use super::transport::Transport;
use super::tunnel::Tunnel;
use crate::handler::{Duplex, Fault};
use crate::reason::Reason;
use crate::sys::Address;

/// A connection that has room for an exchange, as the pool keeps it.
pub(super) enum Connection {
    /// An HTTP/1.1 connection carries one exchange at a time, so no exchange is in progress on it.
    Http1(Box<http1::Connection>),
    /// An HTTP/2 connection, which carries many exchanges at a time.
    Http2(http2::Connection),
}

/// One exchange on a connection. If it is dropped before the exchange is complete, the exchange is
/// abandoned.
pub(super) enum Stream {
    /// The whole connection, which is closed if the exchange is abandoned, since HTTP/1.1 has no
    /// other way to do that.
    Http1(Box<http1::Connection>),
    /// A stream, which is reset if the exchange is abandoned.
    Http2(http2::Stream),
}

impl Connection {
    /// Creates a connection on a byte stream that was just opened.
    pub(super) fn new(transport: Transport, permit: Permit, limits: &Limits) -> Connection {
        match transport.is_http2() {
            true => Connection::Http2(http2::Connection::new(transport, permit, limits)),
            false => Connection::Http1(http1::Connection::new(transport, permit)),
        }
    }

    /// Whether the connection carries several exchanges at a time, and so cannot be switched to another protocol.
    pub(super) fn is_multiplexed(&self) -> bool {
        matches!(self, Connection::Http2(_))
    }

    /// Whether the exchange is one of this connection. A connection of HTTP/1.1 is not in the pool while it carries one.
    pub(super) fn carries(&self, stream: &Stream) -> bool {
        match (self, stream) {
            (Connection::Http2(connection), Stream::Http2(stream)) => connection.carries(stream),
            _ => false,
        }
    }

    /// Returns the server's index.
    pub(super) fn server(&self) -> usize {
        match self {
            Connection::Http1(connection) => connection.server(),
            Connection::Http2(connection) => connection.server(),
        }
    }

    /// Returns the address to which the connection is open.
    pub(super) fn peer(&self) -> Option<Address> {
        match self {
            Connection::Http1(connection) => connection.peer(),
            Connection::Http2(connection) => connection.peer(),
        }
    }

    /// Whether the connection has room for an exchange, as far as the bytes read so far show.
    pub(super) fn has_room(&self) -> bool {
        match self {
            Connection::Http1(connection) => connection.has_room(),
            Connection::Http2(connection) => connection.has_room(),
        }
    }

    /// Takes the room for one exchange. Also returns the connection if it carries further ones, now or when others have
    /// ended.
    pub(super) fn begin(self) -> (Stream, Option<Connection>) {
        match self {
            Connection::Http1(mut connection) => {
                connection.set_busy();
                (Stream::Http1(connection), None)
            }
            Connection::Http2(connection) => {
                let (stream, rest) = connection.begin();
                (Stream::Http2(stream), rest.map(Connection::Http2))
            }
        }
    }

    /// Prepares the connection for waiting in the pool: frees memory that it does not need there,
    /// and counts it as idle from the time `now_us` on if no exchange is in progress on it.
    pub(super) fn rest(&mut self, now_us: u64) {
        match self {
            Connection::Http1(connection) => connection.rest(now_us),
            Connection::Http2(connection) => {
                connection.rest();
            }
        }
    }

    /// Frees all memory that the next exchange can allocate again, if no exchange is in progress.
    /// Returns whether there was any.
    pub(super) fn shrink(&mut self) -> bool {
        match self {
            Connection::Http1(connection) => connection.shrink(),
            Connection::Http2(connection) => connection.rest(),
        }
    }

    #[cfg(test)]
    pub(super) fn is_shrunk(&self) -> bool {
        match self {
            Connection::Http1(connection) => connection.is_shrunk(),
            Connection::Http2(_) => false,
        }
    }

    /// Returns whether the connection still has room for an exchange, after reading again, or will
    /// have when exchanges in progress have ended. `waker` is woken when the server closes the
    /// connection or sends something unexpected, and when a full connection has room again.
    pub(super) fn stays_usable(&mut self, waker: &Waker) -> bool {
        match self {
            Connection::Http1(connection) => connection.stays_idle(waker),
            Connection::Http2(connection) => connection.stays_usable(waker),
        }
    }

    /// Returns the time for which the connection has been idle at the time `now_us` of the upstream's
    /// clock, in microseconds; 0 while an exchange is in progress on it.
    pub(super) fn idle_us(&self, now_us: u64) -> u64 {
        match self {
            Connection::Http1(connection) => now_us.saturating_sub(connection.idle_since_us()),
            Connection::Http2(connection) => connection.idle_us(),
        }
    }

    /// Returns the longest time for which the server lets the connection be idle, in microseconds.
    pub(super) fn idle_limit_us(&self) -> u64 {
        match self {
            Connection::Http1(connection) => connection.idle_limit_us(),
            Connection::Http2(_) => u64::MAX,
        }
    }

    /// Closes the connection and returns its permit, for another connection that is opened in its
    /// place; `None` if exchanges in progress still need it.
    pub(super) fn close(self) -> Option<Permit> {
        match self {
            Connection::Http1(mut connection) => {
                connection.set_busy();
                Some(connection.close())
            }
            Connection::Http2(connection) => connection.close(),
        }
    }
}

impl Stream {
    /// Returns the server's address.
    pub(super) fn peer(&self) -> Option<Address> {
        match self {
            Stream::Http1(connection) => connection.peer(),
            Stream::Http2(stream) => stream.peer(),
        }
    }

    /// Returns the time of the connection's handshake, if the connection has TLS.
    pub(super) fn handshake(&self) -> Option<Duration> {
        match self {
            Stream::Http1(connection) => connection.handshake(),
            Stream::Http2(stream) => stream.handshake(),
        }
    }

    /// Whether other exchanges began on this connection before.
    pub(super) fn is_reused(&self) -> bool {
        match self {
            Stream::Http1(connection) => connection.uses() > 0,
            Stream::Http2(stream) => stream.is_reused(),
        }
    }

    /// Whether the connection is still usable before the request is sent: the server has neither
    /// closed it nor sent anything that could be taken for the response.
    pub(super) fn is_quiet(&mut self) -> bool {
        match self {
            Stream::Http1(connection) => connection.is_quiet(),
            Stream::Http2(stream) => stream.is_quiet(),
        }
    }

    /// Begins the record of the exchange, if the connection is still open and its exchanges are recorded.
    pub(super) fn begin_recording(&self, target: &str, sent_us: u64) -> Option<ExchangeRecording> {
        match self {
            Stream::Http1(connection) => connection.begin_recording(target, sent_us),
            Stream::Http2(stream) => stream.begin_recording(target, sent_us),
        }
    }

    /// Sends a request and waits for the final head. Interim heads except 100 are passed to
    /// `interim`.
    pub(super) async fn send(
        &mut self,
        outbound: &Outbound<'_>,
        limits: &Limits,
        interim: impl FnMut(Received),
    ) -> Result<Received, Failure> {
        match self {
            Stream::Http1(connection) => connection.send(outbound, limits, interim).await,
            Stream::Http2(stream) => stream.send(outbound, limits, interim).await,
        }
    }

    /// Takes the next frame out of the received bytes of content.
    pub(super) fn step(&mut self) -> Result<Step, Fault> {
        match self {
            Stream::Http1(connection) => connection.step(),
            Stream::Http2(stream) => stream.step(),
        }
    }

    /// Whether all content has been taken.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Stream::Http1(connection) => connection.has_ended(),
            Stream::Http2(stream) => stream.has_ended(),
        }
    }

    /// Whether `room` may be filled with content directly from the transport: no buffered bytes
    /// come first, and at least as many bytes of content follow as fit.
    pub(super) fn may_fill(&self, room: &ReadBuf<'_>) -> bool {
        match self {
            Stream::Http1(connection) => connection.may_fill(room),
            // Content arrives between frames of other streams.
            Stream::Http2(_) => false,
        }
    }

    /// Sends the unsent rest of the request and receives more content: into `room` if given, which
    /// `may_fill` must have allowed. Returns the number of bytes, 0 when the server has closed the
    /// connection. Fails if the connection broke or the request cannot be completed.
    pub(super) fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
        room: Option<&mut ReadBuf<'_>>,
    ) -> Poll<Result<usize, Fault>> {
        match self {
            Stream::Http1(connection) => connection.poll_content(cx, room),
            Stream::Http2(stream) => stream.poll_content(cx),
        }
    }

    /// Requires the minimum rate of content without a declared length, too.
    pub(super) fn require_rate(&mut self) {
        match self {
            Stream::Http1(connection) => connection.require_rate(),
            Stream::Http2(stream) => stream.require_rate(),
        }
    }

    /// Returns the timeout that the wait for more content has exceeded, if any. Must be called
    /// whenever `poll_content` is pending.
    pub(super) fn watch_body(&mut self, limits: &Limits) -> Option<Reason> {
        match self {
            Stream::Http1(connection) => connection.watch_body(limits),
            Stream::Http2(stream) => stream.watch_body(limits),
        }
    }

    /// Handles that the server has closed the connection: a fault unless the close is the content's
    /// regular end.
    pub(super) fn end_of_connection(&mut self) -> Result<(), Fault> {
        match self {
            Stream::Http1(connection) => connection.end(),
            // `step` returns this fault itself.
            Stream::Http2(_) => Err(Reason::BodyCut.into()),
        }
    }

    /// Returns the kernel's data about the connection, unless the last sample is recent.
    pub(super) fn sample(&mut self, now_us: u64) -> Option<Sample> {
        match self {
            Stream::Http1(connection) => connection.sample(now_us),
            Stream::Http2(stream) => stream.sample(now_us),
        }
    }

    /// Whether the connection carries several exchanges at a time.
    pub(super) fn is_multiplexed(&self) -> bool {
        matches!(self, Stream::Http2(_))
    }

    /// Ends a complete exchange. Returns the connection if it is not in the pool and now has room
    /// for an exchange.
    pub(super) fn end(self) -> Option<Connection> {
        match self {
            Stream::Http1(connection) => connection
                .has_room()
                .then_some(Connection::Http1(connection)),
            // The pool has the connection all the time.
            Stream::Http2(_) => None,
        }
    }

    /// Abandons the exchange. Returns the permit of the connection, for another connection that is
    /// opened in its place; `None` if the connection stays open for other exchanges.
    pub(super) fn abandon(self) -> Option<Permit> {
        match self {
            Stream::Http1(connection) => Some(connection.close()),
            Stream::Http2(_) => None,
        }
    }

    /// After a 101: sends the unsent rest of the request and turns the exchange into a tunnel.
    pub(super) async fn into_tunnel(
        self,
        mut exchange: InProgress,
        limits: &Limits,
    ) -> Result<Box<dyn Duplex>, Fault> {
        match self {
            Stream::Http1(connection) => {
                let parts = connection.into_tunnel(limits).await;
                let (transport, early, permit) =
                    parts.inspect_err(|fault| exchange.note_failure(fault))?;
                let (stream, record) = transport.into_stream();
                Ok(Box::new(Tunnel {
                    stream,
                    record,
                    early,
                    _exchange: exchange,
                    permit,
                }))
            }
            Stream::Http2(_) => {
                // HTTP/2 has no 101 (RFC 9113 8.6).
                let fault = Fault::from(Reason::UnexpectedStatus);
                exchange.note_failure(&fault);
                Err(fault)
            }
        }
    }
}
