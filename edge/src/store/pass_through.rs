//! Pass-through: serving an object for whose bytes the store has no room.
//!
//! No request can join such an object any more. Its flight waits for the object's readers, and pages that all readers have passed are
//! dropped.

use std::task::{Context, Poll};

use super::object::{Abandoned, Object, State};
use super::page::PAGE;
use super::sync::MutexGuard;

/// Maximum distance in bytes between a flight and its slowest reader if the store has no room for the bytes.
pub const WINDOW: u64 = 1 << 20;

impl Object {
    /// Makes the object pass through: bytes that every reader has passed are dropped from now on.
    pub(super) fn begin_pass_through(&self) {
        self.lock().passes_through = true;
    }

    /// Waits until a flight whose next byte is `at` may add bytes to an object that passes through: until the flight is less than `window`
    /// bytes ahead of the slowest reader.
    ///
    /// # Errors
    ///
    /// The object has no readers any more.
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

    /// Drops all bytes before the last page of an object that passes through, if a reader that has read everything waits for slower
    /// readers. The slower readers lose their bytes and fail. A flight calls this when it has waited for its readers too long.
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
        state.rare().left_behind = kept * PAGE;
        let stalled = state.stalled.take();
        let wakes = state.all_riders();
        drop(state);
        wakes.wake();
        if let Some(waker) = stalled {
            waker.wake();
        }
    }

    /// Wakes a flight that waits for riders to read more; called when a rider has moved or left.
    pub(super) fn moved(&self, mut state: MutexGuard<'_, State>) {
        if !state.passes_through {
            let passed = state.pass_on();
            drop(state);
            return drop(passed); // frees pages, so it runs after unlocking
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
        let left_behind = self.rare.as_ref().map_or(0, |rare| rare.left_behind);
        riders.filter(|&at| at >= left_behind).min()
    }

    /// Drops the pages that every reader and every flight has passed. The page that a flight writes to
    /// stays, even if all readers are ahead of it, since published bytes must have a page.
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
