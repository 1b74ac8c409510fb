//! Retries of one request: how often, and after which pause, a missing byte is fetched again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;

use crate::cache::fetch::launch::Leader;
use crate::cache::{lookup, resource_history};
use crate::handler::Fault;
use crate::reason::Reason;
use crate::store::{Failure, Object, ResourceHistory, Setback};

/// Fetches that may fail in a row at one position before a body is cut.
const FAILURES_MAX: u32 = 5;
/// Fetches of one request near one position whose bodies may end early: an origin that cuts its
/// bodies does so again.
const SHORT_BODIES_MAX: u32 = 2;
/// Progress in bytes after which earlier failures no longer count as being in a row.
const PROGRESS: u64 = 64 << 10;
/// A request that advances by less than this, in bytes, is still at the same position, where it may
/// try `TRIES_MAX` times.
const SAME_POSITION_BYTES: u64 = 4 << 10;
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

/// The fetches of one request near one position whose bodies ended early.
#[derive(Default)]
pub(super) struct ShortBodies {
    at: u64,
    count: u32,
}

impl ShortBodies {
    /// Counts `more` fetches whose bodies ended before the byte `at`. Returns whether the request
    /// must not fetch this byte again.
    pub(super) fn count(&mut self, at: u64, more: u32) -> bool {
        if !(self.at..self.at.saturating_add(PROGRESS)).contains(&at) {
            *self = ShortBodies { at, count: 0 };
        }
        self.count += more;
        self.count >= SHORT_BODIES_MAX
    }
}

/// The decision about a missing byte.
pub(super) enum Verdict {
    Try,
    Wait(Duration),
    GiveUp,
    /// The request is forwarded separately, for this reason.
    Forward(Reason),
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

    /// Decides whether to try again, by the earlier failures of its range. `begun` says whether the response
    /// has begun.
    pub(super) fn judge(
        &mut self,
        (at, tries): (u64, Option<u32>),
        begun: bool,
        setback: &Setback,
        now_ms: u64,
    ) -> Verdict {
        // All waiting requests continue after the same pause. The fetch of the first one may have
        // failed again by now.
        let wait = resource_history::retry_in(setback, now_ms);
        if wait.is_some() || (tries.is_some() && setback.failures > 0) {
            if self.gives_up(at, begun, setback) {
                return Verdict::GiveUp;
            }
        } else if tries.is_some_and(|tries| tries > TRIES_MAX) {
            return Verdict::GiveUp;
        }
        // After a failed fetch, the setback gives all waiting requests the same pause. If no fetch
        // failed, this request pauses alone.
        let alone = tries.filter(|_| setback.failures == 0);
        match wait.or(alone.map(resource_history::backoff)) {
            Some(wait) => Verdict::Wait(wait),
            None => Verdict::Try,
        }
    }

    /// Counts the tries at almost the same position.
    fn count(&mut self, at: u64) -> Option<u32> {
        let same = |tried: u64| at < tried.saturating_add(SAME_POSITION_BYTES);
        match self.tried_at.is_some_and(same) {
            true => self.tries += 1,
            false => self.tries = 0,
        }
        self.tried_at = Some(at);
        (self.tries > 0).then_some(self.tries)
    }

    /// Counts a failed fetch. Returns whether the request must give up.
    fn gives_up(&mut self, at: u64, begun: bool, setback: &Setback) -> bool {
        if at >= self.missed_at.saturating_add(PROGRESS) {
            self.misses = 0;
        }
        self.missed_at = at;
        self.misses += 1;
        match begun {
            true => self.misses > FAILURES_MAX,
            // A request whose response has not begun does not wait for an origin that failed twice
            // in a row.
            false => setback.failures >= 2,
        }
    }
}

/// Decides about a request whose response has not begun and that must not cause another fetch: its
/// own fetch has failed or was refused, or the origin has just refused a neutral fetch.
pub(super) fn without_another_fetch(leader: &Leader, history: &ResourceHistory) -> Option<Verdict> {
    if leader.result.take_fault().is_some() {
        return Some(Verdict::GiveUp);
    }
    if leader.result.is_refused() {
        return Some(Verdict::Forward(Reason::Unconfirmed));
    }
    let (context, variant) = (&leader.context, leader.table_key.variant);
    let now_ms = context.worker.clock.unix_ms();
    lookup::refusal(context, &leader.request, &[], history, variant, now_ms).map(Verdict::Forward)
}

/// Converts a failure of the store back into the fault that the flight reported.
pub(in crate::cache) fn fault_of(failure: &Failure) -> Fault {
    failure
        .downcast_ref::<Fault>()
        .copied()
        .unwrap_or_else(|| Reason::FetchAbandoned.into())
}

/// Whether a fetch for the object has found another version, and no other fetch has landed since.
pub(super) fn has_changed(object: &Object) -> bool {
    object.failure().is_some_and(|failure| is_change(&failure))
}

/// Whether a fetch failed because it found another version.
pub(super) fn is_change(failure: &Failure) -> bool {
    fault_of(failure).reason == Reason::VersionChanged
}

/// Whether a fetch for the object has found another version, which has taken the object's place in
/// the table. The object itself may be kept until that version is complete.
pub(super) fn is_replaced(leader: &Leader, object: &Arc<Object>) -> bool {
    has_changed(object) && !leader.context.store.holds(leader.table_key, object)
}
