//! One connection to an origin server and the exchange that goes over it.
//!
//! hyper's connection is not a task of its own: whoever awaits the response or polls its content
//! polls the connection along the way. That saves a task switch for each head and each chunk, and
//! abandoning an exchange is simply dropping its link.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;

use super::deadline::Deadline;
use super::io::{Io, Tunnel, Wire};
use super::pool::Seat;
use super::relay::{Relay, muted};
use super::upload::Upload;
use super::{Limits, READ_BUFFER};
use crate::handler::{Cause, Fault};
use crate::sys::clock::timer_now;

/// A connection.
pub(super) struct Link {
    sender: SendRequest<Upload>,
    connection: Connection<Io, Upload>,
    wire: Rc<Wire>,
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

/// Why there is no response.
pub(super) struct Failure {
    pub(super) fault: Fault,
    /// The request, if nothing of it was written.
    pub(super) unsent: Option<http::Request<Upload>>,
}

impl Link {
    /// Over a fresh socket.
    pub(super) async fn new(
        stream: TcpStream,
        seat: Seat,
        limits: &Limits,
    ) -> Result<Box<Link>, Fault> {
        let wire = Wire::new(stream);
        let (sender, connection) = Builder::new()
            .max_buf_size(READ_BUFFER.max(limits.head))
            .max_header_size(limits.head)
            .handshake(Io(wire.clone()))
            .await
            .map_err(|_| Fault::from(Cause::ConnectFailed))?;
        let (relay, waker) = Relay::new();
        Ok(Box::new(Link {
            sender,
            connection,
            wire,
            relay,
            waker,
            deadline: Deadline::none(),
            awaits: Awaits::Nothing,
            closed: false,
            reusable: true,
            uses: 0,
            idle_since_us: 0,
            seat,
        }))
    }

    /// The server's address.
    pub(super) fn peer(&self) -> Option<std::net::SocketAddr> {
        self.wire.peer
    }

