//! A connection to an origin server, which carries one exchange after the other.
//!
//! A connection is not a task of its own: it is driven by the task that awaits the response or
//! polls its content. This saves a task switch for each head and each chunk, and an exchange can be
//! abandoned by dropping its connection.

use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::ReadBuf;

use super::response::Parsed;
use super::round_trip::{Broken, RoundTrip};
use super::spare::Spare;
use crate::handler::Fault;
use crate::http::{Method, Version};
use crate::reason::Reason;
use crate::sys::Address;
use crate::upstream::error_detail::ErrorDetail;
use crate::upstream::inbound::{Failure, Received, Step};
use crate::upstream::options::Limits;
use crate::upstream::outbound::Outbound;
use crate::upstream::permit::Permit;
use crate::upstream::recording::ExchangeRecording;
use crate::upstream::sample::Sample;
use crate::upstream::transport::Transport;
use crate::upstream::waker::WakeForwarder;

/// Shortest time between two samples of the kernel's data about a connection, in microseconds.
const SAMPLE_US: u64 = 1_000_000;

/// A connection, and the state of the exchange in progress on it.
pub(in crate::upstream) struct Connection {
    transport: Transport,
    /// The exchange in progress, or the buffers of the last one. A connection that is idle for long has
    /// neither.
    exchange: Spare<RoundTrip>,
    forwarder: Arc<WakeForwarder>,
    /// The waker that socket, timer and upload of the connection get. `forwarder` chooses the task
    /// that it wakes.
    waker: Waker,
    closed: bool,
    /// Whether neither side has announced that it closes the connection after the current exchange.
    reusable: bool,
    /// Number of requests sent so far.
    uses: u64,
    /// Time at which the connection became idle, in microseconds of the upstream's clock.
    idle_since_us: u64,
    /// Longest time that the server keeps the connection idle, in microseconds, less a second in
    /// which a request may still arrive.
    idle_limit_us: u64,
    /// Bytes received and sent that have been counted.
    counted: (u64, u64),
    /// Time of the last sample of the kernel's data, and the segments sent again until then.
    sampled: Option<(u64, u32)>,
    /// Counts the connection among the server's connections. The last field, so that the socket is
    /// closed before the permit is released.
    permit: Permit,
}

impl Connection {
    pub(in crate::upstream) fn new(transport: Transport, permit: Permit) -> Box<Connection> {
        let (forwarder, waker) = WakeForwarder::new();
        Box::new(Connection {
            transport,
            exchange: Spare::new(RoundTrip::new),
            forwarder,
            waker,
            closed: false,
            reusable: true,
            uses: 0,
            idle_since_us: 0,
            idle_limit_us: u64::MAX,
            counted: (0, 0),
            sampled: None,
            permit,
        })
    }

    /// Returns the server's index.
    pub(in crate::upstream) fn server(&self) -> usize {
        self.permit.server
    }

    /// Returns the server's address.
    pub(in crate::upstream) fn peer(&self) -> Option<Address> {
        self.transport.peer()
    }

    /// Returns the time of the handshake, if the connection has TLS.
    pub(in crate::upstream) fn handshake(&self) -> Option<Duration> {
        self.transport.handshake()
    }

    /// Returns the number of requests sent so far.
    pub(in crate::upstream) fn uses(&self) -> u64 {
        self.uses
    }

    /// Whether the connection has room for an exchange, as far as the bytes read so far show.
    /// HTTP/1.1 carries one exchange at a time, so the last request must have been sent completely
    /// before its response began, its response received completely, nothing received after it, and
    /// neither side may want to close.
    pub(in crate::upstream) fn has_room(&self) -> bool {
        self.reusable
            && !self.closed
            && !self.transport.is_write_broken()
            && self.exchange.get().is_none_or(RoundTrip::is_complete)
    }

    /// Reads again and returns whether the connection still has room for an exchange. `waker` is
    /// woken when the server closes the connection or sends something.
    pub(in crate::upstream) fn stays_idle(&mut self, waker: &Waker) -> bool {
        if !self.has_room() {
            return false;
        }
        self.forwarder.set_target(waker);
        self.is_silent()
    }

    /// Whether the server has neither closed the connection nor sent anything, as far as the
    /// runtime knows.
    fn is_silent(&mut self) -> bool {
        let mut cx = Context::from_waker(&self.waker);
        if self.transport.poll_read_ready(&mut cx).is_pending() {
            return true;
        }
        // The runtime's readiness may be out of date, so an actual read decides.
        let was_freed = self.exchange.get().is_none();
        let exchange = self.exchange.get_mut();
        let read = exchange.poll_read(&mut cx, &mut self.transport);
        self.closed = read.is_ready();
        if was_freed {
            self.exchange.free();
        }
        !self.closed
    }

    /// Whether the server has neither closed the connection nor sent anything, according to the
    /// kernel.
    pub(in crate::upstream) fn is_quiet(&mut self) -> bool {
        self.transport.is_quiet()
    }

