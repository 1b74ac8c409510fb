//! Receives the body of a flight's response, and writes its bytes to the store.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{self, Poll};
use std::time::Duration;

use super::flight::Flight;
use crate::fill::OPEN;
use crate::handler::{Body, Fault, Frame, Piece};
use crate::reason::Reason;
use crate::store::{Abandoned, Progress};

/// Longest time that a flight waits for slow readers of content that is not stored, while a fast
/// reader waits for the flight.
const SLOW_READER_WAIT_MAX: Duration = Duration::from_secs(2);
/// Bytes received before other tasks of the worker get their turn.
const TURN_BYTES: u64 = 1 << 20;

impl Flight {
    /// Receives the body. Readers are woken before the flight waits for more bytes.
    pub(in crate::cache) async fn receive(mut self, mut body: Body) {
        let mut turn = 0;
        loop {
            let came = poll_fn(|cx| self.poll_body(&mut body, cx)).await;
            let length = came.bytes();
            self.note_received(length);
            if length > 0 && self.should_stop_early() {
                return self.fail(Reason::FetchAbandoned.into());
            }
            let progress = match came {
                BodyProgress::Placed(_, progress) => progress,
                BodyProgress::Stopped => return self.landing.give_back(),
                BodyProgress::Frame(Some(Ok(Frame::Data(bytes)))) => self.take_in(&bytes).await,
                // Trailers are not stored (RFC 9111 3 permits leaving them out).
                BodyProgress::Frame(Some(Ok(Frame::Trailers(_)))) => continue,
                // Bodies from an origin never contain parts of files.
                BodyProgress::Frame(Some(Ok(Frame::File(_)))) => {
                    return self.fail(Reason::BadBody.into());
                }
                BodyProgress::Frame(Some(Err(fault))) => return self.fail(fault),
                BodyProgress::Frame(None) if self.is_all() => return self.landed(),
                BodyProgress::Frame(None) => return self.fail(Reason::BodyCut.into()),
            };
            match progress {
                Err(Abandoned) => return self.fail(Reason::FetchAbandoned.into()),
                Ok(Progress::Done) => return self.land(body).await,
                Ok(Progress::More) => {}
            }
            turn += length;
            if turn >= TURN_BYTES {
                turn = 0;
                self.landing.announce();
                tokio::task::yield_now().await;
            }
        }
    }

    /// Polls for the next part of the body, which is read directly into the object's memory if a
    /// page has room.
    fn poll_body(&mut self, body: &mut Body, cx: &mut task::Context<'_>) -> Poll<BodyProgress> {
        let clock = &self.context.worker.clock;
        let filled = self.landing.fill(
            || clock.monotonic_us(),
            |room| {
                let polled = body.poll_into(cx, room);
                (polled, room.filled().len() as u64)
            },
        );
        let polled = match filled {
            Some(((_, bytes), Some(progress))) => {
                return Poll::Ready(BodyProgress::Placed(bytes, progress));
            }
            Some(((polled, _), None)) => polled.map(|piece| match piece {
                Some(Ok(Piece::Frame(frame))) => Some(Ok(frame)),
                Some(Err(fault)) => Some(Err(fault)),
                Some(Ok(Piece::Placed)) | None => None,
            }),
            None => body.poll_frame(cx),
        };
        if polled.is_pending() {
            self.landing.announce();
            if self.poll_stop(cx).is_ready() {
                return Poll::Ready(BodyProgress::Stopped);
            }
        }
        polled.map(BodyProgress::Frame)
    }

    fn note_received(&mut self, bytes: u64) {
        self.context.worker.counters.flight_bytes.add(bytes);
        self.charge.note_received(bytes);
        self.skips = self.skips.saturating_sub(bytes);
    }

    /// Whether the end of the body is also the end of the claim.
    fn is_all(&self) -> bool {
        let left = self.landing.range();
        left.end == OPEN || left.is_empty()
    }

    /// Whether the flight should stop early: the object has no readers, and the client's budget is
    /// used up or the first wanted byte was not received yet.
    fn should_stop_early(&self) -> bool {
        let parts = &self.context;
        let now_us = parts.worker.clock.monotonic_us();
        let is_costly =
            self.skips > 0 || self.charge.is_used_up(parts.options.client_budget, now_us);
        is_costly && !self.landing.object().is_read()
    }

    /// Writes bytes to the store. If the store has no room, the flight waits for readers. After
    /// `SLOW_READER_WAIT_MAX`, it drops slow readers that delay a faster one.
    async fn take_in(&mut self, bytes: &[u8]) -> Result<Progress, Abandoned> {
        let object = self.landing.object().clone();
        let now_us = self.context.worker.clock.monotonic_us();
        let mut writing = pin!(self.landing.write(bytes, now_us));
        loop {
            match tokio::time::timeout(SLOW_READER_WAIT_MAX, writing.as_mut()).await {
                Ok(result) => return result,
                Err(_) => object.leave_behind(),
            }
        }
    }
}

/// Result of polling for the next part of a response body.
enum BodyProgress {
    /// Number of bytes that were read directly into the object's memory.
    Placed(u64, Result<Progress, Abandoned>),
    /// The next frame, or `None` at the end of the body.
    Frame(Option<Result<Frame, Fault>>),
    /// A reader has requested the end of the flight.
    Stopped,
}

impl BodyProgress {
    fn bytes(&self) -> u64 {
        match self {
            BodyProgress::Placed(bytes, _) => *bytes,
            BodyProgress::Frame(Some(Ok(Frame::Data(bytes)))) => bytes.len() as u64,
            BodyProgress::Frame(_) | BodyProgress::Stopped => 0,
        }
    }
}
