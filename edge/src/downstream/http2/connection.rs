//! An HTTP/2 connection: one task per client, which moves frames between the transport and `http2::server`, and runs the
//! exchanges of all streams.
//!
//! Everything that one read brings is handled before the responses to all of it are sent in one write.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::downstream::connection::Connection;
use crate::downstream::deadlines::{NEVER, Tick};
use crate::downstream::exchange::TransferTimeouts;
use crate::downstream::outbox::Outbox;
use crate::downstream::turn::{Turn, yield_turn};
use crate::http2::request::Request;
use crate::http2::server::{Event, Options, Server};
use crate::http2::violation::{ErrorCode, Violation};
use crate::reason::Reason;
use crate::sys::Clock;

use super::stream::{End, Stream};
use crate::http2::wakeups::Wakeups;

/// Queued output in bytes above which a client that does not read gets no answers, so its frames are not read either.
const QUEUED_MAX: usize = 64 << 10;

/// Largest input buffer in bytes: a frame of the largest size and the beginning of the next one.
const INPUT_MAX: usize = 20 << 10;

thread_local! {
    /// The memory in which the header sections of requests are collected.
    static REQUEST: RefCell<Request> = RefCell::default();
}

/// A client's HTTP/2 connection, from its preface to its close.
pub struct Http2 {
    pub(super) connection: Connection,
    pub(super) server: Server,
    /// The streams by their slots in `server`.
    pub(super) streams: Vec<Option<Box<Stream>>>,
    /// Streams whose response is complete and queued, with the number of bytes that are written when it is sent.
    finishing: VecDeque<(u64, Box<Stream>)>,
    pub(super) wakeups: Wakeups,
    pub(super) out: Outbox,
    /// Number of requests.
    pub(super) requests: u64,
    /// Whether the transport accepts no more output for now.
    pub(super) is_blocked: bool,
    /// Whether the connection closes once the output is written.
    pub(super) is_ending: bool,
    /// The progress of the output while the transport accepts no more of it.
    pub(super) output: TransferTimeouts,
    /// Tick from which on no further request is accepted after a shutdown was announced.
    pub(super) shutdown_ends: Tick,
    pub(super) waits_for: WaitsFor,
    pub(super) closing: Option<Closing>,
}

/// The event for which the connection waits while no stream is open, until its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// No deadline is set, or streams have set it.
    Nothing,
    /// The preface and the first settings.
    Settings,
    /// A request.
    Request,
    /// The rest of a frame or of a header block.
    Frame,
}

/// The end of a connection that has sent its last byte.
pub(super) struct Closing {
    /// Most bytes that are still read and discarded.
    pub(super) left: u64,
    /// Tick at which the connection is closed.
    pub(super) until: Tick,
}

/// State of the received side after a read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Received {
    /// Something has arrived, and more may follow at once.
    Some,
    /// Nothing is there.
    Nothing,
    /// Nothing was read, since the client does not read the answers.
    Choked,
    /// The client has closed its direction or reset the connection.
    End,
}

impl Future for Http2 {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().turn(cx)
    }
}

impl Http2 {
    /// Creates an HTTP/2 connection whose input may already begin with the preface.
    pub fn new(connection: Connection) -> Http2 {
        let mut out = Outbox::pooled();
        let mut server = None;
        let now_ms = now_ms(&connection);
        out.text(|text| server = Some(Server::new(Options::default(), now_ms, text)));
        Http2 {
            server: server.unwrap_or_else(|| Server::new(Options::default(), now_ms, &mut vec![])),
            connection,
            streams: Vec::new(),
            finishing: VecDeque::new(),
            wakeups: Wakeups::default(),
            out,
            requests: 0,
            is_blocked: false,
            is_ending: false,
            output: TransferTimeouts::default(),
            shutdown_ends: NEVER,
            waits_for: WaitsFor::Nothing,
            closing: None,
        }
    }

