//! One request and response on an HTTP/1 connection: drives an exchange, frames its response, and
//! decides whether the connection persists.
//!
//! A cycle is on the stack until it has to wait, and is boxed then. The cycle of a refused request is always boxed.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::downstream::Refusal;
use crate::downstream::connection::Connection;
use crate::downstream::deadlines::NEVER;
use crate::downstream::exchange::{Exchange, Expired, RefusedRequest, ResponseHead};
use crate::downstream::lingering::DISCARD_BYTES_MAX;
use crate::downstream::turn::{Turn, yield_turn};
use crate::downstream::worker::Serving;
use crate::handler::{Fault, Head, Peer, Response};
use crate::http::Version;
use crate::reason::Reason;

use super::body_writer::{BodyWriter, Step};
use super::framing_headers::Framing;
use super::render::{self, Delivery, Persistence};
use super::request_body::{self, RequestBody};
use super::tunnel::Tunnel;
use crate::downstream::outbox::Outbox;

/// The parts of a request head that affect the framing of its response and the persistence of its
/// connection.
pub struct CycleOptions {
    /// The client's HTTP version.
    pub version: Version,
    /// Whether another request may follow on this connection.
    pub keep_alive: bool,
    /// Whether the client may still be sending when the connection is closed.
    pub lingers: bool,
    /// Whether the client accepts trailers.
    pub takes_trailers: bool,
}

/// One request and its response on an HTTP/1 connection.
pub struct Cycle {
    pub(super) exchange: Exchange,
    pub(super) body: RequestBody,
    pub(super) keep_alive: bool,
    pub(super) lingers: bool,
    version: Version,
    takes_trailers: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    owes_continue: bool,
    /// Whether the client has closed its sending direction, as `half_close` permits.
    pub(super) input_ended: bool,
    pub(super) stage: Stage,
    /// Whether the handler wants to know how much of the content the client has received.
    has_receipt: bool,
    out: Outbox,
}

pub(super) enum Stage {
    /// The handler has not returned the response yet.
    Awaiting,
    /// The response is being sent.
    Sending(BodyWriter),
    /// The response has been sent. The rest of the request is read and discarded, at most this many
    /// bytes.
    Discarding(u64),
    /// The server has closed its sending direction. The client may still be sending.
    Lingering {
        /// Most bytes that are still read and discarded.
        left: u64,
        /// Tick at which the connection is closed.
        until: u32,
    },
    /// The connection is upgraded: bytes are copied in both directions.
    Tunnelling(Box<Tunnel>),
}

/// The step that follows a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The connection waits for another request.
    Request,
    /// The connection is closed.
    Close,
}

pub(super) enum Progress {
    Again,
    Yield,
    Wait,
    Then(Next),
}

impl Cycle {
    /// Creates the cycle of a request whose exchange has not been started.
    ///
    /// A cycle is large, so it is built in its final place in memory. `out` is created by the caller, since a panic
    /// between the creation of two parts would force the compiler to build these elsewhere and copy them.
    #[inline(always)]
    pub fn new(exchange: Exchange, out: Outbox, options: &CycleOptions) -> Cycle {
        Cycle {
            exchange,
            body: RequestBody::none(),
            keep_alive: options.keep_alive,
            lingers: options.lingers,
            version: options.version,
            takes_trailers: options.takes_trailers,
            owes_continue: false,
            input_ended: false,
            stage: Stage::Awaiting,
            has_receipt: false,
            out,
        }
    }

    /// Passes a valid request to its handler.
    #[inline]
    pub fn start(
        &mut self,
        connection: &mut Connection,
        head: Head,
        peer: Peer,
        framing: Framing,
        expects_continue: bool,
    ) {
        let body;
        (body, self.body) = request_body::receive(connection, &mut self.exchange, framing);
        self.owes_continue = expects_continue && self.exchange.intake.is_some();
        if let Some(response) = &mut self.exchange.start(head, body, peer) {
            self.send(response, connection);
            self.begin_receipt(response, connection);
        }
    }

    /// Begins the cycle of a refused request, after which the connection is closed.
    pub fn refuse(
        connection: &Connection,
        serving: Rc<Serving>,
        request: RefusedRequest<'_>,
        refusal: Refusal,
    ) -> Cycle {
        let cycle_options = CycleOptions {
            version: Version::Http11,
            keep_alive: false,
            lingers: true,
            takes_trailers: false,
        };
        let (exchange, mut response) = Exchange::refused(
            &connection.worker,
            serving,
            connection.peer,
            request,
            refusal,
        );
        let mut cycle = Cycle::new(exchange, Outbox::pooled(), &cycle_options);
        cycle.send(&mut response, connection);
        cycle
    }

