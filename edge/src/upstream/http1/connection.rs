//! A connection to an origin server, over which one exchange goes after the other.
//!
//! A connection is not a task of its own: the task that awaits the response or polls its content
//! drives it. That saves a task switch for each head and each chunk, and to abandon an exchange is to
//! drop its connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use tokio::io::ReadBuf;

use super::incoming::Step;
use super::response::Received;
use super::round_trip::{Broken, Failure, Message, RoundTrip};
use crate::handler::Fault;
use crate::reason::Reason;
use crate::upstream::options::Limits;
use crate::upstream::permit::Permit;
use crate::upstream::transport::Transport;
use crate::upstream::waker::WakeForwarder;

/// A connection, and the state of the exchange that goes over it now.
pub(in crate::upstream) struct Connection {
    transport: Transport,
    exchange: RoundTrip,
    forwarder: Arc<WakeForwarder>,
    /// The waker that everything within the connection gets; `forwarder` chooses the task it wakes.
    waker: Waker,
    closed: bool,
    /// Whether neither side has announced that this is the connection's last exchange.
    reusable: bool,
    /// Requests sent so far.
    uses: u64,
    /// When the connection became idle, on the upstream's clock.
    idle_since_us: u64,
    /// Its place among the server's connections. The last field: the socket closes first.
    permit: Permit,
}

impl Connection {
    pub(in crate::upstream) fn new(transport: Transport, permit: Permit) -> Box<Connection> {
        let (forwarder, waker) = WakeForwarder::new();
        Box::new(Connection {
            transport,
            exchange: RoundTrip::new(),
            forwarder,
            waker,
            closed: false,
            reusable: true,
            uses: 0,
            idle_since_us: 0,
            permit,
        })
    }

    /// The server's index.
    pub(in crate::upstream) fn server(&self) -> usize {
        self.permit.server
    }

    /// The server's address.
    pub(in crate::upstream) fn peer(&self) -> Option<SocketAddr> {
        self.transport.peer()
    }

    /// Requests sent so far.
    pub(in crate::upstream) fn uses(&self) -> u64 {
        self.uses
    }

    /// Whether there is room for an exchange as far as is known. HTTP/1.1 carries one at a time: the
    /// last request went out whole, its response came whole, nothing came after it, and neither
    /// side wants to close.
    pub(in crate::upstream) fn has_room(&self) -> bool {
        self.reusable
            && !self.closed
            && !self.transport.is_write_broken()
            && self.exchange.is_complete()
    }

    /// `has_room` after reading again; `waker` is woken when the server closes or sends something.
    pub(in crate::upstream) fn stays_idle(&mut self, waker: &Waker) -> bool {
        if !self.has_room() {
            return false;
        }
        self.forwarder.set_target(waker);
        self.is_silent()
    }

    /// Whether the server has neither closed nor sent anything as far as the runtime knows.
    fn is_silent(&mut self) -> bool {
        let mut cx = Context::from_waker(&self.waker);
        if self.transport.poll_read_ready(&mut cx).is_pending() {
            return true;
        }
        // The runtime's knowledge may be out of date.
        let read = self.exchange.poll_read(&mut cx, &mut self.transport);
        self.closed = read.is_ready();
        !self.closed
    }

    /// Whether the server has neither closed the connection nor sent anything as of now.
    pub(in crate::upstream) fn is_quiet(&self) -> bool {
        self.transport.is_quiet()
    }

    /// Frees memory that an idle connection does not need.
    pub(in crate::upstream) fn trim(&mut self) {
        self.exchange.trim();
    }

    /// Counts the connection as idle since `now_us`.
    pub(in crate::upstream) fn set_idle(&mut self, now_us: u64) {
        self.permit.set_busy(false);
        self.idle_since_us = now_us;
    }

    /// Counts the connection as in use.
    pub(in crate::upstream) fn set_busy(&mut self) {
        self.permit.set_busy(true);
    }

    /// When the connection became idle, on the upstream's clock.
    pub(in crate::upstream) fn idle_since_us(&self) -> u64 {
        self.idle_since_us
    }

    /// Closes the connection but keeps its permit.
    pub(in crate::upstream) fn close(self: Box<Self>) -> Permit {
        let connection = *self;
        connection.permit
    }

