//! The deadlines of an HTTP/2 connection and of its streams, and its end.

use std::task::{Context, Poll};
use std::time::Duration;

use crate::downstream::deadlines::{NEVER, ticks};
use crate::downstream::exchange::Expired;
use crate::downstream::lingering::{self, DISCARD_BYTES_MAX, LINGER};
use crate::reason::Reason;

use super::connection::{Closing, Http2, WaitsFor};

/// Longest time from a shutdown until later requests are ignored. A client answers within a round trip.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Memory in bytes that an idle connection keeps for its next request.
const KEPT: usize = 2 << 10;

impl Http2 {
    /// Sets the deadline, and ends streams or the connection if the client is too late.
    pub(super) fn check_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.connection.release_buffer();
        match self.server.open_streams() {
            0 => self.wait_idle(cx),
            _ => self.check_streams(cx),
        }
    }

    /// Waits while no stream is open.
    fn wait_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let worker = self.connection.worker.clone();
        let waits_for = match () {
            () if !self.server.has_begun() => WaitsFor::Settings,
            () if self.server.is_within_frame() || !self.connection.input().is_empty() => {
                WaitsFor::Frame
            }
            () if self.server.is_shutting_down() => WaitsFor::Shutdown,
            () => WaitsFor::Request,
        };
        if self.waits_for != waits_for {
            self.waits_for = waits_for;
            let options = &worker.serving().options;
            let time = match waits_for {
                WaitsFor::Request => options.keepalive_timeout,
                WaitsFor::Shutdown => SHUTDOWN.min(options.header_timeout),
                _ => options.header_timeout,
            };
            let is_idle = waits_for == WaitsFor::Request;
            worker.deadlines.set_in(self.connection.slot, time, is_idle);
            self.rest();
            return Poll::Pending;
        }
        if !worker.deadlines.expired(self.connection.slot) {
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
        self.wakeups.rest();
    }

    /// Sets the deadline to that of the first stream, and ends streams that are too late.
    fn check_streams(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.waits_for = WaitsFor::Nothing;
        let worker = self.connection.worker.clone();
        let now = worker.deadlines.now();
        let mut next = NEVER;
        for slot in 0..self.streams.len() {
            let awaits_window = self.is_blocked || self.server.awaits_window(slot);
            let Some(stream) = &mut self.streams[slot] else {
                continue;
            };
            let awaits_data = stream.awaits_data();
            let transport = &self.connection.transport;
            let exchange = &mut stream.exchange;
            exchange.timeouts.awaits_client_data = awaits_data;
            exchange.timeouts.awaits_client_reads = stream.responds && awaits_window;
            let options = &exchange.record.serving.options;
            let check = exchange
                .timeouts
                .check(options, now, || transport.acknowledged());
            next = next.min(check.0);
            let Some(expired) = check.1 else {
                continue;
            };
            worker.counters.client_timeouts.add(1);
            cx.waker().wake_by_ref();
            match expired {
                Expired::Sending if self.is_blocked => return self.cut_off(Reason::SendTimeout),
                Expired::Sending => self.cut(slot, Reason::SendTimeout),
                Expired::Receiving => {
                    if let Some(stream) = &mut self.streams[slot] {
                        stream.fail_request(Reason::RequestBodyTimeout);
                    }
                    self.poll_stream(slot);
                }
            }
        }
        worker.deadlines.set(self.connection.slot, next, false);
        Poll::Pending
    }

    /// Closes the outgoing direction after the last byte.
    pub(super) fn begin_closing(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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