    /// Drives the connection; ready when it is closed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.closed {
            return Poll::Ready(());
        }
        self.relay.aim(cx.waker());
        let mut relayed = Context::from_waker(&self.waker);
        match self.connection.poll_without_shutdown(&mut relayed) {
            Poll::Pending => Poll::Pending,
            // What went wrong is told through the response or its body.
            Poll::Ready(_) => {
                self.closed = true;
                Poll::Ready(())
            }
        }
    }

    /// Whether another request may be sent as far as is known: the last one went out whole, its
    /// response came whole, and nothing came after it.
    pub(super) fn is_idle(&self) -> bool {
        self.reusable && !self.closed && !self.wire.write_broken.get() && self.sender.is_ready()
    }

    /// `is_idle` after looking again; `cx` is woken when the server closes or sends something.
    pub(super) fn poll_idle(&mut self, cx: &mut Context<'_>) -> bool {
        self.poll(cx).is_pending() && self.is_idle()
    }

    /// Nobody polls the connection for now; `waker` is woken when something happens on it.
    pub(super) fn rest(&self, waker: &Waker) {
        self.relay.aim(waker);
    }

    /// Whether the server has not closed the connection as of now.
    pub(super) fn is_quiet(&self) -> bool {
        self.wire.is_quiet()
    }

    /// Sends a request and waits for the final head. On failure the connection is of no more use.
    pub(super) async fn send(
        &mut self,
        mut message: http::Request<Upload>,
        limits: &Limits,
    ) -> Result<http::Response<Incoming>, Failure> {
        let reused = self.uses > 0;
        self.uses += 1;
        if limits.is_last(self.uses) {
            self.reusable = false;
            // Not beside `upgrade`: an upgraded connection ends when its tunnel does.
            if !message.headers().contains_key(UPGRADE) {
                let close = HeaderValue::from_static("close");
                message.headers_mut().append(CONNECTION, close);
            }
        }
        let upload = message.body().clone();
        let read_before = self.wire.read.get();
        self.awaits = Awaits::Nothing;
        // Looked at right after the connection was polled: neither its wake-ups nor a share of the
        // task's budget is needed.
        let sending = muted(|| self.sender.try_send_request(message));
        let mut sending = pin!(unconstrained(sending));
        std::future::poll_fn(|cx| {
            let closed = self.poll(cx).is_ready();
            let mut unheard = Context::from_waker(Waker::noop());
            if let Poll::Ready(sent) = sending.as_mut().poll(&mut unheard) {
                return Poll::Ready(sent.map_err(|mut e| {
                    let unsent = e.take_message();
                    let mut fault = self.fault(&e.into_error(), &upload, reused, read_before);
                    fault.retryable &= unsent.is_some();
                    Failure { fault, unsent }
                }));
            }
            let late = if closed {
                Some(Cause::ClosedBeforeHead)
            } else {
                self.watch(cx, &upload, limits)
            };
            match late {
                Some(cause) => Poll::Ready(Err(Failure {
                    fault: cause.into(),
                    unsent: None,
                })),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Sees to it that no wait before the head lasts too long.
    fn watch(&mut self, cx: &mut Context<'_>, upload: &Upload, limits: &Limits) -> Option<Cause> {
        let (awaits, limit, cause) = if self.wire.write_blocked.get() {
            let written = self.wire.written.get();
            (Awaits::Room(written), Some(limits.send), Cause::SendFailed)
        } else if !upload.is_done() {
            (Awaits::Client, None, Cause::HeadTimeout)
        } else {
            (Awaits::Head, Some(limits.read), Cause::HeadTimeout)
        };
        self.is_late(cx, awaits, limit).then_some(cause)
    }

    /// Sees to it that the next frame of a body does not take too long.
    pub(super) fn watch_body(&mut self, cx: &mut Context<'_>, limit: Duration) -> Option<Cause> {
        self.is_late(cx, Awaits::Body, Some(limit))
            .then_some(Cause::BodyTimeout)
    }

    /// What was waited for has come.
    pub(super) fn progressed(&mut self) {
        self.awaits = Awaits::Nothing;
    }

    fn is_late(&mut self, cx: &mut Context<'_>, awaits: Awaits, limit: Option<Duration>) -> bool {
        let now = timer_now();
        if self.awaits != awaits {
            self.awaits = awaits;
            self.deadline
                .set(limit.and_then(|limit| now.checked_add(limit)));
        }
        self.relay.aim(cx.waker());
        let mut relayed = Context::from_waker(&self.waker);
        self.deadline.poll(now, &mut relayed)
    }

    fn fault(&self, e: &hyper::Error, upload: &Upload, reused: bool, read_before: u64) -> Fault {
        if let Some(fault) = upload.fault() {
            return fault;
        }
        let silent = self.wire.read.get() == read_before;
        Fault::from(if e.is_parse() {
            Cause::BadHead
        } else if reused && silent && !e.is_user() {
            Cause::StaleConnection
        } else if e.is_user() || !upload.is_done() {
            Cause::SendFailed
        } else {
            Cause::ClosedBeforeHead
        })
    }

    /// Closes the connection but keeps its place.
    pub(super) fn abandon(self: Box<Self>) -> Seat {
        let link = *self;
        link.seat
    }

    /// After 101: waits until the connection is out of HTTP and hands it over.
    pub(super) async fn into_tunnel(mut self: Box<Self>, limits: &Limits) -> Result<Tunnel, Fault> {
        self.awaits = Awaits::Nothing;
        std::future::poll_fn(|cx| {
            if self.poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            match self.is_late(cx, Awaits::Head, Some(limits.send)) {
                true => Poll::Ready(Err(Fault::from(Cause::SendFailed))),
                false => Poll::Pending,
            }
        })
        .await?;
        let link = *self;
        let parts = link.connection.into_parts();
        Ok(Tunnel::new(parts.io.0, parts.read_buf, link.seat))
    }
}
