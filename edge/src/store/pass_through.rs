//! The window: how bytes pass through an object for which the store has no room.
//!
//! Nobody can join such an object any more. Its flight waits for its readers, and a page that all
//! of them have passed is dropped.

use std::task::{Context, Poll};

use super::object::{Abandoned, Object, State};
use super::page::PAGE;
use super::sync::MutexGuard;

/// How far a flight may run ahead of its slowest reader where the store has no room for its bytes.
pub const WINDOW: u64 = 1 << 20;

impl Object {
    /// From now on bytes that every reader has passed are dropped.
    pub(super) fn begin_pass_through(&self) {
        self.lock().passes_through = true;
    }

    /// Whether flight `id` at `at` may bring more into a passes_through object: not too far ahead of the
    /// slowest reader. `Err` when nobody reads any more.
    pub(super) fn poll_pass_through(
        &self,
        at: u64,
        window: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Abandoned>> {
        let mut state = self.lock();
        state.trim();
        match state.slowest() {
            None => Poll::Ready(Err(Abandoned)),
            Some(slowest) if at < slowest.saturating_add(window) => Poll::Ready(Ok(())),
            Some(_) => {
                state.stalled = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Riders of a passes_through object that hold back one who waits at its end are left behind: the
    /// bytes before its last window go, and whoever still wants them is cut. Called by a flight
    /// that has had to wait for them too long.
    pub fn leave_behind(&self) {
        let mut state = self.lock();
        let end = state.present.end();
        let held_back = state.riders.iter().any(|(_, rider)| rider.at >= end);
        if !state.passes_through || !held_back {
            return;
        }
        let kept = end.saturating_sub(PAGE) / PAGE;
        drop(state.pages.take(0..kept));
        state.present.remove(0..kept * PAGE);
        state.left_behind = kept * PAGE;
        let stalled = state.stalled.take();
        let wakes = state.all_riders();
        drop(state);
        wakes.wake();
        if let Some(waker) = stalled {
            waker.wake();
        }
    }

    /// A rider moved or left: a flight that waited for that goes on.
    pub(super) fn moved(&self, mut state: MutexGuard<'_, State>) {
        if !state.passes_through {
            let passed = state.pass_on();
            drop(state);
            return drop(passed); // frees pages: after the lock
        }
        state.trim();
        let stalled = state.stalled.take();
        drop(state);
        if let Some(waker) = stalled {
            waker.wake();
        }
    }
}

impl State {
    fn slowest(&self) -> Option<u64> {
        let riders = self.riders.iter().map(|(_, rider)| rider.at);
        riders.filter(|&at| at >= self.left_behind).min()
    }

    /// Drops the pages that every rider and every flight has passed, where there is no room to keep
    /// them. The page that a flight is in stays, also where the riders are ahead of it: bytes that
    /// are there have a page.
    fn trim(&mut self) {
        let Some(slowest) = self.slowest().filter(|_| self.passes_through) else {
            return;
        };
        let flights = self.claims.iter().map(|claim| claim.at);
        let passed = flights.fold(slowest, u64::min) / PAGE;
        drop(self.pages.take(0..passed));
        self.present.remove(0..passed * PAGE);
    }
}
