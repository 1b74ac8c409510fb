//! The end of a cycle: discards the rest of the request, and closes the connection without losing
//! the response.

use std::task::{Context, Poll};

use crate::downstream::connection::Connection;
use crate::downstream::deadlines::ticks;
use crate::downstream::lingering::{self, DISCARD_BYTES_MAX, LINGER};
use crate::downstream::turn::Turn;

use super::cycle::{Cycle, Next, Progress, Stage};

impl Cycle {
    pub(super) fn after_response(&mut self, connection: &mut Connection) -> Progress {
        if self.keep_alive {
            if !self.body.is_complete() {
                self.stage = Stage::Discarding(DISCARD_BYTES_MAX);
                return Progress::Again;
            }
            return Progress::Then(Next::Request);
        }
        // The last acknowledgements arrive after the last write.
        connection.report_received();
        self.lingers |= connection.awaits_acknowledgements();
        if self.lingers || !connection.input().is_empty() {
            return self.begin_lingering(connection);
        }
        match connection.transport.ends_at_once() {
            true => Progress::Then(Next::Close),
            false => self.begin_lingering(connection),
        }
    }

    pub(super) fn begin_lingering(&mut self, connection: &mut Connection) -> Progress {
        connection.transport.shutdown_write();
        connection.transport.discard_input();
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

    /// Reads and discards input after the last byte was written.
    pub(super) fn linger(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> Progress {
        let Stage::Lingering { left, .. } = &mut self.stage else {
            return Progress::Wait;
        };
        match lingering::poll_discard(connection, left, cx) {
            Poll::Ready(()) => Progress::Then(Next::Close),
            Poll::Pending => Progress::Wait,
        }
    }
}
