//! Latches of the test origin, which hold bodies or heads at a chosen position until the test releases them. With latches,
//! tests need no sleeps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::pauses;

/// A latch that holds bodies or heads after a limit in bytes, counted from the beginning of each. Clones of a latch share
/// one limit.
#[derive(Debug, Clone)]
pub struct Latch {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    opened: Notify,
}

#[derive(Debug)]
struct State {
    limit: u64,
    held: usize,
    furthest: u64,
}

impl Latch {
    /// Creates a latch that lets `limit` bytes of each body pass and holds the rest.
    pub fn at(limit: u64) -> Latch {
        Latch {
            inner: Arc::new(Inner {
                state: Mutex::new(State {
                    limit,
                    held: 0,
                    furthest: 0,
                }),
                changed: Condvar::new(),
                opened: Notify::new(),
            }),
        }
    }

    /// Creates a latch that lets no bytes pass.
    pub fn closed() -> Latch {
        Latch::at(0)
    }

    /// Opens the latch for good.
    pub fn release(&self) {
        self.advance_to(u64::MAX);
    }

    /// Sets the limit to `limit` bytes. If more bytes have passed already, only later ones are held.
    pub fn advance_to(&self, limit: u64) {
        pauses::point();
        self.inner.state.lock().limit = limit;
        self.inner.opened.notify_waiters();
    }

    /// Returns the number of bodies and heads that the latch holds now.
    pub fn held(&self) -> usize {
        self.inner.state.lock().held
    }

    /// Waits until the latch holds at least `count` bodies or heads at the same time. Returns false after `timeout`.
    pub fn wait_held(&self, count: usize, timeout: Duration) -> bool {
        self.wait(timeout, |state| state.held >= count)
    }

    /// Waits until at least `bytes` bytes of one body have passed the latch. Returns false after `timeout`.
    pub fn wait_passed(&self, bytes: u64, timeout: Duration) -> bool {
        self.wait(timeout, |state| state.furthest >= bytes)
    }

    fn wait(&self, timeout: Duration, holds: impl Fn(&State) -> bool) -> bool {
        pauses::point();
        let deadline = Instant::now() + timeout;
        let mut state = self.inner.state.lock();
        while !holds(&state) {
            if self
                .inner
                .changed
                .wait_until(&mut state, deadline)
                .timed_out()
            {
                return holds(&state);
            }
        }
        true
    }

    /// Waits until the latch lets bytes after the first `position` bytes pass. Returns the number of those bytes.
    pub(super) async fn pass(&self, position: u64) -> u64 {
        let mut held = None;
        loop {
            let opened = self.inner.opened.notified();
            tokio::pin!(opened);
            opened.as_mut().enable();
            let limit = self.inner.state.lock().limit;
            if limit > position {
                return limit - position;
            }
            held.get_or_insert_with(|| Held::new(&self.inner));
            opened.await;
        }
    }

    pub(super) fn passed(&self, position: u64) {
        let mut state = self.inner.state.lock();
        state.furthest = state.furthest.max(position);
        self.inner.changed.notify_all();
    }
}

/// Counts a body or head as held until the value is dropped, also if the connection ends.
struct Held<'a>(&'a Inner);

impl<'a> Held<'a> {
    fn new(inner: &'a Inner) -> Self {
        inner.state.lock().held += 1;
        inner.changed.notify_all();
        Held(inner)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.state.lock().held -= 1;
        self.0.changed.notify_all();
    }
}
