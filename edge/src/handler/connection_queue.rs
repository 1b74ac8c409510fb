//! The requests that wait for a connection to an upstream, and those of them that nobody needs.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use tokio::sync::Notify;

/// The number of requests that wait for a connection to an upstream, because all connections that
/// the upstream may have are in use. A fetch that nobody waits for can make room for one of them,
/// and does not count itself.
#[derive(Default)]
pub struct ConnectionQueue {
    length: Cell<usize>,
    grown: Notify,
}

impl ConnectionQueue {
    /// Waits until a request waits that does not yield.
    pub async fn not_empty(&self) {
        loop {
            let grown = self.grown.notified();
            if self.length.get() > 0 {
                return;
            }
            grown.await;
        }
    }

    fn grow(&self) {
        self.length.set(self.length.get() + 1);
        self.grown.notify_waiters();
    }

    fn shrink(&self) {
        self.length.set(self.length.get() - 1);
    }
}

impl fmt::Debug for ConnectionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConnectionQueue")
            .field(&self.length.get())
            .finish()
    }
}

/// The entries of one request in queues: none, one, or several if the request is hedged.
#[derive(Debug, Default)]
pub struct QueueEntries {
    queues: RefCell<Vec<Rc<ConnectionQueue>>>,
    yields: Cell<bool>,
}

impl QueueEntries {
    /// Sets whether the request yields to others: no fetch makes room for a request that yields.
    pub fn set_yields(&self, yields: bool) {
        if self.yields.replace(yields) == yields {
            return;
        }
        for queue in self.queues.borrow().iter() {
            match yields {
                true => queue.shrink(),
                false => queue.grow(),
            }
        }
    }

    /// Notes that the request has entered this queue.
    pub fn enter(&self, queue: &Rc<ConnectionQueue>) {
        if !self.yields.get() {
            queue.grow();
        }
        self.queues.borrow_mut().push(queue.clone());
    }

    /// Notes that the request has left this queue, which it had entered.
    pub fn leave(&self, queue: &Rc<ConnectionQueue>) {
        let mut queues = self.queues.borrow_mut();
        if let Some(at) = queues.iter().position(|other| Rc::ptr_eq(other, queue)) {
            queues.swap_remove(at);
            if !self.yields.get() {
                queue.shrink();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn counts(queue: &ConnectionQueue) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(queue.not_empty()).poll(&mut cx).is_ready()
    }

    #[test]
    fn a_request_counts_while_it_waits_and_does_not_yield() {
        let queue = Rc::<ConnectionQueue>::default();
        let [one, other] = [(); 2].map(|()| QueueEntries::default());
        assert!(!counts(&queue));
        other.set_yields(true);
        other.enter(&queue);
        assert!(!counts(&queue));
        one.enter(&queue);
        one.enter(&queue);
        assert!(counts(&queue));
        one.set_yields(true);
        one.set_yields(true);
        assert!(!counts(&queue));
        one.leave(&queue);
        one.set_yields(false);
        assert!(counts(&queue), "one of the two entries is left");
        one.leave(&queue);
        assert!(!counts(&queue));
        other.set_yields(false);
        assert!(counts(&queue));
        other.leave(&queue);
        assert!(!counts(&queue));
        one.set_yields(true);
        one.set_yields(false);
        one.leave(&queue);
        assert!(!counts(&queue), "nobody waits");
    }

    #[test]
    fn a_request_that_no_longer_yields_wakes_those_that_can_make_room() {
        let queue = Rc::<ConnectionQueue>::default();
        let one = QueueEntries::default();
        one.set_yields(true);
        one.enter(&queue);
        let mut cx = Context::from_waker(Waker::noop());
        let mut not_empty = pin!(queue.not_empty());
        assert!(not_empty.as_mut().poll(&mut cx).is_pending());
        one.set_yields(false);
        assert!(not_empty.as_mut().poll(&mut cx).is_ready());
    }
}