    /// Frees memory that an idle connection does not need, and counts the connection as idle from
    /// the time `now_us` on.
    pub(in crate::upstream) fn rest(&mut self, now_us: u64) {
        self.exchange.get_mut().trim();
        self.permit.set_busy(false);
        self.idle_since_us = now_us;
    }

    /// Frees all memory of exchanges, which the next exchange allocates again. Returns whether there
    /// was any.
    pub(in crate::upstream) fn shrink(&mut self) -> bool {
        self.exchange.free()
    }

    #[cfg(test)]
    pub(in crate::upstream) fn is_shrunk(&self) -> bool {
        self.exchange.get().is_none()
    }

    /// Counts the connection as in use.
    pub(in crate::upstream) fn set_busy(&mut self) {
        self.permit.set_busy(true);
    }

    /// Returns the time at which the connection became idle, in microseconds of the upstream's
    /// clock.
    pub(in crate::upstream) fn idle_since_us(&self) -> u64 {
        self.idle_since_us
    }

    /// Returns the longest time for which the server lets the connection be idle, in microseconds.
    pub(in crate::upstream) fn idle_limit_us(&self) -> u64 {
        self.idle_limit_us
    }

    /// Closes the connection but keeps its permit.
    pub(in crate::upstream) fn close(self: Box<Self>) -> Permit {
        let connection = *self;
        connection.permit
    }

    /// Sends a request and waits for the final head. After a failure the connection must not be
    /// used again. Interim heads except 100 are passed to `interim`.
    pub(in crate::upstream) async fn send(
        &mut self,
        outbound: &Outbound<'_>,
        limits: &Limits,
        mut interim: impl FnMut(Received),
    ) -> Result<Received, Failure> {
        let reused = self.uses > 0;
        self.uses += 1;
        let last = limits.is_last(self.uses) || is_last(outbound);
        self.reusable &= !last;
        if limits.http == Version::Http10 && outbound.upload.length().is_none() {
            // Without chunks, the end of the content could only be that of the connection, after which
            // there is no response (RFC 9112 6.3).
            let fault = Fault::from(Reason::LengthRequired);
            return Err(Failure::unsent(fault));
        }
        let exchange = self.exchange.get_mut();
        exchange.begin(outbound, limits.http, last);
        let (method, upload) = (&outbound.head.method, outbound.upload);
        let (read, written) = (self.transport.read_total(), self.transport.written_total());
        let sent = std::future::poll_fn(|cx| {
            self.forwarder.set_target(cx.waker());
            let (exchange, transport) = (self.exchange.get_mut(), &mut self.transport);
            let permit = &self.permit;
            let mut cx = Context::from_waker(&self.waker);
            let polled = exchange.poll_head(&mut cx, transport, method, limits, &mut interim);
            let awaited_client = matches!(&polled, Poll::Ready(Err(Broken::Closed)))
                && exchange.awaits_client(transport);
            let polled = polled.map_err(|broken| match broken {
                Broken::Fault(fault) => explained(fault, exchange, permit),
                Broken::Closed if let Some(error) = transport.tls_error() => {
                    permit.state().note_detail(ErrorDetail::Tls(error));
                    Fault::from(Reason::TlsFailed)
                }
                Broken::Closed => {
                    exchange.closed_early(upload, reused && transport.read_total() == read)
                }
            });
            let result = match polled {
                Poll::Ready(result) => result,
                Poll::Pending => match exchange.watch_head(&mut cx, transport, limits) {
                    Some(late) => Err(Fault::from(late)),
                    None => return Poll::Pending,
                },
            };
            Poll::Ready(match result {
                Ok(parsed) => {
                    self.note_keepalive(&parsed, last);
                    Ok(parsed.head)
                }
                Err(mut fault) => {
                    let unsent = transport.written_total() == written && upload.is_whole();
                    fault.retryable &= unsent;
                    Err(Failure {
                        fault,
                        unsent,
                        refused: false,
                        awaited_client,
                    })
                }
            })
        })
        .await;
        self.count_traffic();
        sent
    }

    /// Notes whether and for how long the server keeps the connection after this response. `last`: the request has asked
    /// for the close.
    fn note_keepalive(&mut self, parsed: &Parsed, last: bool) {
        self.reusable &= parsed.keeps;
        if !parsed.keeps && !last {
            self.transport.note_server_ends();
        }
        if let Some(seconds) = parsed.idle_timeout_s {
            self.idle_limit_us = seconds.saturating_sub(1).saturating_mul(1_000_000);
        }
    }

    /// Begins the record of an exchange, if the connection's exchanges are recorded.
    pub(in crate::upstream) fn begin_recording(
        &self,
        target: &str,
        sent_us: u64,
    ) -> Option<ExchangeRecording> {
        self.transport.begin_recording(target, sent_us)
    }

    /// Takes the next frame out of the received bytes of content.
    pub(in crate::upstream) fn step(&mut self) -> Result<Step, Fault> {
        self.exchange.get_mut().step()
    }