    /// Serves streams until all have to wait or the turn is over.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let worker = self.connection.worker.clone();
        worker.watch(self.connection.slot, cx);
        if worker.is_cut() {
            return self.cut_off(Reason::DrainTimeout);
        }
        if self.closing.is_some() {
            return self.linger(cx);
        }
        // Sending content may take long, so the next request has to read the clock.
        Clock::forget();
        self.wakeups.watch(cx);
        if worker.is_draining() {
            self.announce_shutdown();
        }
        for slot in self.wakeups.take() {
            self.poll_stream(slot);
        }
        let mut turn = Turn::new();
        loop {
            let received = self.receive(cx, &mut turn);
            self.gather(&turn);
            if received == Received::End {
                return self.end_of_input();
            }
            if self.flush(cx, &mut turn).is_err() {
                return self.cut_off(Reason::ClientGone);
            }
            if self.has_ended() {
                return self.begin_closing(cx);
            }
            if turn.is_spent() {
                yield_turn(cx);
                break;
            }
            let sends_more = !self.is_blocked && self.server.next().is_some();
            let receives_more = match received {
                Received::Some => true,
                // No event wakes the connection for input that was there before.
                Received::Choked => !self.is_choked(),
                Received::Nothing | Received::End => false,
            };
            if !sends_more && !receives_more {
                break;
            }
        }
        self.check_deadlines(cx, &mut turn)
    }

    /// Whether the connection has nothing left to do.
    fn has_ended(&self) -> bool {
        let is_done = self.is_ending || self.server.is_done();
        is_done && self.out.is_empty() && self.finishing.is_empty()
    }

    /// Handles the frames that have arrived.
    fn receive(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Received {
        if self.is_ending {
            return Received::Nothing;
        }
        if self.is_choked() {
            return Received::Choked;
        }
        if let Err(violation) = self.handle_input(turn) {
            self.fail(&violation);
            return Received::Nothing;
        }
        if turn.is_spent() {
            // The next turn reads.
            return Received::Some;
        }
        if self.connection.is_full() {
            self.connection.grow_buffer(INPUT_MAX);
        }
        match self.connection.poll_fill(cx) {
            Poll::Ready(Ok(n)) if n > 0 => Received::Some,
            Poll::Ready(_) => Received::End,
            Poll::Pending => Received::Nothing,
        }
    }

    /// Whether the client does not read the answers to its frames.
    fn is_choked(&self) -> bool {
        self.is_blocked && self.out.len() > QUEUED_MAX
    }

    fn handle_input(&mut self, turn: &mut Turn) -> Result<(), Violation> {
        let now_ms = now_ms(&self.connection);
        REQUEST.with_borrow_mut(|request| {
            while !turn.is_spent() {
                let used = self.handle_frame(now_ms, request, turn)?;
                if used == 0 {
                    break;
                }
                self.connection.consume(used);
                // A small frame costs more than its bytes.
                turn.read(used + 64);
            }
            Ok(())
        })
    }

    /// Handles a frame, or a part of one. Returns the number of bytes used.
    fn handle_frame(
        &mut self,
        now_ms: u64,
        request: &mut Request,
        turn: &mut Turn,
    ) -> Result<usize, Violation> {
        let mut taken = Ok((0, None));
        let input = self.connection.input();
        self.out
            .text(|text| taken = self.server.take(input, now_ms, request, text));
        let (used, event) = taken?;
        match event {
            None => {}
            Some(Event::Content {
                slot,
                content,
                ends,
            }) => {
                if let Some(Some(stream)) = self.streams.get_mut(slot) {
                    let now = self.connection.worker.deadlines.now();
                    stream.receive(content, ends, now);
                }
                match self.streams.get(slot) {
                    Some(Some(stream)) if stream.awaits_fault() => self.poll_stream(slot),
                    // The reader may have dropped the content.
                    _ => self.release_taken(slot),
                }
            }
            Some(Event::Request {
                slot,
                ends,
                is_over,
            }) => {
                turn.request();
                self.begin(slot, ends, is_over, request);
            }
            Some(Event::Trailers { slot, fields }) => {
                if let Some(Some(stream)) = self.streams.get_mut(slot) {
                    stream.end_request(Some(fields));
                }
            }
            Some(Event::Cancelled {
                slot, violation, ..
            }) => {
                let reason = match violation {
                    Some(_) => Reason::BadRequestBody,
                    None => Reason::ClientGone,
                };
                self.abandon(slot, reason);
            }
            Some(Event::Refused { .. }) => self.connection.worker.counters.requests_refused.add(1),
        }
        Ok(used)
    }

    /// Queues content of all streams, by their priorities and as far as the windows permit.
    fn gather(&mut self, turn: &Turn) {
        while !self.out.is_full()
            && !turn.is_spent()
            && let Some((slot, most)) = self.server.next()
        {
            let Some(Some(stream)) = self.streams.get_mut(slot) else {
                self.server.set_content(slot, false);
                continue;
            };
            let (bytes, end) = stream.take(most);
            let receipt = stream.receipt.clone().filter(|_| !bytes.is_empty());
            let now = self.connection.worker.deadlines.now();
            stream.exchange.timeouts.sent(now, bytes.len());
            let ends = matches!(end, Some(End::Complete(None)));
            if ends || !bytes.is_empty() {
                let length = bytes.len() as u32;
                self.out
                    .text(|text| self.server.data(slot, length, ends, text));
                if let Some(receipt) = receipt {
                    // Only acknowledged bytes are reported, so the content may still be queued.
                    let unsent = self.out.len() as u64;
                    self.connection.begin_receipt(receipt, unsent);
                    self.connection.wrote_content(u64::from(length));
                }
                if !bytes.is_empty() {
                    self.out.content(bytes);
                }
            }
            match end {
                None => self.fetch(slot),
                Some(end) => self.end(slot, end, ends),
            }
        }
    }

    /// Ends a stream whose content has been queued. `is_sent`: the last frame of content says that it is the last.
    pub(super) fn end(&mut self, slot: usize, end: End, is_sent: bool) {
        let Some(Some(mut stream)) = self.streams.get_mut(slot).map(Option::take) else {
            return;
        };
        self.out.text(|text| match &end {
            End::Complete(None) => {
                if !is_sent {
                    self.server.data(slot, 0, true, text);
                }
                self.server.end(slot, text);
            }
            End::Complete(Some(fields)) => {
                let encode = |_: &mut _, out: &mut _| super::render::trailers(out, fields);
                self.server.trailers(slot, text, encode);
            }
            End::Cut(_) => self.server.reset(slot, ErrorCode::INTERNAL_ERROR, text),
        });
        match end {
            End::Complete(_) => self.finish(stream),
            End::Cut(reason) => {
                stream.exchange.record.reason = Some(reason);
                stream.record_sent(self.out.len());
            }
        }
    }

    /// Records the response of a stream as complete once the queued output is written.
    pub(super) fn finish(&mut self, stream: Box<Stream>) {
        let end = self.connection.written + self.out.len() as u64;
        self.finishing.push_back((end, stream));
    }

    /// Writes the queued output as far as possible.
    fn flush(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> std::io::Result<()> {
        self.is_blocked = false;
        while !self.out.is_empty() && !turn.is_spent() {
            match self.out.poll_flush(cx, &mut self.connection, turn) {
                Poll::Ready(written) => written?,
                Poll::Pending => {
                    self.is_blocked = true;
                    break;
                }
            }
        }
        while let Some((end, stream)) = self.finishing.front_mut()
            && *end <= self.connection.written
        {
            stream.record_sent(0);
            stream.exchange.complete();
            self.finishing.pop_front();
        }
        Ok(())
    }

    /// Ends the connection because of a violation of the protocol.
    fn fail(&mut self, violation: &Violation) {
        self.connection.worker.counters.requests_refused.add(1);
        self.out.text(|text| self.server.close(violation, text));
        for slot in 0..self.streams.len() {
            self.abandon(slot, Reason::ClientGone);
        }
        self.is_ending = true;
    }

    /// Drops the exchange of a stream that `server` has closed.
    fn abandon(&mut self, slot: usize, reason: Reason) {
        if let Some(Some(mut stream)) = self.streams.get_mut(slot).map(Option::take) {
            stream.exchange.record.reason = Some(reason);
            stream.record_sent(self.out.len());
        }
    }

    /// Ends the connection of a client that has closed its direction.
    fn end_of_input(&mut self) -> Poll<()> {
        if self.server.open_streams() > 0 || !self.finishing.is_empty() {
            return self.cut_off(Reason::ClientGone);
        }
        Poll::Ready(())
    }

    /// Ends all exchanges and the connection at once.
    pub(super) fn cut_off(&mut self, reason: Reason) -> Poll<()> {
        for slot in 0..self.streams.len() {
            self.abandon(slot, reason);
        }
        while let Some((_, mut stream)) = self.finishing.pop_front() {
            stream.exchange.record.reason = Some(reason);
            stream.record_sent(self.out.len());
        }
        self.connection.transport.reset_on_drop();
        Poll::Ready(())
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        std::mem::take(&mut self.out).recycle();
    }
}

/// Returns the time of the worker's current tick.
fn now_ms(connection: &Connection) -> u64 {
    let tick_ms = crate::downstream::deadlines::TICK.as_millis() as u64;
    u64::from(connection.worker.deadlines.now()) * tick_ms
}
