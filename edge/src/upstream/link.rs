//! One connection to an origin server and the exchange that goes over it.
//!
//! A connection is not a task of its own: whoever awaits the response or polls its content drives
//! it along the way. That saves a task switch for each head and each chunk, and abandoning an
//! exchange is simply dropping its link.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use super::Limits;
use super::deadline::Deadline;
use super::incoming::{Incoming, Step};
use super::io::{Tunnel, Wire};
use super::outgoing::Outgoing;
use super::pool::Seat;
use super::relay::Relay;
use super::response::Received;
use super::upload::Upload;
use crate::handler::{Cause, Fault};
use crate::http::Method;
use crate::sys::clock::timer_now;

/// A connection.
pub(super) struct Link {
    wire: Wire,
    outgoing: Outgoing,
    incoming: Incoming,
    relay: Arc<Relay>,
    waker: Waker,
    deadline: Deadline,
    awaits: Awaits,
    closed: bool,
    /// Whether nothing speaks against another request on this connection.
    pub(super) reusable: bool,
    /// Requests sent so far.
    pub(super) uses: u64,
    /// When it became idle, on the upstream's clock.
    pub(super) idle_since_us: u64,
    /// Its place among the server's connections. The last field: the socket closes first.
    pub(super) seat: Seat,
}

/// What an exchange waits for, which decides how long it may.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaits {
    Nothing,
    /// The server to read on, having read this much.
    Room(u64),
    /// The client to send on; its patience is downstream's.
    Client,
    Head,
    Body,
}

/// A request ready to be sent.
pub(super) struct Message {
    /// The head, without the empty line that ends it.
    pub(super) head: Vec<u8>,
    pub(super) upload: Upload,
    /// What is asked; the response's framing depends on it.
    pub(super) method: Method,
    /// Whether it asks for another protocol.
    pub(super) upgrade: bool,
}

/// Why there is no response.
pub(super) struct Failure {
    pub(super) fault: Fault,
    /// Whether nothing of the request was written.
    pub(super) unsent: bool,
}

impl Link {
    /// Over a fresh socket.
    pub(super) fn new(stream: TcpStream, seat: Seat) -> Box<Link> {
        let (relay, waker) = Relay::new();
        Box::new(Link {
            wire: Wire::new(stream),
            outgoing: Outgoing::default(),
            incoming: Incoming::new(),
            relay,
            waker,
            deadline: Deadline::none(),
            awaits: Awaits::Nothing,
            closed: false,
            reusable: true,
            uses: 0,
            idle_since_us: 0,
            seat,
        })
    }

    /// The server's address.
    pub(super) fn peer(&self) -> Option<std::net::SocketAddr> {
        self.wire.peer
    }

    /// Whether another request may be sent as far as is known: the last one went out whole, its
    /// response came whole, and nothing came after it.
    pub(super) fn is_idle(&self) -> bool {
        self.reusable
            && !self.closed
            && !self.wire.write_broken
            && self.outgoing.is_done()
            && self.incoming.is_clean()
    }

    /// `is_idle` after looking again; `waker` is woken when the server closes or sends something.
    pub(super) fn rests(&mut self, waker: &Waker) -> bool {
        if !self.is_idle() {
            return false;
        }
        self.relay.aim(waker);
        self.is_silent()
    }

    /// Whether the server has neither closed nor sent anything as far as the runtime knows.
    fn is_silent(&mut self) -> bool {
        let mut relayed = Context::from_waker(&self.waker);
        if self.wire.stream.poll_read_ready(&mut relayed).is_pending() {
            return true;
        }
        // What the runtime knows may be out of date.
        self.closed = self
            .incoming
            .poll_read(&mut relayed, &mut self.wire)
            .is_ready();
        !self.closed
    }

    /// Gives memory back before resting.
    pub(super) fn trim(&mut self) {
        self.outgoing.rest();
        self.incoming.rest();
    }

    /// Whether the server has neither closed the connection nor sent anything as of now.
    pub(super) fn is_quiet(&self) -> bool {
        self.wire.is_quiet()
    }

