//! Sends one request and receives its response, with a time limit for each step.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::ReadBuf;

use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::request;
use super::response::Parsed;
use crate::handler::Fault;
use crate::http::{Method, Version};
use crate::reason::Reason;
use crate::sys::clock::timer_now;
use crate::upstream::deadline::Deadline;
use crate::upstream::inbound::{Received, Step};
use crate::upstream::options::Limits;
use crate::upstream::outbound::Outbound;
use crate::upstream::pace::Pace;
use crate::upstream::transport::Transport;
use crate::upstream::upload::Upload;

/// The state of one exchange. Its buffers are reused by the next exchange.
pub(super) struct RoundTrip {
    outgoing: Outgoing,
    incoming: Incoming,
    /// Whether the server sent something before the whole content of the request was written.
    answered_early: bool,
    awaits: Awaits,
    deadline: Deadline,
    pace: Pace,
    /// Whether content without a declared length has to arrive at the minimum rate, too.
    is_rated: bool,
}

/// The event for which an exchange waits, which determines the timeout that applies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaits {
    Nothing,
    /// The server reads on. The number counts the bytes that it had read when the wait began.
    Room(u64),
    /// The client sends more content. Downstream limits this time.
    Client,
    Head,
    Body,
}

/// Reason for which the wait for a head ended without a head.
pub(super) enum Broken {
    Fault(Fault),
    /// The server closed the connection.
    Closed,
}

impl RoundTrip {
    pub(super) fn new() -> RoundTrip {
        RoundTrip {
            outgoing: Outgoing::default(),
            incoming: Incoming::new(),
            answered_early: false,
            awaits: Awaits::Nothing,
            deadline: Deadline::none(),
            pace: Pace::default(),
            is_rated: false,
        }
    }

    /// Begins an exchange in this version of HTTP/1. `last`: the connection is closed after this exchange, which the request
    /// announces to the server.
    pub(super) fn begin(&mut self, outbound: &Outbound<'_>, version: Version, last: bool) {
        self.awaits = Awaits::Nothing;
        self.pace = Pace::default();
        self.is_rated = false;
        self.answered_early = false;
        let head = self.outgoing.load(outbound.upload.clone());
        request::render(outbound, version, last, head);
    }

    /// Whether the request was sent completely, after that its response received completely, and
    /// nothing received after the response. A server that responds before it has the whole content
    /// may not read the rest, and take that for the next request (RFC 9112 9.3).
    pub(super) fn is_complete(&self) -> bool {
        self.outgoing.is_done() && self.incoming.is_clean() && !self.answered_early
    }

    /// Frees memory that an idle connection does not need.
    pub(super) fn trim(&mut self) {
        self.outgoing.trim();
        self.incoming.trim();
    }

