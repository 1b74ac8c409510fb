//! The handle of one exchange. When it is dropped before the exchange is complete, the stream is reset.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::exchange::{self, Awaits};
use super::state::{Shared, State};
use crate::handler::{Fault, Frame};
use crate::reason::Reason;
use crate::sys::Address;
use crate::upstream::inbound::{Failure, Received, Step};
use crate::upstream::options::Limits;
use crate::upstream::outbound::Outbound;
use crate::upstream::recording::ExchangeRecording;
use crate::upstream::sample::Sample;

/// One exchange on a connection.
pub(in crate::upstream) struct Stream {
    shared: Rc<Shared>,
    exchange: exchange::Shared,
    peer: Option<Address>,
}

impl Stream {
    pub(super) fn new(
        shared: Rc<Shared>,
        exchange: exchange::Shared,
        peer: Option<Address>,
    ) -> Stream {
        Stream {
            shared,
            exchange,
            peer,
        }
    }

    /// Returns the server's address.
    pub(in crate::upstream) fn peer(&self) -> Option<Address> {
        self.peer
    }

    /// Returns the time of the connection's handshake, if the connection has TLS.
    pub(in crate::upstream) fn handshake(&self) -> Option<Duration> {
        self.shared
            .read(|state| state.transport.as_ref()?.handshake())
    }

    /// Whether the exchange is one of the connection with this state.
    pub(super) fn is_on(&self, shared: &Rc<Shared>) -> bool {
        Rc::ptr_eq(&self.shared, shared)
    }

    /// Whether other exchanges began on this connection before.
    pub(in crate::upstream) fn is_reused(&self) -> bool {
        self.exchange.borrow().is_reused
    }

    /// Whether the connection is still usable before the request is sent. Nothing that the server has sent can be taken for
    /// the response.
    pub(in crate::upstream) fn is_quiet(&self) -> bool {
        self.shared.with(State::is_still_usable)
    }

    /// Begins the record of the exchange, if the connection is still open and its exchanges are recorded.
    pub(in crate::upstream) fn begin_recording(
        &self,
        target: &str,
        sent_us: u64,
    ) -> Option<ExchangeRecording> {
        self.shared.read(|state| {
            let transport = state.transport.as_ref()?;
            transport.begin_recording(target, sent_us)
        })
    }

    /// Sends a request and waits for the final head. Interim heads except 100 are passed to `interim`.
    pub(in crate::upstream) async fn send(
        &mut self,
        outbound: &Outbound<'_>,
        limits: &Limits,
        mut interim: impl FnMut(Received),
    ) -> Result<Received, Failure> {
        let exchange = &self.exchange;
        self.shared.with(|state| state.begin(exchange, outbound))?;
        poll_fn(|cx| {
            loop {
                let head = self.exchange.borrow_mut().take_head();
                match head {
                    Some(head) if head.status < 200 => interim(head),
                    Some(head) => return Poll::Ready(Ok(head)),
                    None => break,
                }
            }
            let mut exchange = self.exchange.borrow_mut();
            if let Some(Err(failure)) = exchange.end {
                return Poll::Ready(Err(failure));
            }
            exchange.watch(cx);
            let watched = self
                .shared
                .with(|state| state.watch(&mut exchange, false, limits));
            match watched {
                Some(late) => Poll::Ready(Err(Failure::of(late.into()))),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Takes the next frame out of the received content.
    pub(in crate::upstream) fn step(&mut self) -> Result<Step, Fault> {
        self.open_window();
        let mut exchange = self.exchange.borrow_mut();
        if let Some(bytes) = exchange.incoming.take() {
            exchange.awaits = Awaits::Nothing;
            exchange.taken = bytes.len();
            return Ok(Step::Frame(Frame::Data(bytes)));
        }
        if let Some(trailers) = exchange.trailers.take() {
            return Ok(Step::Frame(Frame::Trailers(trailers)));
        }
        match exchange.end {
            None => Ok(Step::More),
            Some(Ok(())) => Ok(Step::End),
            Some(Err(failure)) => Err(failure.fault),
        }
    }

    /// Opens the window by the content that was taken last. The reader asks for more, so it has passed that content on: one
    /// that does not, since its client reads nothing, gets no more than the first window.
    fn open_window(&mut self) {
        let mut exchange = self.exchange.borrow_mut();
        let taken = std::mem::take(&mut exchange.taken);
        if let Some(slot) = exchange.slot.filter(|_| taken > 0) {
            self.shared.with(|state| state.release(slot, taken));
        }
    }

    /// Whether all content has been taken.
    pub(in crate::upstream) fn has_ended(&self) -> bool {
        self.exchange.borrow().is_taken()
    }

    /// Waits until `step` returns something else than `More`.
    pub(in crate::upstream) fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Fault>> {
        self.open_window();
        let mut exchange = self.exchange.borrow_mut();
        if !exchange.has_event() {
            exchange.watch(cx);
            return Poll::Pending;
        }
        let arrived = exchange.incoming.len();
        // Trailers, the end and a fault are events, too.
        Poll::Ready(Ok(arrived.max(1)))
    }

    /// Requires the minimum rate of content without a declared length, too.
    pub(in crate::upstream) fn require_rate(&mut self) {
        self.exchange.borrow_mut().is_rated = true;
    }

    /// Returns the timeout that the wait for more content has exceeded, if any.
    pub(in crate::upstream) fn watch_body(&mut self, limits: &Limits) -> Option<Reason> {
        let mut exchange = self.exchange.borrow_mut();
        self.shared
            .with(|state| state.watch(&mut exchange, true, limits))
    }

    /// Returns the kernel's data about the connection, unless the last sample is recent.
    pub(in crate::upstream) fn sample(&mut self, now_us: u64) -> Option<Sample> {
        self.shared.with(|state| state.sample(now_us))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut exchange = self.exchange.borrow_mut();
        self.shared.with(|state| state.leave(&mut exchange));
    }
}
