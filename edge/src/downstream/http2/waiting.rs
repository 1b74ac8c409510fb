//! The deadlines of an HTTP/2 connection and of its streams, and its end.

use std::task::{Context, Poll};
use std::time::Duration;

use crate::downstream::deadlines::{NEVER, Tick, ticks};
use crate::downstream::exchange::Expired;
use crate::downstream::lingering::{self, DISCARD_BYTES_MAX, LINGER};
use crate::downstream::turn::Turn;
use crate::http2::violation::{ErrorCode, Violation};
use crate::reason::Reason;

use super::connection::{Closing, Http2, WaitsFor, tick_of};

/// Longest time from a shutdown until later requests are ignored. A client answers within a round trip.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Memory in bytes that an idle connection keeps for its next request.
const KEPT: usize = 2 << 10;

impl Http2 {
    /// Tells the client to send no more requests, unless that has been done.
    pub(super) fn announce_shutdown(&mut self) {
        if self.server.is_shutting_down() {
            return;
        }
        self.out.text(|text| self.server.begin_shutdown(text));
        let now = self.connection.worker.deadlines.now();
        self.shutdown_ends = now.saturating_add(ticks(SHUTDOWN));
        // The deadline has to be set again.
        self.waits_for = WaitsFor::Nothing;
    }

