//! Limits how often small pieces of a request's content are sent to the origin.

use std::task::{Context, Poll};
use std::time::Duration;

use super::deadline::Deadline;
use crate::sys::clock::timer_now;

/// Content of fewer bytes is a small piece.
const SMALL_BYTES: usize = 1 << 10;
/// Number of small pieces of each request that are sent without a wait.
const FREE_PIECES: u32 = 32;
/// Time after each further small piece in which no content is sent. Meanwhile the content that
/// arrives is gathered.
const INTERVAL: Duration = Duration::from_millis(2);

/// The small pieces of one request's content. A client that sends single bytes quickly causes one
/// write per interval, and a client that sends them slowly waits for nothing.
pub(super) struct SmallPieces {
    sent: u32,
    waits: bool,
    deadline: Deadline,
}

impl Default for SmallPieces {
    fn default() -> SmallPieces {
        SmallPieces {
            sent: 0,
            waits: false,
            deadline: Deadline::none(),
        }
    }
}

impl SmallPieces {
    /// Begins a request.
    pub(super) fn begin(&mut self) {
        (self.sent, self.waits) = (0, false);
    }

    /// Notes that a piece of this many bytes is sent.
    pub(super) fn note(&mut self, bytes: usize) {
        if bytes >= SMALL_BYTES {
            return;
        }
        self.sent = self.sent.saturating_add(1);
        if self.sent > FREE_PIECES {
            self.waits = true;
            self.deadline.set(timer_now().checked_add(INTERVAL));
        }
    }

    /// Ready if the next piece may be sent. If not, `cx` is woken when it may.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.waits {
            self.waits = !self.deadline.poll(timer_now(), cx);
        }
        match self.waits {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }
}
