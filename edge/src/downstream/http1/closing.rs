//! The end of a cycle: discards the rest of the request, and closes the connection without losing
//! the response.

use std::task::{Context, Poll};
use std::time::Duration;

use crate::downstream::connection::Connection;
use crate::downstream::deadlines::ticks;
use crate::downstream::turn::Turn;

use super::cycle::{Cycle, DISCARD_BYTES_MAX, Next, Progress, Stage};

/// Longest time that a client may go on sending after the server has closed its direction of the
/// connection.
const LINGER: Duration = Duration::from_secs(2);

impl Cycle {
    pub(super) fn after_response(&mut self, connection: &mut Connection) -> Progress {
        if self.keep_alive {
            if !self.body.is_complete() {
                self.stage = Stage::Discarding(DISCARD_BYTES_MAX);
                return Progress::Again;
            }
            return Progress::Then(Next::Request);
        }
        if self.lingers || !connection.input().is_empty() {
            return self.begin_lingering(connection);
        }
        Progress::Then(Next::Close)
    }

    fn begin_lingering(&mut self, connection: &mut Connection) -> Progress {
        connection.transport.shutdown_write();
        let now = connection.worker.deadlines.now();
        self.stage = Stage::Lingering {
            left: DISCARD_BYTES_MAX,
            until: now.saturating_add(ticks(LINGER)),
        };
        Progress::Again
    }

    pub(super) fn discard(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        turn: &mut Turn,
    ) -> Progress {
        let (Stage::Discarding(left), Some(intake)) = (&mut self.stage, &mut self.exchange.intake)
        else {
            return Progress::Then(Next::Close);
        };
        while *left > 0 && !self.body.is_complete() {
            if connection.input().is_empty() {
                match connection.poll_fill(cx) {
                    Poll::Ready(Ok(n)) if n > 0 => {}
                    Poll::Ready(_) => return Progress::Then(Next::Close),
                    Poll::Pending => {
                        self.exchange.timeouts.awaits_client_data = true;
                        return Progress::Wait;
                    }
                }
            }
            match self.body.discard(intake, connection.input()) {
                Ok(used) => {
                    connection.consume(used);
                    turn.read(used);
                    *left = left.saturating_sub(used as u64);
                }
                Err(_) => *left = 0,
            }
        }
        match self.body.is_complete() {
            true => Progress::Then(Next::Request),
            false => self.begin_lingering(connection),
        }
    }

    /// Reads and discards input after the last byte was written. Closing earlier would reset the
    /// connection, which may destroy the response before the client has read it (RFC 9112 9.6).
    pub(super) fn linger(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> Progress {
        let Stage::Lingering { left, .. } = &mut self.stage else {
            return Progress::Wait;
        };
        loop {
            let n = connection.input().len();
            connection.consume(n);
            *left = left.saturating_sub(n as u64);
            if *left == 0 {
                return Progress::Then(Next::Close);
            }
            match connection.poll_fill(cx) {
                Poll::Ready(Ok(n)) if n > 0 => {}
                Poll::Ready(_) => return Progress::Then(Next::Close),
                Poll::Pending => return Progress::Wait,
            }
        }
    }
}
