//! The task of a connection.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::state::Shared;
use crate::sys::clock::timer_now;
use crate::upstream::deadline::Deadline;

/// Reads and writes until the connection ends.
pub(super) struct Task {
    shared: Rc<Shared>,
    deadline: Deadline,
}

impl Task {
    pub(super) fn new(shared: Rc<Shared>) -> Task {
        Task {
            shared,
            deadline: Deadline::none(),
        }
    }
}

impl Future for Task {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Task { shared, deadline } = self.get_mut();
        let now = timer_now();
        if shared.with(|state| state.drive(cx, now)).is_ready() {
            return Poll::Ready(());
        }
        deadline.set(shared.read(|state| state.next_tick()));
        if deadline.poll(now, cx) {
            shared.with(|state| state.tick(now));
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Task {
    /// Ends what is left of the connection, also after a panic.
    fn drop(&mut self) {
        self.shared.with(|state| state.close());
        // The permit is dropped when the state is not in use, since it may be given to a waiting request at once.
        let permit = self.shared.with(|state| state.permit.take());
        drop(permit);
    }
}