    /// Reads from a connection on which nothing is expected. Ready if the server has sent bytes or
    /// closed.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
    ) -> Poll<io::Result<usize>> {
        self.incoming.poll_read(cx, transport)
    }

    /// Sends the request and reads the response up to the final head. Interim heads except 100 are
    /// passed to `interim`.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        method: &Method,
        limits: &Limits,
        interim: &mut impl FnMut(Received),
    ) -> Poll<Result<Parsed, Broken>> {
        self.answered_early |= self.outgoing.is_uploading()
            && transport.poll_read_ready(cx).is_ready()
            && !transport.is_quiet();
        if let Poll::Ready(Err(fault)) = self.outgoing.poll(cx, transport) {
            return Poll::Ready(Err(Broken::Fault(fault)));
        }
        loop {
            match ready!(self.incoming.poll_read(cx, transport)) {
                Ok(n) if n > 0 => self.answered_early |= self.outgoing.is_uploading(),
                _ => return Poll::Ready(Err(Broken::Closed)),
            }
            while let Some(parsed) = self
                .incoming
                .head(method, limits.head)
                .map_err(Broken::Fault)?
            {
                match parsed.head.status {
                    101 | 200.. => return Poll::Ready(Ok(parsed)),
                    // A 100 is not passed on, since downstream itself handles Expect.
                    100 => {}
                    _ => interim(parsed.head),
                }
            }
        }
    }

    /// Whether more content of the request is awaited from the client.
    pub(super) fn awaits_client(&self, transport: &Transport) -> bool {
        !self.outgoing.has_taken_all() && !transport.is_write_blocked()
    }

    /// Whether the server answers in HTTP/2.
    pub(super) fn gets_http2(&self) -> bool {
        self.incoming.is_http2()
    }

    /// Returns the fault if the server has closed the connection before the head. `stale`: the
    /// connection had been used before, and was closed without a byte of this response.
    pub(super) fn closed_early(&self, upload: &Upload, stale: bool) -> Fault {
        if let Some(fault) = upload.fault() {
            return fault;
        }
        Fault::from(if stale {
            Reason::StaleConnection
        } else if !self.outgoing.has_taken_all() {
            Reason::SendFailed
        } else {
            Reason::ClosedBeforeHead
        })
    }

    /// Returns the timeout that the wait for the response's head has exceeded, if any. Must be
    /// called whenever nothing is ready.
    pub(super) fn watch_head(
        &mut self,
        cx: &mut Context<'_>,
        transport: &Transport,
        limits: &Limits,
    ) -> Option<Reason> {
        self.watch(Awaits::Head, Reason::HeadTimeout, cx, transport, limits)
    }

    /// Returns the timeout that the wait for the next bytes of a body has exceeded, if any. While
    /// the client still sends, no timeout applies to the origin, which may be waiting for the
    /// client. Content with a declared length must also arrive at the minimum rate. Without one, long
    /// pauses may be intended, as in server-sent events, unless `require_rate` was called.
    pub(super) fn watch_body(
        &mut self,
        cx: &mut Context<'_>,
        transport: &Transport,
        limits: &Limits,
    ) -> Option<Reason> {
        self.watch(Awaits::Body, Reason::BodyTimeout, cx, transport, limits)
    }

    /// Requires the minimum rate of content without a declared length, too.
    pub(super) fn require_rate(&mut self) {
        self.is_rated = true;
    }

    fn watch(
        &mut self,
        response: Awaits,
        late: Reason,
        cx: &mut Context<'_>,
        transport: &Transport,
        limits: &Limits,
    ) -> Option<Reason> {
        let (awaits, limit, reason) = if transport.is_write_blocked() {
            let room = Awaits::Room(transport.written_total());
            (room, Some(limits.send), Reason::SendFailed)
        } else if self.awaits_client(transport) {
            (Awaits::Client, None, late)
        } else if response == Awaits::Body && (self.is_rated || self.incoming.is_sized()) {
            let longest = self.pace.wait(limits.min_rate, limits.read, timer_now());
            (response, Some(longest), late)
        } else {
            (response, Some(limits.read), late)
        };
        self.is_late(awaits, limit, cx).then_some(reason)
    }

    fn is_late(&mut self, awaits: Awaits, limit: Option<Duration>, cx: &mut Context<'_>) -> bool {
        let now = timer_now();
        if self.awaits != awaits {
            self.awaits = awaits;
            self.deadline
                .set(limit.and_then(|limit| now.checked_add(limit)));
        }
        self.deadline.poll(now, cx)
    }

    /// Takes the next frame out of the received bytes of content.
    pub(super) fn step(&mut self) -> Result<Step, Fault> {
        let step = self.incoming.step();
        if let Ok(Step::Frame(_)) = step {
            self.awaits = Awaits::Nothing;
        }
        step
    }

    /// Whether all content has been taken.
    pub(super) fn has_ended(&self) -> bool {
        self.incoming.has_ended()
    }

    /// Whether `room` may be filled with content directly from the transport: no buffered bytes
    /// come first, and at least as many bytes of content follow as fit.
    pub(super) fn may_fill(&self, room: &ReadBuf<'_>) -> bool {
        self.incoming.may_fill(room)
    }

    /// Sends the unsent rest of the request. Fails if the request cannot be completed.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
    ) -> Poll<Result<(), Fault>> {
        match self.outgoing.is_done() {
            true => Poll::Ready(Ok(())),
            false => self.outgoing.poll(cx, transport),
        }
    }

    /// Reads more content: into `room` if given, which `may_fill` must have allowed. Returns the
    /// number of bytes, 0 when the server has closed the connection.
    pub(super) fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        room: Option<&mut ReadBuf<'_>>,
    ) -> Poll<Result<usize, Fault>> {
        let read = ready!(match room {
            Some(room) => self.incoming.poll_fill(cx, transport, room),
            None => self.incoming.poll_read(cx, transport),
        });
        self.awaits = Awaits::Nothing;
        if let Ok(n) = read {
            self.pace.arrived(n, timer_now);
        }
        Poll::Ready(read.map_err(|_| Reason::BodyCut.into()))
    }

    /// Handles that the server has closed the connection: a fault unless the close is the content's
    /// regular end.
    pub(super) fn end_of_connection(&mut self, transport: &Transport) -> Result<(), Fault> {
        // A failed write may have consumed the socket error that a read would return for a reset,
        // so the close may be a reset.
        match transport.is_write_broken() && !self.has_ended() {
            true => Err(Reason::BodyCut.into()),
            false => self.incoming.close(),
        }
    }

    /// After a 101: sends the unsent rest of the request, within the timeout for sending.
    pub(super) fn poll_drain(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        limits: &Limits,
    ) -> Poll<Result<(), Fault>> {
        if let Poll::Ready(sent) = self.outgoing.poll(cx, transport) {
            return Poll::Ready(sent);
        }
        match self.is_late(Awaits::Head, Some(limits.send), cx) {
            true => Poll::Ready(Err(Fault::from(Reason::SendFailed))),
            false => Poll::Pending,
        }
    }

    /// Resets the timeout. Must be called before `poll_drain` is polled for the first time.
    pub(super) fn begin_drain(&mut self) {
        self.awaits = Awaits::Nothing;
    }

    /// Returns the bytes that were read and not used.
    pub(super) fn into_rest(self) -> bytes::Bytes {
        self.incoming.into_rest()
    }
}
