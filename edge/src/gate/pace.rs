//! Bandwidth limits: a body that splits another body's content into pieces and delays each piece
//! until the client's token bucket has enough tokens for it.
//!
//! The tokens of each piece are reserved separately, so the connections of one client take turns.
//! The more connections wait, the smaller the pieces. All connections therefore get similar shares,
//! and a connection that is closed leaves few reserved tokens unused. While a piece is delayed,
//! `send_timeout` and `min_rate` do not count.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;

use super::bucket::{BucketRate, Reserved, SECOND};
use super::table::{BucketKind, Table};
use crate::handler::{Body, BodyStream, Fault, Frame, Response};
use crate::http::ClientId;
use crate::sys::Clock;
use crate::sys::clock::timer_now;
use crate::telemetry::Counters;

/// Largest size in bytes of a piece, that is, of the content sent at once.
const PIECE_MAX: u64 = 64 << 10;
/// Number of pieces per second into which the content is split at a low rate.
const PIECES_A_SECOND: u64 = 8;
/// Longest time in nanoseconds between reserving tokens for a piece and sending the piece.
const AHEAD_MAX: u64 = 4 * SECOND;

/// Delays the responses to one client, with that client's bucket in the table of all clients.
pub(super) struct Pacer {
    pub(super) table: Arc<Table>,
    pub(super) filling: BucketRate,
    pub(super) client: ClientId,
    pub(super) clock: Clock,
    pub(super) counters: Arc<Counters>,
}

impl Pacer {
    /// Returns the response with its content delayed as necessary.
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

    /// Takes a token for each of these bytes if the bucket has enough of them, and returns whether
    /// it had.
    fn take(&self, bytes: u64) -> bool {
        self.with(|filling, full_at, now| filling.take(full_at, now, bytes, AHEAD_MAX).is_ok())
    }

    /// Reserves tokens for up to this many bytes. If there are none to reserve, the error is the
    /// time after which to try again.
    fn reserve(&self, bytes: u64) -> Result<Reserved, Duration> {
        let reserved =
            self.with(|filling, full_at, now| filling.reserve(full_at, now, bytes, AHEAD_MAX));
        reserved.map_err(Duration::from_nanos)
    }

    fn with<T>(&self, change: impl FnOnce(&BucketRate, &mut u64, u64) -> T) -> T {
        let now = self.clock.monotonic_us().saturating_mul(1000);
        let looked = self
            .table
            .with(self.client, BucketKind::Bytes, now, |full_at| {
                change(&self.filling, full_at, now)
            });
        self.counters.limits_forgotten.add(looked.replaced.into());
        looked.result
    }

    /// Returns the size in bytes of one piece of content at the client's rate.
    fn piece(&self) -> u64 {
        let second = u128::from(self.filling.tokens) * u128::from(SECOND);
        let second = second / u128::from(self.filling.per_ns.max(1));
        let second = u64::try_from(second).unwrap_or(u64::MAX);
        (second / PIECES_A_SECOND).clamp(1, PIECE_MAX)
    }
}

/// A body whose content is delayed to the client's rate.
struct Paced {
    pacer: Pacer,
    piece: u64,
    body: Body,
    /// A frame of the inner body that has not been sent yet.
    held: Option<Frame>,
    /// Number of bytes for which tokens are reserved. The bytes may be sent once the timer has
    /// expired.
    reserved: u64,
    /// Whether tokens are already reserved for the next piece of content. The piece is then not
    /// longer than `reserved`: no further tokens are reserved for it.
    had_turn: bool,
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
            had_turn: false,
            timer: None,
            waiting: false,
            waited: false,
        }
    }

    /// Returns the size in bytes of the next piece of content, or 0 while the content's length is
    /// unknown. If the length is known, tokens are reserved before the inner body is polled: the
    /// inner body may check that a file is unchanged, and that check should happen just before the
    /// piece is sent.
    fn wanted(&self) -> u64 {
        let known = match &self.held {
            Some(frame) => Some(frame.length()),
            None => self.body.length(),
        };
        known.unwrap_or(0).min(self.piece)
    }

    /// Waits until tokens for up to `wanted` bytes are reserved and the bytes may be sent.
    fn poll_turn(&mut self, cx: &mut Context<'_>, wanted: u64) -> Poll<()> {
        loop {
            if let (true, Some(timer)) = (self.waiting, &mut self.timer) {
                ready!(timer.as_mut().poll(cx));
                self.waiting = false;
            }
            let missing = wanted.saturating_sub(self.reserved);
            if missing == 0 || self.had_turn {
                return Poll::Ready(());
            }
            match self.pacer.reserve(missing) {
                Ok(reserved) => {
                    self.reserved += reserved.tokens;
                    self.had_turn = true;
                    self.wait(Duration::from_nanos(reserved.wait_ns));
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

    /// Splits as many bytes off the front of the held frame as tokens are reserved for.
    fn give(&mut self) -> Option<Frame> {
        let bytes = self.wanted().min(self.reserved);
        self.reserved -= bytes;
        self.had_turn = false;
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
        ready!(self.poll_turn(cx, self.wanted()));
        if self.held.is_none() {
            if let Body::Stream(stream) = &mut self.body {
                // A frame longer than the reserved bytes would have to be held in part. While
                // nothing is reserved, because the length of the content is unknown, the frame
                // should have the size of a piece.
                stream.prefer_short(match self.reserved {
                    0 => self.piece,
                    reserved => reserved,
                });
            }
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(frame)) if frame.length() > 0 => self.held = Some(frame),
                other => return Poll::Ready(other),
            }
            if self.reserved == 0 {
                self.had_turn = false;
                ready!(self.poll_turn(cx, self.wanted()));
            }
        }
        Poll::Ready(self.give().map(Ok))
    }

    fn length(&self) -> Option<u64> {
        let held = self.held.as_ref().map_or(0, Frame::length);
        Some(held + self.body.length()?)
    }
}
