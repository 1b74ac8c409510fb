//! The connections to one server that one worker is opening, and the requests that wait for them.
//!
//! A connection of HTTP/2 has room for many requests, so requests that arrive while it is being opened wait for it, as many
//! as it will have room for. All others open connections of their own.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// The connections that are being opened.
#[derive(Default)]
pub(super) struct Openings {
    open: Cell<usize>,
    waiting: Cell<usize>,
    ended: Notify,
}

/// One connection that is being opened. When it is dropped, the requests that wait choose again.
pub(super) struct OpeningGuard(Rc<Openings>);

impl Openings {
    /// Notes that a connection is being opened.
    pub(super) fn begin(self: &Rc<Openings>) -> OpeningGuard {
        self.open.set(self.open.get() + 1);
        OpeningGuard(self.clone())
    }

    /// Whether a connection is being opened that will have room for one more request, if it has room for `streams`.
    pub(super) fn will_have_room(&self, streams: u32) -> bool {
        // Each opening has a request of its own.
        let room = self.open.get() * (streams as usize).saturating_sub(1);
        self.waiting.get() < room
    }

    /// Waits until one of the openings has ended.
    pub(super) async fn ended(&self) {
        let _waiting = Waiting::new(&self.waiting);
        self.ended.notified().await;
    }
}

impl Drop for OpeningGuard {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.ended.notify_waiters();
    }
}

/// Counts a request as waiting.
struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    fn new(count: &'a Cell<usize>) -> Waiting<'a> {
        count.set(count.get() + 1);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn as_many_requests_wait_as_the_connection_will_carry() {
        let openings = Rc::<Openings>::default();
        assert!(!openings.will_have_room(100));
        let guard = openings.begin();
        assert!(!openings.will_have_room(1) && openings.will_have_room(3));
        let mut cx = Context::from_waker(Waker::noop());
        let (mut first, mut second) = (pin!(openings.ended()), Box::pin(openings.ended()));
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        assert!(!openings.will_have_room(3) && openings.will_have_room(4));
        drop(second);
        assert!(openings.will_have_room(3), "a request that has left");
        drop(guard);
        assert_eq!(first.as_mut().poll(&mut cx), Poll::Ready(()));
        assert!(!openings.will_have_room(100));
    }
}
