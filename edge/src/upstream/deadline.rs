//! Implements a deadline that is moved with every exchange and rarely passes.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep};

/// A deadline that is cheap to move further away.
///
/// Its timer stays armed for an earlier time. The timer is armed again only when it fires too
/// early, so that moving the deadline only stores a time.
pub(super) struct Deadline {
    at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the timer is armed, so that the runtime wakes the task when the timer fires.
    armed: bool,
}

impl Deadline {
    /// Creates a deadline that is not set, so that it never expires.
    pub(super) fn none() -> Deadline {
        Deadline {
            at: None,
            timer: None,
            armed: false,
        }
    }

    /// Sets the deadline, or removes it with `None`.
    pub(super) fn set(&mut self, at: Option<Instant>) {
        self.at = at;
    }

    /// Returns whether the deadline has passed at `now`. If not, the task of `cx` is woken at the
    /// deadline at the latest. All calls must pass the same task's `cx`, since an armed timer keeps
    /// the waker that it got first.
    pub(super) fn poll(&mut self, now: Instant, cx: &mut Context<'_>) -> bool {
        let Some(at) = self.at else {
            return false;
        };
        // `now` decides, even if the timer has not fired: the timer does not fire while a busy
        // socket uses up the task's budget in the runtime.
        if now >= at {
            return true;
        }
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if self.armed && timer.deadline() <= at && timer.deadline() > now {
            return false;
        }
        if timer.deadline() > at || timer.is_elapsed() {
            timer.as_mut().reset(at);
        }
        // The poll ignores the task's budget in the runtime, since a timer whose poll the budget
        // refuses is not armed.
        while let Poll::Ready(()) = pin!(unconstrained(timer.as_mut())).poll(cx) {
            if timer.deadline() >= at {
                return true;
            }
            timer.as_mut().reset(at);
        }
        self.armed = true;
        false
    }
}
