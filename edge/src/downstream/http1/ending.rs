//! What comes after a response: the rest of the request, and a close that takes nothing from the client.

use std::task::{Context, Poll};

use super::exchange::{DISCARD_BYTES_MAX, Exchange, Next, Progress, Stage};
use super::wire::{Budget, Wire};

impl Exchange {
    pub(super) fn after_reply(&mut self, wire: &mut Wire) -> Progress {
        if self.account.keep {
            if self.upload.as_ref().is_some_and(|u| !u.is_complete()) {
                self.stage = Stage::Discarding(DISCARD_BYTES_MAX);
                return Progress::Again;
            }
            return Progress::Then(Next::Request);
        }
        if self.account.lingers || !wire.input().is_empty() {
            wire.socket.shutdown_write();
            self.stage = Stage::Lingering(DISCARD_BYTES_MAX);
            return Progress::Again;
        }
        Progress::Then(Next::Close)
    }

    pub(super) fn discard(
        &mut self,
        cx: &mut Context<'_>,
        wire: &mut Wire,
        budget: &mut Budget,
    ) -> Progress {
        let (Stage::Discarding(left), Some(upload)) = (&mut self.stage, &mut self.upload) else {
            return Progress::Then(Next::Close);
        };
        while *left > 0 && !upload.is_complete() {
            if wire.input().is_empty() {
                match wire.poll_fill(cx) {
                    Poll::Ready(Ok(n)) if n > 0 => {}
                    Poll::Ready(_) => return Progress::Then(Next::Close),
                    Poll::Pending => {
                        self.patience.upload_waits = true;
                        return Progress::Wait;
                    }
                }
            }
            match upload.discard(wire.input()) {
                Ok(used) => {
                    wire.used(used);
                    budget.read(used);
                    *left = left.saturating_sub(used as u64);
                }
                Err(_) => *left = 0,
            }
        }
        if upload.is_complete() {
            return Progress::Then(Next::Request);
        }
        wire.socket.shutdown_write();
        self.stage = Stage::Lingering(DISCARD_BYTES_MAX);
        Progress::Again
    }

    /// Reads on after the last byte was written, for closing earlier would reset the connection and
    /// might take the response from the client (RFC 9112 9.6).
    pub(super) fn linger(&mut self, cx: &mut Context<'_>, wire: &mut Wire) -> Progress {
        let Stage::Lingering(left) = &mut self.stage else {
            return Progress::Wait;
        };
        loop {
            let n = wire.input().len();
            wire.used(n);
            *left = left.saturating_sub(n as u64);
            if *left == 0 {
                return Progress::Then(Next::Close);
            }
            match wire.poll_fill(cx) {
                Poll::Ready(Ok(n)) if n > 0 => {}
                Poll::Ready(_) => return Progress::Then(Next::Close),
                Poll::Pending => return Progress::Wait,
            }
        }
    }
}
