//! Content no faster than a client may have it: a body around a body, which cuts what comes into pieces
//! and holds each back until its bytes have come into the client's bucket.
//!
//! Bytes are reserved piece by piece, so that connections of a client have their turns in the order in which they
//! asked; those that are too many for that ask again. So whoever goes away leaves no long queue behind. While a piece waits nothing waits for the client: no time of its counts (`send_timeout`, `min_rate`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;

use super::bucket::Filling;
use super::table::{ClientId, Table, Which};
use crate::handler::{Body, BodyStream, Fault, Frame, Response};
use crate::sys::Clock;
use crate::sys::clock::timer_now;
use crate::telemetry::Counters;

/// Largest piece, bytes.
const PIECE_MAX: u64 = 64 << 10;
/// Pieces a second that a slow client gets.
const PIECES_A_SECOND: u64 = 8;
/// How far ahead pieces are reserved, nanoseconds.
const AHEAD_MAX: u64 = 4 * super::SECOND;

/// A client's way to its bucket.
pub(super) struct Pacer {
    pub(super) table: Arc<Table>,
    pub(super) filling: Filling,
    pub(super) client: ClientId,
    pub(super) clock: Clock,
    pub(super) counters: Arc<Counters>,
}

impl Pacer {
    /// The response, its content held back where it has to be.
    pub(super) fn slow(self, mut response: Response) -> Response {
        response.body = match response.body {
            Body::Empty => Body::Empty,
            Body::Bytes(bytes) if bytes.is_empty() || self.take(bytes.len() as u64) => {
                Body::Bytes(bytes)
            }
            body => Body::stream(Paced::new(self, body)),
        };
        response
    }

    /// All of a small content at once, if that much is there.
    fn take(&self, bytes: u64) -> bool {
        self.with(|filling, full_at, now| filling.take(full_at, now, bytes).is_ok())
    }

    /// How long to wait before so many bytes may go; the error is how long before asking again.
    fn reserve(&self, bytes: u64) -> Result<Duration, Duration> {
        let wait =
            self.with(|filling, full_at, now| filling.reserve(full_at, now, bytes, AHEAD_MAX));
        wait.map(Duration::from_nanos).map_err(Duration::from_nanos)
    }

    fn with<T>(&self, change: impl FnOnce(&Filling, &mut u64, u64) -> T) -> T {
        let now = self.clock.monotonic_us().saturating_mul(1000);
        let looked = self.table.with(self.client, Which::Bytes, now, |full_at| {
            change(&self.filling, full_at, now)
        });
        self.counters.limits_forgotten.add(looked.forgot.into());
        looked.result
    }

    /// The bytes that go at once.
    fn piece(&self) -> u64 {
        let second = u128::from(self.filling.tokens) * u128::from(super::SECOND);
        let second = second / u128::from(self.filling.per_ns.max(1));
        let second = u64::try_from(second).unwrap_or(u64::MAX);
        (second / PIECES_A_SECOND).clamp(1, PIECE_MAX)
    }
}

/// A body that is held back.
struct Paced {
    pacer: Pacer,
    piece: u64,
    body: Body,
    /// What came of the body and has not gone.
    held: Option<Frame>,
    /// Bytes of it that are reserved.
    reserved: u64,
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    waited: bool,
}

impl Paced {
    fn new(pacer: Pacer, body: Body) -> Paced {
        Paced {
            piece: pacer.piece(),
            pacer,
            body,
            held: None,
            reserved: 0,
            timer: None,
            waiting: false,
            waited: false,
        }
    }

    /// Waits until the next piece of what is held is reserved, and may go.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let (true, Some(timer)) = (self.waiting, &mut self.timer) {
                ready!(timer.as_mut().poll(cx));
                self.waiting = false;
            }
            if self.reserved > 0 {
                return Poll::Ready(());
            }
            let held = self.held.as_ref().map_or(0, Frame::length);
            let piece = held.min(self.piece);
            match self.pacer.reserve(piece) {
                Ok(wait) => {
                    self.reserved = piece;
                    self.wait(wait);
                }
                Err(wait) => self.wait(wait),
            }
        }
    }

    fn wait(&mut self, time: Duration) {
        if time.is_zero() {
            return;
        }
        if !std::mem::replace(&mut self.waited, true) {
            self.pacer.counters.responses_paced.add(1);
        }
        self.waiting = true;
        let until = timer_now() + time;
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(until),
            None => self.timer = Some(Box::pin(tokio::time::sleep_until(until))),
        }
    }

    /// The piece that is reserved, off the front of what is held.
    fn give(&mut self) -> Option<Frame> {
        let bytes = std::mem::take(&mut self.reserved);
        match self.held.as_mut()? {
            Frame::Data(data) if (data.len() as u64) > bytes => {
                Some(Frame::Data(data.split_to(bytes as usize)))
            }
            Frame::File(part) if part.range.end - part.range.start > bytes => {
                let mut piece = part.clone();
                piece.range.end = piece.range.start + bytes;
                part.range.start = piece.range.end;
                Some(Frame::File(piece))
            }
            _ => self.held.take(),
        }
    }
}

impl BodyStream for Paced {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        if self.held.is_none() {
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(frame)) if frame.length() > 0 => self.held = Some(frame),
                other => return Poll::Ready(other),
            }
        }
        ready!(self.poll_turn(cx));
        Poll::Ready(self.give().map(Ok))
    }

    fn length(&self) -> Option<u64> {
        let held = self.held.as_ref().map_or(0, Frame::length);
        Some(held + self.body.length()?)
    }
}