    /// Runs the cycle until it has to wait or ends.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        turn: &mut Turn,
    ) -> Poll<Next> {
        loop {
            self.feed_intake(cx, connection, turn);
            self.exchange.timeouts.awaits_client_reads = false;
            match self.advance(cx, connection, turn) {
                Progress::Again => {}
                Progress::Then(next) => return Poll::Ready(next),
                Progress::Yield => {
                    yield_turn(cx);
                    break;
                }
                Progress::Wait => break,
            }
        }
        self.check_deadline(cx, connection, turn)
    }

    fn advance(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        turn: &mut Turn,
    ) -> Progress {
        match &mut self.stage {
            Stage::Awaiting => self.await_response(cx, connection, turn),
            Stage::Sending(_) => self.send_content(cx, connection, turn),
            Stage::Discarding(_) => self.discard(cx, connection, turn),
            Stage::Lingering { .. } => self.linger(cx, connection),
            Stage::Tunnelling(tunnel) => {
                // 1xx heads and the head of the 101 have to be sent before the bytes of the tunnel.
                if !self.out.is_empty() {
                    return match self.out.poll_flush(cx, connection, turn) {
                        Poll::Ready(Ok(())) => Progress::Again,
                        Poll::Ready(Err(_)) => Progress::Then(Next::Close),
                        Poll::Pending => Progress::Wait,
                    };
                }
                match tunnel.poll(cx, connection) {
                    Poll::Ready(()) => {
                        let sent = tunnel.bytes_to_client();
                        self.exchange.record.note_sent(sent);
                        self.exchange.record.complete = true;
                        Progress::Then(Next::Close)
                    }
                    Poll::Pending => Progress::Wait,
                }
            }
        }
    }

    /// Moves input of the connection into the request body's queue, as long as the reader wants
    /// more.
    fn feed_intake(&mut self, cx: &mut Context<'_>, connection: &mut Connection, turn: &mut Turn) {
        self.exchange.timeouts.awaits_client_data = false;
        let Some(intake) = &mut self.exchange.intake else {
            return;
        };
        if !matches!(self.stage, Stage::Awaiting | Stage::Sending(_)) || self.body.is_complete() {
            return;
        }
        while intake.poll_room(cx).is_ready() && !turn.is_spent() {
            if self.owes_continue && connection.input().is_empty() {
                self.owes_continue = false;
                if let Stage::Awaiting = self.stage {
                    self.out.text(|t| render::interim(t, 100, b""));
                }
            }
            if !connection.input().is_empty() {
                self.owes_continue = false;
                let Ok(used) = self.body.take(intake, connection.input()) else {
                    // The rest of the body cannot be decoded, so the beginning of the next request
                    // is unknown.
                    self.keep_alive = false;
                    self.lingers = true;
                    return;
                };
                connection.consume(used);
                turn.read(used);
                continue;
            }
            match connection.poll_fill(cx) {
                Poll::Ready(Ok(n)) if n > 0 => {
                    let now = connection.worker.deadlines.now();
                    self.exchange.timeouts.received(now, n);
                }
                Poll::Ready(_) => return intake.fail(Reason::ClientGone.into()),
                Poll::Pending => {
                    self.exchange.timeouts.awaits_client_data = true;
                    return;
                }
            }
        }
        if turn.is_spent() {
            // The queue has room and more input may have arrived, but no event would wake the
            // connection.
            yield_turn(cx);
        }
    }

    fn await_response(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        turn: &mut Turn,
    ) -> Progress {
        let has_room = match self.flush(cx, connection, turn) {
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(_)) => return self.client_gone(),
            Poll::Pending => false,
        };
        loop {
            match &mut self.exchange.poll_response(cx, has_room) {
                Poll::Ready(ResponseHead::Interim(status, fields)) => {
                    self.out
                        .text(|t| render::interim(t, *status, fields.text()));
                }
                Poll::Ready(ResponseHead::Final(response)) => {
                    self.send(response, connection);
                    self.begin_receipt(response, connection);
                    return Progress::Again;
                }
                Poll::Pending => break,
            }
        }
        match (self.out.is_empty(), has_room) {
            (true, _) => self.watch_client(cx, connection),
            // The heads that were just queued are sent. After that there is room for further ones.
            (false, true) => Progress::Again,
            (false, false) => {
                self.exchange.timeouts.awaits_client_reads = true;
                Progress::Wait
            }
        }
    }

    /// Writes everything that is queued.
    #[inline]
    fn flush(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        turn: &mut Turn,
    ) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            ready!(self.out.poll_flush(cx, connection, turn))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Puts the head of a final response into the outbox. The content follows in `send_content`.
    fn send(&mut self, response: &mut Response, connection: &Connection) {
        // In HTTP/1.1 only a 101 begins a tunnel (RFC 9110 15.2.2).
        if response.tunnel.is_some() && response.status != 101 {
            *response = Fault::from(Reason::UnexpectedStatus).response();
        }
        self.decide_persistence(connection);
        let extent = self.exchange.extent(response);
        let delivery = Delivery::of(extent, self.version, self.takes_trailers);
        if delivery == Delivery::UntilClose {
            self.keep_alive = false;
        }
        let persistence = match (response.tunnel.is_some(), self.keep_alive) {
            (true, _) => Persistence::Upgrade,
            (_, false) => Persistence::Close,
            (_, true) => {
                let options = &self.exchange.record.serving.options;
                let timeout_s = options
                    .keepalive_header
                    .then_some(options.keepalive_timeout.as_secs());
                Persistence::Keep { timeout_s }
            }
        };
        let version = self.version;
        connection.worker.with_date(|date| {
            self.out
                .text(|t| render::head(t, response, delivery, persistence, version, date));
        });
        self.exchange.respond(response, extent);
        self.stage = match response.tunnel.take() {
            Some(duplex) => Stage::Tunnelling(Box::new(Tunnel::new(duplex))),
            None => Stage::Sending(BodyWriter::new(delivery)),
        };
    }

    /// Begins to report how much of the content the client receives, if the handler wants to know.
    #[inline]
    fn begin_receipt(&mut self, response: &mut Response, connection: &mut Connection) {
        if let Some(receipt) = response.receipt.take() {
            connection.begin_receipt(receipt, self.out.len() as u64);
            self.has_receipt = true;
        }
    }

    /// Ends persistence if the worker drains or if the beginning of the next request cannot be
    /// found.
    fn decide_persistence(&mut self, connection: &Connection) {
        if connection.worker.is_draining() {
            self.keep_alive = false;
        }
        let Some(intake) = &self.exchange.intake else {
            return;
        };
        let readable = self.body.is_complete()
            || (!self.owes_continue
                && intake.fault().is_none()
                && (!intake.is_abandoned() || self.body.may_end_within(DISCARD_BYTES_MAX)));
        if !readable {
            self.keep_alive = false;
            self.lingers = true;
        }
    }

    fn send_content(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        turn: &mut Turn,
    ) -> Progress {
        let Stage::Sending(writer) = &mut self.stage else {
            return Progress::Wait;
        };
        let step = writer.poll(cx, &mut self.exchange, &mut self.out, connection, turn);
        // Unsent output includes framing, so the recorded number of sent content bytes may be too
        // low, never too high.
        self.exchange.record_sent(self.out.len() as u64);
        if self.has_receipt {
            connection.wrote_content(self.exchange.record.body_bytes());
        }
        match step {
            Step::Yield => Progress::Yield,
            Step::Blocked => {
                self.exchange.timeouts.awaits_client_reads = true;
                Progress::Wait
            }
            Step::Starved => self.watch_client(cx, connection),
            Step::Gone => self.client_gone(),
            Step::Cut(fault) => {
                self.exchange.record.reason = Some(fault.reason);
                if writer.looks_complete(&self.exchange) {
                    connection.transport.reset_on_drop();
                }
                Progress::Then(Next::Close)
            }
            Step::Done => {
                self.exchange.complete();
                self.after_response(connection)
            }
        }
    }

    /// Sets the connection's deadline, and ends the exchange or the connection if the client is too
    /// late.
    fn check_deadline(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        turn: &mut Turn,
    ) -> Poll<Next> {
        connection.release_buffer();
        let deadlines = &connection.worker.deadlines;
        let now = deadlines.now();
        let timeouts = &mut self.exchange.timeouts;
        let written = turn.take_written();
        if written > 0 {
            timeouts.sent(now, written);
        }
        let transport = &connection.transport;
        let options = &self.exchange.record.serving.options;
        let (next_check, expired) = timeouts.check(options, now, || transport.acknowledged());
        let whole = match &mut self.stage {
            Stage::Lingering { until, .. } => *until,
            Stage::Tunnelling(tunnel) => tunnel.deadline(now, options.tunnel_timeout),
            _ => NEVER,
        };
        deadlines.set(connection.slot, next_check.min(whole), false);
        if whole <= now {
            if let Stage::Tunnelling(tunnel) = &self.stage {
                let sent = tunnel.bytes_to_client();
                self.exchange.record.note_sent(sent);
                self.exchange.record.reason = Some(Reason::TunnelTimeout);
                tunnel.cut(connection);
            }
            return Poll::Ready(Next::Close);
        }
        match expired {
            None => Poll::Pending,
            Some(Expired::Sending) => {
                connection.worker.counters.client_timeouts.add(1);
                self.exchange.record.reason = Some(Reason::SendTimeout);
                connection.transport.reset_on_drop();
                Poll::Ready(Next::Close)
            }
            Some(Expired::Receiving) => {
                connection.worker.counters.client_timeouts.add(1);
                self.body_timed_out(cx)
            }
        }
    }

    fn body_timed_out(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        match (&self.stage, &self.exchange.intake) {
            (Stage::Awaiting | Stage::Sending(_), Some(intake)) => {
                // At the next poll the exchange responds with this fault, if the response has not
                // begun. Otherwise the handler decides how the response ends.
                intake.fail(Reason::RequestBodyTimeout.into());
                self.keep_alive = false;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            _ => Poll::Ready(Next::Close),
        }
    }

    /// Records that the shutdown timeout ended the exchange.
    pub fn cut_off(&mut self) {
        self.exchange.record.reason = Some(Reason::DrainTimeout);
    }

    /// Returns the outbox to the pool.
    #[inline]
    pub fn finish(&mut self) {
        std::mem::take(&mut self.out).recycle();
    }
}
