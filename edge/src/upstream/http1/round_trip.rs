//! One request and its response: sent, awaited and read, each step with its time limit.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::ReadBuf;

use super::incoming::{Incoming, Step};
use super::outgoing::Outgoing;
use super::response::Received;
use crate::handler::Fault;
use crate::http::Method;
use crate::reason::Reason;
use crate::sys::clock::timer_now;
use crate::upstream::deadline::Deadline;
use crate::upstream::options::Limits;
use crate::upstream::transport::Transport;
use crate::upstream::upload::Upload;

/// A request ready to be sent.
pub(in crate::upstream) struct Message {
    /// The head, without the empty line that ends it.
    pub(in crate::upstream) head: Vec<u8>,
    pub(in crate::upstream) upload: Upload,
    /// The request's method, on which the response's framing depends.
    pub(in crate::upstream) method: Method,
    /// Whether the request asks for another protocol.
    pub(in crate::upstream) upgrade: bool,
}

/// Why there is no response.
pub(in crate::upstream) struct Failure {
    pub(in crate::upstream) fault: Fault,
    /// Whether nothing of the request was written.
    pub(in crate::upstream) unsent: bool,
}

/// The state of one exchange. Its buffers serve the next exchange, too.
pub(super) struct RoundTrip {
    outgoing: Outgoing,
    incoming: Incoming,
    awaits: Awaits,
    deadline: Deadline,
}

/// The event for which an exchange waits, which decides how long it may wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaits {
    Nothing,
    /// The server to read on, after it has read this many bytes.
    Room(u64),
    /// The client to send on; downstream limits that time.
    Client,
    Head,
    Body,
}

/// The reason why the wait for a head ended.
pub(super) enum Broken {
    Fault(Fault),
    /// The server closed.
    Closed,
}

impl RoundTrip {
    pub(super) fn new() -> RoundTrip {
        RoundTrip {
            outgoing: Outgoing::default(),
            incoming: Incoming::new(),
            awaits: Awaits::Nothing,
            deadline: Deadline::none(),
        }
    }

    /// Begins with a complete head and its content; returns the memory of the last head.
    pub(super) fn begin(&mut self, head: Vec<u8>, upload: Upload) -> Vec<u8> {
        self.awaits = Awaits::Nothing;
        self.outgoing.load(head, upload)
    }

    /// Whether the request went out whole, its response came whole, and nothing came after it.
    pub(super) fn is_complete(&self) -> bool {
        self.outgoing.is_done() && self.incoming.is_clean()
    }

    /// Frees memory that an idle connection does not need.
    pub(super) fn trim(&mut self) {
        self.outgoing.trim();
        self.incoming.trim();
    }

    /// Reads whatever comes, for a connection that should get nothing.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
    ) -> Poll<io::Result<usize>> {
        self.incoming.poll_read(cx, transport)
    }

    /// Sends on and reads on, up to the final head. Interim heads except 100 go to `interim`.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        method: &Method,
        limits: &Limits,
        interim: &mut impl FnMut(Received),
    ) -> Poll<Result<Received, Broken>> {
        if let Poll::Ready(Err(fault)) = self.outgoing.poll(cx, transport) {
            return Poll::Ready(Err(Broken::Fault(fault)));
        }
        loop {
            match ready!(self.incoming.poll_read(cx, transport)) {
                Ok(n) if n > 0 => {}
                _ => return Poll::Ready(Err(Broken::Closed)),
            }
            while let Some(received) = self
                .incoming
                .head(method, limits.head)
                .map_err(Broken::Fault)?
            {
                match received.status {
                    101 | 200.. => return Poll::Ready(Ok(received)),
                    // Downstream handles Expect.
                    100 => {}
                    _ => interim(received),
                }
            }
        }
    }

    /// Why there is no head although the server has closed the connection. `stale`: it had been used
    /// before, and closed without a byte of this response.
    pub(super) fn closed_early(&self, upload: &Upload, stale: bool) -> Fault {
        if let Some(fault) = upload.fault() {
            return fault;
        }
        Fault::from(if stale {
            Reason::StaleConnection
        } else if !self.outgoing.has_gathered() {
            Reason::SendFailed
        } else {
            Reason::ClosedBeforeHead
        })
    }

    /// Which limit the wait for the response's head has exceeded, if any. To be called whenever
    /// nothing is ready.
    pub(super) fn watch_head(
        &mut self,
        cx: &mut Context<'_>,
        transport: &Transport,
        limits: &Limits,
    ) -> Option<Reason> {
        self.watch(Awaits::Head, Reason::HeadTimeout, cx, transport, limits)
    }

    /// As `watch_head`, for the next bytes of a body. While the client still sends, the origin may be
    /// waiting for it, which is not the origin's delay.
    pub(super) fn watch_body(
        &mut self,
        cx: &mut Context<'_>,
        transport: &Transport,
        limits: &Limits,
    ) -> Option<Reason> {
        self.watch(Awaits::Body, Reason::BodyTimeout, cx, transport, limits)
    }

    fn watch(
        &mut self,
        response: Awaits,
        late: Reason,
        cx: &mut Context<'_>,
        transport: &Transport,
        limits: &Limits,
    ) -> Option<Reason> {
        let (awaits, limit, cause) = if transport.is_write_blocked() {
            let room = Awaits::Room(transport.written_total());
            (room, Some(limits.send), Reason::SendFailed)
        } else if !self.outgoing.has_gathered() {
            (Awaits::Client, None, late)
        } else {
            (response, Some(limits.read), late)
        };
        self.is_late(awaits, limit, cx).then_some(cause)
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

    /// The next step through the content that was received.
    pub(super) fn step(&mut self) -> Result<Step, Fault> {
        let step = self.incoming.step();
        if let Ok(Step::Frame(_)) = step {
            self.awaits = Awaits::Nothing;
        }
        step
    }

    /// Whether all content was taken.
    pub(super) fn has_ended(&self) -> bool {
        self.incoming.has_ended()
    }

    /// Whether all of this room may be filled with content directly from the transport.
    pub(super) fn may_fill(&self, room: &ReadBuf<'_>) -> bool {
        self.incoming.may_fill(room)
    }

    /// Sends what is left of the request; a fault if it cannot be completed.
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

    /// Reads more of the content, into `room` if there is one, which `may_fill` allowed; 0 at the end
    /// of the connection.
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
        Poll::Ready(read.map_err(|_| Reason::BodyCut.into()))
    }

    /// The server has closed the connection: a fault unless that is the content's end.
    pub(super) fn end_of_connection(&mut self, transport: &Transport) -> Result<(), Fault> {
        // A refused write may have consumed the error by which a read would learn of a reset.
        match transport.is_write_broken() && !self.has_ended() {
            true => Err(Reason::BodyCut.into()),
            false => self.incoming.close(),
        }
    }

    /// After 101: sends what is left of the request, within the limit for sending.
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

    /// Before `poll_drain` is polled for the first time.
    pub(super) fn begin_drain(&mut self) {
        self.awaits = Awaits::Nothing;
    }

    /// Bytes that were read and not used.
    pub(super) fn into_rest(self) -> bytes::Bytes {
        self.incoming.into_rest()
    }
}
