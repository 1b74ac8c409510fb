//! An HTTP/2 connection: one task per client, which moves frames between the transport and `http2::server`, and runs the
//! exchanges of all streams.
//!
//! Everything that one read brings is handled before the responses to all of it are sent in one write.

use std::cell::RefCell;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::downstream::connection::Connection;
use crate::downstream::deadlines::{NEVER, TICK, Tick, ticks};
use crate::downstream::exchange::TransferTimeouts;
use crate::downstream::outbox::Outbox;
use crate::downstream::turn::{Turn, yield_turn};
use crate::http2::request::Request;
use crate::http2::server::{Event, Options, Server};
use crate::http2::violation::Violation;
use crate::http2::wakeups::Wakeups;
use crate::reason::Reason;
use crate::sys::Clock;

use super::counts::Counts;
use super::limits::options;
use super::stream_box::StreamBox;
use super::unsent::Unsent;

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
    counts: Counts,
    /// The streams by their slots in `server`.
    pub(super) streams: Vec<Option<StreamBox>>,
    pub(super) unsent: Unsent,
    pub(super) wakeups: Wakeups,
    pub(super) out: Outbox,
    /// Number of requests.
    pub(super) requests: u64,
    /// Whether the transport accepts no more output for now.
    pub(super) is_blocked: bool,
    /// Whether the client has closed its direction, as `half_close` permits.
    pub(super) input_ended: bool,
    /// Whether the connection closes once the output is written.
    pub(super) is_ending: bool,
    /// The progress of the output while the transport accepts no more of it.
    pub(super) output: TransferTimeouts,
    /// Tick from which on no further request is accepted after a shutdown was announced.
    pub(super) shutdown_ends: Tick,
    /// Tick by which the client has to acknowledge the settings.
    pub(super) settings_end: Tick,
    /// Tick by which the frame or header block has to be complete that has begun.
    pub(super) frame_ends: Tick,
    /// Number of streams whose response waits for a window, when they were last checked.
    pub(super) stalled: u64,
    /// Whether something has happened to a stream since the deadlines of all were checked.
    pub(super) streams_changed: bool,
    /// The soonest deadline of a stream, when all were last checked.
    pub(super) streams_due: Tick,
    pub(super) waits_for: WaitsFor,
    /// Number of requests when the deadline of `waits_for` was set.
    pub(super) waits_since: u64,
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
    /// The client has closed its direction.
    End,
    /// The client has reset the connection.
    Gone,
}

impl Future for Http2 {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let connection = self.get_mut();
        let polled = connection.turn(cx);
        connection
            .counts
            .update(&connection.server, connection.requests, connection.stalled);
        polled
    }
}

impl Http2 {
    /// Creates an HTTP/2 connection whose input may already begin with the preface.
    pub fn new(connection: Connection) -> Http2 {
        let mut out = Outbox::pooled();
        let mut server = None;
        let now_ms = now_ms(&connection);
        let worker = &connection.worker;
        let settings_time = ticks(worker.serving().options.header_timeout);
        let settings_end = worker.deadlines.now().saturating_add(settings_time);
        let options = Options {
            extended_connect: true,
            ..options(&worker.serving().options)
        };
        out.text(|text| server = Some(Server::new(options, now_ms, text)));
        Http2 {
            server: server.unwrap_or_else(|| Server::new(options, now_ms, &mut vec![])),
            counts: Counts::new(connection.worker.counters.clone()),
            connection,
            streams: Vec::new(),
            unsent: Unsent::default(),
            wakeups: Wakeups::default(),
            out,
            requests: 0,
            is_blocked: false,
            input_ended: false,
            is_ending: false,
            output: TransferTimeouts::default(),
            shutdown_ends: NEVER,
            settings_end,
            frame_ends: NEVER,
            stalled: 0,
            streams_changed: false,
            streams_due: NEVER,
            waits_for: WaitsFor::Nothing,
            waits_since: 0,
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
        self.server.set_now(now_ms(&self.connection));
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
            self.gather(&mut turn);
            let has_left = match received {
                Received::End => self.end_of_input(self.connection.half_close),
                Received::Gone => self.end_of_input(false),
                _ => Poll::Pending,
            };
            if has_left.is_ready() {
                return Poll::Ready(());
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
                // The exchanges may have queued something.
                Received::End => true,
                Received::Nothing | Received::Gone => false,
            };
            if !sends_more && !receives_more {
                break;
            }
        }
        self.check_deadlines(cx, &mut turn)
    }

