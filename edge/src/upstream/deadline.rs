//! A deadline that is moved with every exchange and rarely reached.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

/// The timer behind it stays armed for the time first asked for and is only set anew when it fires
/// too early, so that moving the deadline further away is one store.
pub(super) struct Deadline {
    at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// Without a limit.
    pub(super) fn none() -> Deadline {
        Deadline {
            at: None,
            timer: None,
        }
    }

    /// Sets or lifts the limit.
    pub(super) fn set(&mut self, at: Option<Instant>) {
        self.at = at;
    }

    /// Whether the limit has passed at `now`; otherwise the task is woken no later than at it.
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
        if timer.deadline() > at {
            timer.as_mut().reset(at);
        }
        while let Poll::Ready(()) = timer.as_mut().poll(cx) {
            if timer.deadline() >= at {
                return true;
            }
            timer.as_mut().reset(at);
        }
        false
    }
}