    /// Sends a request and waits for the final head. On failure the connection is of no more use.
    /// Interim heads but 100 go to `interim`. `spare` gets memory of the last head.
    pub(super) async fn send(
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
            // Not beside `upgrade`: an upgraded connection ends when its tunnel does.
            if !message.upgrade {
                message.head.extend_from_slice(b"connection: close\r\n");
            }
        }
        message.head.extend_from_slice(b"\r\n");
        let (upload, method) = (message.upload.clone(), message.method);
        *spare = self.outgoing.load(message.head, message.upload);
        let before = (self.wire.read, self.wire.written);
        self.awaits = Awaits::Nothing;
        std::future::poll_fn(|cx| {
            self.relay.aim(cx.waker());
            let polled = self.poll_head(&method, limits, &mut interim);
            let polled = polled.map_err(|broken| match broken {
                Broken::Fault(fault) => fault,
                Broken::Closed => self.closed_early(&upload, reused && self.wire.read == before.0),
            });
            let result = match polled {
                Poll::Ready(result) => result,
                Poll::Pending => match self.watch(Awaits::Head, limits) {
                    Some(late) => Err(late.into()),
                    None => return Poll::Pending,
                },
            };
            Poll::Ready(result.map_err(|mut fault: Fault| {
                let unsent = self.wire.written == before.1 && upload.is_whole();
                fault.retryable &= unsent;
                Failure { fault, unsent }
            }))
        })
        .await
    }

    /// Sends on and reads on, up to the final head.
    fn poll_head(
        &mut self,
        method: &Method,
        limits: &Limits,
        interim: &mut impl FnMut(Received),
    ) -> Poll<Result<Received, Broken>> {
        let mut relayed = Context::from_waker(&self.waker);
        if let Poll::Ready(Err(fault)) = self.outgoing.poll(&mut relayed, &mut self.wire) {
            return Poll::Ready(Err(Broken::Fault(fault)));
        }
        loop {
            match ready!(self.incoming.poll_read(&mut relayed, &mut self.wire)) {
                Ok(n) if n > 0 => {}
                _ => return Poll::Ready(Err(Broken::Closed)),
            }
            while let Some(received) = self
                .incoming
                .head(method, limits.head)
                .map_err(Broken::Fault)?
            {
                match received.status {
                    101 | 200.. => {
                        self.reusable &= received.keeps;
                        return Poll::Ready(Ok(received));
                    }
                    // Expect is downstream's business.
                    100 => {}
                    _ => interim(received),
                }
            }
        }
    }

    /// Why there is no head although the server has closed.
    fn closed_early(&self, upload: &Upload, stale: bool) -> Fault {
        if let Some(fault) = upload.fault() {
            return fault;
        }
        Fault::from(if stale {
            Cause::StaleConnection
        } else if !self.outgoing.has_gathered() {
            Cause::SendFailed
        } else {
            Cause::ClosedBeforeHead
        })
    }

    /// Sees to it that no wait lasts too long; `response` is what is awaited of it.
    fn watch(&mut self, response: Awaits, limits: &Limits) -> Option<Cause> {
        let late = match response {
            Awaits::Body => Cause::BodyTimeout,
            _ => Cause::HeadTimeout,
        };
        let (awaits, limit, cause) = if self.wire.write_blocked {
            let written = self.wire.written;
            (Awaits::Room(written), Some(limits.send), Cause::SendFailed)
        } else if !self.outgoing.has_gathered() {
            (Awaits::Client, None, late)
        } else {
            (response, Some(limits.read), late)
        };
        self.is_late(awaits, limit).then_some(cause)
    }

    /// The next step through the content that was received.
    pub(super) fn step(&mut self) -> Result<Step, Fault> {
        let step = self.incoming.step();
        if let Ok(Step::Frame(_)) = step {
            self.awaits = Awaits::Nothing;
        }
        step
    }

    /// Sends what is left of the request and reads more of the content; 0 at the end, and a fault
    /// when the connection broke or the request cannot be completed.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Fault>> {
        self.poll_content(cx, |incoming, cx, wire| incoming.poll_read(cx, wire))
    }

    /// As `poll_more`, but the content goes straight to `room`, which `may_fill` allowed.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<Result<usize, Fault>> {
        self.poll_content(cx, |incoming, cx, wire| incoming.poll_fill(cx, wire, room))
    }

    /// Whether all of this room may be filled with content straight from the wire.
    pub(super) fn may_fill(&self, room: &ReadBuf<'_>) -> bool {
        self.incoming.may_fill(room)
    }

    fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
        read: impl FnOnce(&mut Incoming, &mut Context<'_>, &mut Wire) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<usize, Fault>> {
        self.relay.aim(cx.waker());
        let mut relayed = Context::from_waker(&self.waker);
        if !self.outgoing.is_done()
            && let Poll::Ready(Err(fault)) = self.outgoing.poll(&mut relayed, &mut self.wire)
        {
            self.reusable = false;
            return Poll::Ready(Err(fault));
        }
        let read = ready!(read(&mut self.incoming, &mut relayed, &mut self.wire));
        self.awaits = Awaits::Nothing;
        Poll::Ready(read.map_err(|_| Cause::BodyCut.into()))
    }

    /// The server has closed: whether that is the content's end.
    pub(super) fn close(&mut self) -> Result<(), Fault> {
        self.closed = true;
        // A write that the server refused may have taken the news of a reset with it.
        match self.wire.write_broken && !self.has_ended() {
            true => Err(Cause::BodyCut.into()),
            false => self.incoming.close(),
        }
    }

    /// Whether all content was taken.
    pub(super) fn has_ended(&self) -> bool {
        self.incoming.has_ended()
    }

    /// Sees to it that the next bytes of a body do not take too long. While the client still sends,
    /// the origin may be waiting for it.
    pub(super) fn watch_body(&mut self, limits: &Limits) -> Option<Cause> {
        self.watch(Awaits::Body, limits)
    }

    fn is_late(&mut self, awaits: Awaits, limit: Option<Duration>) -> bool {
        let now = timer_now();
        if self.awaits != awaits {
            self.awaits = awaits;
            self.deadline
                .set(limit.and_then(|limit| now.checked_add(limit)));
        }
        let mut relayed = Context::from_waker(&self.waker);
        self.deadline.poll(now, &mut relayed)
    }

    /// Closes the connection but keeps its place.
    pub(super) fn abandon(self: Box<Self>) -> Seat {
        let link = *self;
        link.seat
    }

    /// After 101: sends what is left of the request and hands the connection over.
    pub(super) async fn into_tunnel(mut self: Box<Self>, limits: &Limits) -> Result<Tunnel, Fault> {
        self.awaits = Awaits::Nothing;
        std::future::poll_fn(|cx| {
            self.relay.aim(cx.waker());
            let mut relayed = Context::from_waker(&self.waker);
            if let Poll::Ready(sent) = self.outgoing.poll(&mut relayed, &mut self.wire) {
                return Poll::Ready(sent);
            }
            match self.is_late(Awaits::Head, Some(limits.send)) {
                true => Poll::Ready(Err(Fault::from(Cause::SendFailed))),
                false => Poll::Pending,
            }
        })
        .await?;
        let link = *self;
        Ok(Tunnel::new(link.wire, link.incoming.into_rest(), link.seat))
    }
}

/// What ended the wait for a head.
enum Broken {
    Fault(Fault),
    /// The server closed.
    Closed,
}