    /// Whether the connection has nothing left to do.
    fn has_ended(&self) -> bool {
        let is_done = self.is_ending
            || self.server.is_done()
            || (self.input_ended && self.server.open_streams() == 0);
        is_done && self.out.is_empty() && self.unsent.is_finished()
    }

    /// Handles the frames that have arrived.
    fn receive(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Received {
        if self.is_ending || self.input_ended {
            return Received::Nothing;
        }
        if self.is_choked() {
            return Received::Choked;
        }
        if let Err(violation) = self.handle_input(turn) {
            self.counts.failed(&violation);
            self.fail(&violation, Reason::ClientGone);
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
            Poll::Ready(Ok(1..)) => Received::Some,
            Poll::Ready(Ok(0)) => Received::End,
            // Frames say where they end, so it does not matter whether TLS has announced the end.
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => Received::End,
            Poll::Ready(Err(_)) => Received::Gone,
            Poll::Pending => Received::Nothing,
        }
    }

    /// Whether the client does not read the answers to its frames.
    pub(super) fn is_choked(&self) -> bool {
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
                if self.server.is_between_frames() {
                    self.frame_ends = NEVER;
                }
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
        self.streams_changed |= event.is_some();
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
                self.begin(slot, ends, is_over, request)?;
            }
            Some(Event::Trailers { slot, fields }) => {
                if let Some(Some(stream)) = self.streams.get_mut(slot) {
                    stream.end_request(Some(fields));
                }
            }
            Some(Event::Cancelled {
                slot, violation, ..
            }) => {
                turn.vain();
                let counters = &self.connection.worker.counters;
                let (counter, reason) = match violation {
                    Some(_) => (&counters.http2_malformed, Reason::BadRequestBody),
                    None => (&counters.http2_resets_received, Reason::ClientGone),
                };
                counter.add(1);
                self.abandon(slot, reason);
            }
            Some(Event::Refused {
                code,
                is_request,
                violation,
            }) if is_request => {
                turn.vain();
                self.refuse_silently(request, code, violation);
            }
            Some(Event::Refused { .. }) => {}
        }
        Ok(used)
    }

    /// Ends the connection because of a violation of the protocol.
    pub(super) fn fail(&mut self, violation: &Violation, reason: Reason) {
        let (Violation::Connection(code, text) | Violation::Stream(_, code, text)) = *violation;
        tracing::debug!(
            client = %self.connection.peer.client,
            code = code.0,
            cause = text,
            "a client of HTTP/2 broke the rules of the protocol"
        );
        self.out.text(|text| self.server.close(violation, text));
        for slot in 0..self.streams.len() {
            self.abandon(slot, reason);
        }
        self.is_ending = true;
    }

    /// Drops the exchange of a stream that `server` has closed.
    fn abandon(&mut self, slot: usize, reason: Reason) {
        self.streams_changed = true;
        if let Some(Some(mut stream)) = self.streams.get_mut(slot).map(Option::take) {
            stream.exchange.record.reason = Some(reason);
            stream.record_sent(self.out.len());
        }
    }

    /// Ends the connection of a client that has closed its direction, unless it still receives the running responses.
    fn end_of_input(&mut self, receives: bool) -> Poll<()> {
        if self.server.open_streams() == 0 && self.unsent.is_finished() {
            return Poll::Ready(());
        }
        if !receives {
            return self.cut_off(Reason::ClientGone);
        }
        self.input_ended = true;
        self.streams_changed = true;
        for slot in 0..self.streams.len() {
            if let Some(stream) = &mut self.streams[slot]
                && stream.awaits_request()
            {
                stream.fail_request(Reason::ClientGone);
                self.poll_stream(slot);
            }
        }
        Poll::Pending
    }

    /// Ends all exchanges and the connection at once.
    pub(super) fn cut_off(&mut self, reason: Reason) -> Poll<()> {
        for slot in 0..self.streams.len() {
            self.abandon(slot, reason);
        }
        while let Some(mut stream) = self.unsent.pop() {
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
    u64::from(connection.worker.deadlines.now()) * TICK.as_millis() as u64
}

/// Returns the tick of a time that `server` has returned.
pub(super) fn tick_of(ms: u64) -> Tick {
    Tick::try_from(ms.div_ceil(TICK.as_millis() as u64)).unwrap_or(NEVER)
}
