//! A deadline that is moved with every exchange and rarely reached.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep};

/// A deadline that is cheap to move further away.
///
/// Its timer stays armed for an earlier time and is armed again only when it fires too early, so
/// that moving the deadline is one store.
pub(super) struct Deadline {
    at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the timer will wake the task by itself.
    armed: bool,
}

impl Deadline {
    /// No deadline.
    pub(super) fn none() -> Deadline {
        Deadline {
            at: None,
            timer: None,
            armed: false,
        }
    }

    /// Sets or removes the deadline.
    pub(super) fn set(&mut self, at: Option<Instant>) {
        self.at = at;
    }

    /// Whether the deadline has passed at `now`; if not, the task is woken no later than then.
    /// `cx` must wake the same task each time: an armed timer keeps the waker it has.
    pub(super) fn poll(&mut self, now: Instant, cx: &mut Context<'_>) -> bool {
        let Some(at) = self.at else {
            return false;
        };
        // Also without the timer: it does not fire while a busy socket uses up the task's budget.
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
        // Not within the task's budget: a timer whose poll the budget refused is not armed.
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