    /// Whether all content has been taken.
    pub(in crate::upstream) fn has_ended(&self) -> bool {
        self.exchange.get().is_none_or(RoundTrip::has_ended)
    }

    /// Whether `room` may be filled with content directly from the transport: no buffered bytes
    /// come first, and at least as many bytes of content follow as fit.
    pub(in crate::upstream) fn may_fill(&self, room: &ReadBuf<'_>) -> bool {
        let exchange = self.exchange.get();
        exchange.is_some_and(|exchange| exchange.may_fill(room))
    }

    /// Sends the unsent rest of the request and reads more content: into `room` if given, which
    /// `may_fill` must have allowed. Returns the number of bytes, 0 when the server has closed the
    /// connection. Fails if the connection broke or the request cannot be completed.
    pub(in crate::upstream) fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
        room: Option<&mut ReadBuf<'_>>,
    ) -> Poll<Result<usize, Fault>> {
        self.forwarder.set_target(cx.waker());
        let mut cx = Context::from_waker(&self.waker);
        let exchange = self.exchange.get_mut();
        let sent = exchange.poll_send(&mut cx, &mut self.transport);
        if let Poll::Ready(Err(fault)) = sent {
            self.reusable = false;
            return Poll::Ready(Err(fault));
        }
        let polled = exchange.poll_content(&mut cx, &mut self.transport, room);
        self.count_traffic();
        polled
    }

    /// Counts the bytes received and sent since the last call.
    fn count_traffic(&mut self) {
        let now = (self.transport.read_total(), self.transport.written_total());
        let (read, written) = std::mem::replace(&mut self.counted, now);
        self.permit.count_traffic(now.0 - read, now.1 - written);
    }

    /// Returns the kernel's data about the connection, unless the last sample is recent.
    pub(in crate::upstream) fn sample(&mut self, now_us: u64) -> Option<Sample> {
        let is_recent = |(at_us, _)| now_us.saturating_sub(at_us) < SAMPLE_US;
        if self.sampled.is_some_and(is_recent) {
            return None;
        }
        let state = self.transport.tcp_state()?;
        let before = self.sampled.replace((now_us, state.retransmits));
        let before = before.map_or(0, |(_, retransmits)| retransmits);
        Some(Sample::new(&state, before))
    }

    /// Requires the minimum rate of content without a declared length, too.
    pub(in crate::upstream) fn require_rate(&mut self) {
        self.exchange.get_mut().require_rate();
    }

    /// Returns the timeout that the wait for more content has exceeded, if any. Must be called
    /// whenever `poll_content` is pending.
    pub(in crate::upstream) fn watch_body(&mut self, limits: &Limits) -> Option<Reason> {
        let mut cx = Context::from_waker(&self.waker);
        let exchange = self.exchange.get_mut();
        exchange.watch_body(&mut cx, &self.transport, limits)
    }

    /// Handles that the server has closed the connection: a fault unless the close is the content's
    /// regular end.
    pub(in crate::upstream) fn end(&mut self) -> Result<(), Fault> {
        self.closed = true;
        let exchange = self.exchange.get_mut();
        exchange.end_of_connection(&self.transport)
    }

    /// After a 101: sends the unsent rest of the request and splits the connection into its byte
    /// stream, the bytes received after the head, and its permit.
    pub(in crate::upstream) async fn into_tunnel(
        mut self: Box<Self>,
        limits: &Limits,
    ) -> Result<(Transport, Bytes, Permit), Fault> {
        self.exchange.get_mut().begin_drain();
        std::future::poll_fn(|cx| {
            self.forwarder.set_target(cx.waker());
            let mut cx = Context::from_waker(&self.waker);
            let exchange = self.exchange.get_mut();
            let sent = exchange.poll_drain(&mut cx, &mut self.transport, limits);
            Poll::Ready(ready!(sent))
        })
        .await?;
        let connection = *self;
        let early = connection.exchange.take().into_rest();
        Ok((connection.transport, early, connection.permit))
    }
}

/// Returns a fault in a response's head. Notes for the log if the server answers in HTTP/2.
fn explained(fault: Fault, exchange: &RoundTrip, permit: &Permit) -> Fault {
    if exchange.gets_http2() {
        permit.state().note_detail(ErrorDetail::Http2);
    }
    fault
}

/// Whether the connection is not used again after this request.
fn is_last(outbound: &Outbound<'_>) -> bool {
    // After HEAD, a broken origin may send the content of the response some time later, where it would
    // be taken for the next response (RFC 9112 6.3).
    let head = outbound.head.method == Method::Head;
    // After content without a meaning, an origin that does not read the content takes it for the next
    // request (RFC 9110 9.3.1), and would answer that one with the response to this request's content.
    let ignorable = outbound.upload.length() != Some(0) && !outbound.head.method.defines_content();
    head || ignorable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        // The size class of the allocator.
        assert!(size_of::<Connection>() <= 320);
    }
}