    /// Sends a request and waits for the final head. After a failure the connection must not be used
    /// again. Interim heads except 100 go to `interim`. `spare` gets the memory of the last head.
    pub(in crate::upstream) async fn send(
        &mut self,
        mut message: Message,
        limits: &Limits,
        spare: &mut Vec<u8>,
        mut interim: impl FnMut(Received),
    ) -> Result<Received, Failure> {
        let reused = self.uses > 0;
        self.uses += 1;
        if limits.is_last(self.uses) {
            self.reusable = false;
            // Not together with `upgrade`: an upgraded connection ends when its tunnel does.
            if !message.upgrade {
                message.head.extend_from_slice(b"connection: close\r\n");
            }
        }
        message.head.extend_from_slice(b"\r\n");
        let (upload, method) = (message.upload.clone(), message.method);
        *spare = self.exchange.begin(message.head, message.upload);
        let (read, written) = (self.transport.read_total(), self.transport.written_total());
        std::future::poll_fn(|cx| {
            self.forwarder.set_target(cx.waker());
            let (exchange, transport) = (&mut self.exchange, &mut self.transport);
            let mut cx = Context::from_waker(&self.waker);
            let polled = exchange.poll_head(&mut cx, transport, &method, limits, &mut interim);
            let polled = polled.map_err(|broken| match broken {
                Broken::Fault(fault) => fault,
                Broken::Closed => {
                    exchange.closed_early(&upload, reused && transport.read_total() == read)
                }
            });
            let result = match polled {
                Poll::Ready(result) => result,
                Poll::Pending => match exchange.watch_head(&mut cx, transport, limits) {
                    Some(late) => Err(late.into()),
                    None => return Poll::Pending,
                },
            };
            if let Ok(received) = &result {
                self.reusable &= received.keeps;
            }
            Poll::Ready(result.map_err(|mut fault: Fault| {
                let unsent = transport.written_total() == written && upload.is_whole();
                fault.retryable &= unsent;
                Failure { fault, unsent }
            }))
        })
        .await
    }

    /// The next step through the content that was received.
    pub(in crate::upstream) fn step(&mut self) -> Result<Step, Fault> {
        self.exchange.step()
    }

    /// Whether all content was taken.
    pub(in crate::upstream) fn has_ended(&self) -> bool {
        self.exchange.has_ended()
    }

    /// Whether all of this room may be filled with content directly from the transport.
    pub(in crate::upstream) fn may_fill(&self, room: &ReadBuf<'_>) -> bool {
        self.exchange.may_fill(room)
    }

    /// Sends what is left of the request and reads more of the content, into `room` if there is one,
    /// which `may_fill` allowed; 0 at the end of the connection. A fault if the connection broke or
    /// the request cannot be completed.
    pub(in crate::upstream) fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
        room: Option<&mut ReadBuf<'_>>,
    ) -> Poll<Result<usize, Fault>> {
        self.forwarder.set_target(cx.waker());
        let mut cx = Context::from_waker(&self.waker);
        let sent = self.exchange.poll_send(&mut cx, &mut self.transport);
        if let Poll::Ready(Err(fault)) = sent {
            self.reusable = false;
            return Poll::Ready(Err(fault));
        }
        self.exchange
            .poll_content(&mut cx, &mut self.transport, room)
    }

    /// Which limit the wait for more content has exceeded, if any. To be called whenever
    /// `poll_content` is pending.
    pub(in crate::upstream) fn watch_body(&mut self, limits: &Limits) -> Option<Reason> {
        let mut cx = Context::from_waker(&self.waker);
        self.exchange.watch_body(&mut cx, &self.transport, limits)
    }

    /// The server has closed the connection: a fault unless that is the content's end.
    pub(in crate::upstream) fn end(&mut self) -> Result<(), Fault> {
        self.closed = true;
        self.exchange.end_of_connection(&self.transport)
    }

    /// After 101: sends what is left of the request and takes the connection apart, into its byte
    /// stream, the bytes received after the head, and its permit.
    pub(in crate::upstream) async fn into_tunnel(
        mut self: Box<Self>,
        limits: &Limits,
    ) -> Result<(Transport, Bytes, Permit), Fault> {
        self.exchange.begin_drain();
        std::future::poll_fn(|cx| {
            self.forwarder.set_target(cx.waker());
            let mut cx = Context::from_waker(&self.waker);
            let sent = self
                .exchange
                .poll_drain(&mut cx, &mut self.transport, limits);
            Poll::Ready(ready!(sent))
        })
        .await?;
        let connection = *self;
        let early = connection.exchange.into_rest();
        Ok((connection.transport, early, connection.permit))
    }
}
