//! Retries of one request: how often, and after which pause, a missing byte is fetched again.

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;

use crate::cache::resource_history;
use crate::store::ResourceHistory;

/// Fetches that may fail in a row at one position before a body is cut.
const MISSES_MAX: u32 = 5;
/// Progress in bytes after which earlier failures no longer count as being in a row.
const PROGRESS: u64 = 64 << 10;
/// A request that advances by less than this, in bytes, is still at the same position, where it may
/// try `TRIES_MAX` times.
const STEP: u64 = 4 << 10;
const TRIES_MAX: u32 = 8;

/// The tries of one request to get its next byte.
#[derive(Default)]
pub(super) struct Retry {
    /// Number of fetches that failed in a row, and the position of the last one.
    misses: u32,
    missed_at: u64,
    /// Number of repeated tries at almost the same position, and that position.
    tries: u32,
    tried_at: Option<u64>,
    /// The pause before the next try.
    pause: Option<Pin<Box<Sleep>>>,
}

/// The decision about a missing byte.
pub(super) enum Verdict {
    Try,
    Wait(Duration),
    GiveUp,
}

impl Retry {
    /// Forgets the position of the last try, so that the next one counts as the first.
    pub(super) fn forget_position(&mut self) {
        self.tried_at = None;
    }

    /// Ends the pause, since bytes have arrived.
    pub(super) fn progressed(&mut self) {
        self.pause = None;
    }

    /// Whether the last fetch failed.
    pub(super) fn is_resuming(&self) -> bool {
        self.misses > 0
    }

    /// Waits for the end of the pause. Returns the number of this try at its position, or `None`
    /// for a first try and for one that has waited.
    pub(super) fn poll_pause(&mut self, at: u64, cx: &mut task::Context<'_>) -> Poll<Option<u32>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
            return Poll::Ready(None);
        }
        Poll::Ready(self.count(at))
    }

    /// Begins a pause. The task is woken at its end.
    pub(super) fn begin_pause(&mut self, time: Duration, cx: &mut task::Context<'_>) {
        let mut pause = Box::pin(tokio::time::sleep(time));
        if pause.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        self.pause = Some(pause);
    }

    /// Decides whether to try again, by the resource's history. `begun` says whether the response
    /// has begun.
    pub(super) fn judge(
        &mut self,
        (at, tries): (u64, Option<u32>),
        begun: bool,
        history: &ResourceHistory,
        now_ms: u64,
    ) -> Verdict {
        // After a pause, the first of the waiting requests tries again, and its fetch may have
        // failed already.
        let wait = resource_history::retry_in(history, now_ms);
        if wait.is_some() || (tries.is_some() && history.failures > 0) {
            if self.gives_up(at, begun, history) {
                return Verdict::GiveUp;
            }
        } else if tries.is_some_and(|tries| tries > TRIES_MAX) {
            return Verdict::GiveUp;
        }
        // After a known failure, the history gives all waiting requests the same pause. Without
        // one, this request makes its own pause.
        let alone = tries.filter(|_| history.failures == 0);
        match wait.or(alone.map(resource_history::backoff)) {
            Some(wait) => Verdict::Wait(wait),
            None => Verdict::Try,
        }
    }

    /// Counts the tries at almost the same position.
    fn count(&mut self, at: u64) -> Option<u32> {
        let same = |tried: u64| at < tried.saturating_add(STEP);
        match self.tried_at.is_some_and(same) {
            true => self.tries += 1,
            false => self.tries = 0,
        }
        self.tried_at = Some(at);
        (self.tries > 0).then_some(self.tries)
    }

    /// Counts a failed fetch. Returns whether the request must give up.
    fn gives_up(&mut self, at: u64, begun: bool, history: &ResourceHistory) -> bool {
        if at >= self.missed_at.saturating_add(PROGRESS) {
            self.misses = 0;
        }
        self.missed_at = at;
        self.misses += 1;
        match begun {
            true => self.misses > MISSES_MAX,
            // A request whose response has not begun does not wait for an origin that failed twice
            // in a row.
            false => history.failures >= 2,
        }
    }
}
