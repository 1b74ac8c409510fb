//! One waker per connection, which wakes the task that uses the connection at the moment.

use std::sync::Arc;
use std::task::{Wake, Waker};

use parking_lot::Mutex;

/// Forwards wake-ups to a target that may change.
///
/// The socket, timer and upload of a connection get one waker for the connection's whole life. Only
/// the target of that waker changes, when the connection passes from an exchange to the pool or to
/// the next exchange.
#[derive(Default)]
pub(super) struct WakeForwarder {
    target: Mutex<Option<Waker>>,
}

impl WakeForwarder {
    /// Creates a forwarder, and the waker whose wake-ups it forwards.
    pub(super) fn new() -> (Arc<WakeForwarder>, Waker) {
        let forwarder = Arc::new(WakeForwarder::default());
        (forwarder.clone(), Waker::from(forwarder))
    }

    /// Forwards wake-ups to this waker from now on.
    pub(super) fn set_target(&self, waker: &Waker) {
        let mut target = self.target.lock();
        if !target.as_ref().is_some_and(|t| t.will_wake(waker)) {
            *target = Some(waker.clone());
        }
    }
}

impl Wake for WakeForwarder {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The lock is released first, since a waker may run code that sets another target.
        let target = self.target.lock().clone();
        if let Some(waker) = target {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_wake_up_reaches_the_current_target() {
        let (forwarder, waker) = WakeForwarder::new();
        waker.wake_by_ref();
        let (a, b) = (
            Arc::new(Count(AtomicUsize::new(0))),
            Arc::new(Count(AtomicUsize::new(0))),
        );
        forwarder.set_target(&Waker::from(a.clone()));
        waker.wake_by_ref();
        forwarder.set_target(&Waker::from(b.clone()));
        waker.wake_by_ref();
        assert_eq!(a.0.load(Ordering::SeqCst), 1);
        assert_eq!(b.0.load(Ordering::SeqCst), 1);
    }

    /// Sets itself as the target when it is woken.
    struct Retarget(Arc<WakeForwarder>, AtomicUsize);

    impl Wake for Retarget {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::SeqCst);
            let forwarder = self.0.clone();
            assert!(forwarder.target.try_lock().is_some(), "no lock is held");
            forwarder.set_target(&Waker::from(self));
        }
    }

    #[test]
    fn a_woken_task_may_set_the_target() {
        let (forwarder, waker) = WakeForwarder::new();
        let task = Arc::new(Retarget(forwarder.clone(), AtomicUsize::new(0)));
        forwarder.set_target(&Waker::from(task.clone()));
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert_eq!(task.1.load(Ordering::SeqCst), 2);
    }
}
