//! Requests to end a flight early, from a reader that another flight is to serve.

use std::task::{Context, Poll};

use super::landing::Landing;
use super::object::{Object, State};
use super::rare::Stoppable;

impl Landing {
    /// Waits until a reader has requested the end of this flight by `Object::stop_flight_to`.
    pub fn poll_stop(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.object().lock();
        let one = state.stoppable(self.id());
        if one.requested {
            return Poll::Ready(());
        }
        match &mut one.waker {
            Some(there) => there.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Object {
    /// Requests the end of the flight that has claimed the byte `at`. The flight ends when it calls
    /// `poll_stop`.
    pub fn stop_flight_to(&self, at: u64) {
        let mut state = self.lock();
        let Some(id) = state.claim_at(at).map(|claim| claim.id) else {
            return;
        };
        let one = state.stoppable(id);
        one.requested = true;
        let waker = one.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    /// Returns the entry of a flight, which the first call adds.
    fn stoppable(&mut self, id: u64) -> &mut Stoppable {
        let stoppable = &mut self.rare().stoppable;
        let known = stoppable.iter().position(|one| one.flight == id);
        let at = known.unwrap_or_else(|| {
            stoppable.push(Stoppable {
                flight: id,
                requested: false,
                waker: None,
            });
            stoppable.len() - 1
        });
        &mut stoppable[at]
    }

    /// Forgets a flight that has ended.
    pub(super) fn forget_stoppable(&mut self, id: u64) {
        self.change_rare(|rare| rare.stoppable.retain(|one| one.flight != id));
    }
}