    /// Sets the deadline, and ends streams or the connection if the client is too late.
    pub(super) fn check_deadlines(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Poll<()> {
        self.connection.release_buffer();
        let worker = self.connection.worker.clone();
        let now = worker.deadlines.now();
        let queued = self.out.len();
        self.queue_due(now);
        if self.out.len() > queued {
            cx.waker().wake_by_ref();
        }
        let (output, expired) = self.check_output(now, turn);
        if expired.is_some() {
            worker.counters.client_timeouts.add(1);
            return self.cut_off(Reason::SendTimeout);
        }
        let lingers_until = self.server.lingers_until_ms().map_or(NEVER, tick_of);
        let is_idle = self.server.open_streams() == 0 && lingers_until == NEVER;
        if is_idle && self.out.is_empty() && !self.is_ending {
            return self.wait_idle(cx);
        }
        self.waits_for = WaitsFor::Nothing;
        self.streams_changed |= self.server.take_windows_changed();
        if self.streams_changed || self.streams_due <= now {
            self.streams_changed = false;
            self.streams_due = self.check_streams(cx, now);
        }
        let of_streams = self.streams_due;
        let of_frames = self.frame_ends.min(self.settings_end).min(lingers_until);
        let next = of_streams
            .min(output)
            .min(of_frames)
            .min(self.shutdown_ends);
        worker.deadlines.set(self.connection.slot, next, false);
        Poll::Pending
    }

    /// Queues the frames that are due: the end of a shutdown, resets of streams that have lingered, and the end of a
    /// connection whose client is too slow.
    fn queue_due(&mut self, now: Tick) {
        if self.shutdown_ends <= now {
            self.shutdown_ends = NEVER;
            self.out.text(|text| self.server.end_shutdown(text));
        }
        self.out.text(|text| self.server.end_lingering(text));
        if let Some(violation) = self.check_frames(now) {
            self.connection.worker.counters.client_timeouts.add(1);
            self.fail(&violation, Reason::HeaderTimeout);
        }
    }

    /// Checks whether the client acknowledges the settings (RFC 9113 6.5.3), and completes the frames and header blocks
    /// that it begins.
    fn check_frames(&mut self, now: Tick) -> Option<Violation> {
        if self.settings_end != NEVER && !self.server.awaits_settings() {
            self.settings_end = NEVER;
            // The deadline has to be set again.
            self.waits_for = WaitsFor::Nothing;
        }
        let is_served = self.server.has_begun() && !self.is_ending && !self.input_ended;
        let is_between = self.server.is_between_frames() && self.connection.input().is_empty();
        if is_between || !is_served || self.is_choked() {
            self.frame_ends = NEVER;
        } else if self.frame_ends == NEVER {
            let time = self.connection.worker.serving().options.header_timeout;
            self.frame_ends = now.saturating_add(ticks(time));
        }
        let violation = match () {
            () if !is_served => return None,
            () if self.settings_end <= now => {
                (ErrorCode::SETTINGS_TIMEOUT, "settings are not acknowledged")
            }
            () if self.frame_ends <= now => (
                ErrorCode::ENHANCE_YOUR_CALM,
                "frame takes too long to arrive",
            ),
            () => return None,
        };
        (self.settings_end, self.frame_ends) = (NEVER, NEVER);
        Some(Violation::Connection(violation.0, violation.1))
    }

    /// Checks whether the client receives the queued output. Returns the tick of the next check.
    fn check_output(&mut self, now: Tick, turn: &mut Turn) -> (Tick, Option<Expired>) {
        let written = turn.take_written();
        if written > 0 {
            self.output.sent(now, written);
        }
        self.output.awaits_client_reads = self.is_blocked;
        let serving = self.connection.worker.serving();
        let transport = &self.connection.transport;
        self.output
            .check(&serving.options, now, || transport.acknowledged())
    }

    /// Waits while no stream is open and nothing has to be sent.
    fn wait_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let worker = self.connection.worker.clone();
        let (deadlines, slot) = (&worker.deadlines, self.connection.slot);
        let waits_for = match () {
            () if !self.server.has_begun() => WaitsFor::Settings,
            () if self.server.is_within_frame() || !self.connection.input().is_empty() => {
                WaitsFor::Frame
            }
            () => WaitsFor::Request,
        };
        let is_new = self.waits_for != waits_for;
        if is_new || self.waits_since != self.requests {
            (self.waits_for, self.waits_since) = (waits_for, self.requests);
            let options = &worker.serving().options;
            let (time, is_idle) = match waits_for {
                WaitsFor::Request => (options.keepalive_timeout, true),
                _ => (options.header_timeout, false),
            };
            let until = deadlines.now().saturating_add(ticks(time));
            let until = until.min(self.shutdown_ends).min(self.settings_end);
            deadlines.set(slot, until, is_idle);
            if is_new {
                self.rest();
            }
            self.stalled = 0;
            return Poll::Pending;
        }
        if !deadlines.expired(slot) {
            return Poll::Pending;
        }
        if waits_for == WaitsFor::Request && self.connection.fill_now() {
            // The deadline stays as it is, since the frames may begin no request.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match waits_for {
            WaitsFor::Settings => return self.cut_off(Reason::HeaderTimeout),
            WaitsFor::Frame => worker.counters.client_timeouts.add(1),
            _ => {}
        }
        self.out.text(|text| self.server.end_shutdown(text));
        self.is_ending = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Frees memory that an idle connection does not need.
    fn rest(&mut self) {
        self.connection.shrink_buffer();
        if self.server.memory() > KEPT {
            self.server.rest();
        }
        self.streams = Vec::new();
        self.rest_unsent();
        self.wakeups.rest();
    }

    /// Ends streams that are too late. Returns the soonest deadline of a stream.
    fn check_streams(&mut self, cx: &mut Context<'_>, now: Tick) -> Tick {
        let mut next = NEVER;
        // After the end has begun, the exchanges are gone.
        self.stalled = match self.is_ending {
            true => 0,
            false => self.server.stalled_streams() as u64,
        };
        for slot in 0..self.streams.len() {
            let awaits_window = self.server.awaits_window(slot);
            let Some(stream) = &mut self.streams[slot] else {
                continue;
            };
            let stream = &mut **stream;
            let awaits_data = stream.awaits_data();
            let (transport, queued_until) = (&self.connection.transport, stream.queued_until);
            let exchange = &mut stream.exchange;
            exchange.timeouts.awaits_client_data = awaits_data;
            exchange.timeouts.awaits_client_reads = awaits_window;
            let options = &exchange.record.serving.options;
            let (check, expired) = exchange.timeouts.check(options, now, || {
                // Later bytes belong to other streams.
                let acknowledged = transport.acknowledged()?;
                Some(acknowledged.min(queued_until))
            });
            next = next.min(check);
            if let Some(tunnel) = &stream.tunnel {
                let until = tunnel.deadline(now, options.tunnel_timeout);
                next = next.min(until);
                if until <= now {
                    cx.waker().wake_by_ref();
                    self.cut(slot, Reason::TunnelTimeout);
                    continue;
                }
            }
            if awaits_window && self.input_ended {
                // The client cannot open the window any more.
                self.cut(slot, Reason::ClientGone);
                cx.waker().wake_by_ref();
                continue;
            }
            let Some(expired) = expired else {
                continue;
            };
            self.connection.worker.counters.client_timeouts.add(1);
            cx.waker().wake_by_ref();
            match expired {
                Expired::Sending => self.cut(slot, Reason::SendTimeout),
                Expired::Receiving => {
                    if let Some(stream) = &mut self.streams[slot] {
                        stream.fail_request(Reason::RequestBodyTimeout);
                    }
                    self.poll_stream(slot);
                }
            }
        }
        next
    }

    /// Closes the outgoing direction after the last byte.
    pub(super) fn begin_closing(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stalled = 0;
        let connection = &mut self.connection;
        connection.transport.shutdown_write();
        connection.transport.discard_input();
        let deadlines = &connection.worker.deadlines;
        let until = deadlines.now().saturating_add(ticks(LINGER));
        deadlines.set(connection.slot, until, false);
        self.closing = Some(Closing {
            left: DISCARD_BYTES_MAX,
            until,
        });
        self.linger(cx)
    }

    /// Reads and discards input, since closing with unread input may destroy the last frames on their way.
    pub(super) fn linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(closing) = &mut self.closing else {
            return Poll::Ready(());
        };
        let late = closing.until <= self.connection.worker.deadlines.now();
        match lingering::poll_discard(&mut self.connection, &mut closing.left, cx) {
            Poll::Pending if !late => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }
}
