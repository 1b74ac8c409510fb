//! One waker per connection that passes wake-ups on to whoever drives the connection just now.

use std::sync::Arc;
use std::task::{Wake, Waker};

use parking_lot::Mutex;

/// Everything inside a connection (socket, timer, upload) is given the relay's waker and
/// keeps it; only the relay's target changes as the connection goes from one exchange to the next
/// and to the pool between them.
#[derive(Default)]
pub(super) struct Relay {
    target: Mutex<Option<Waker>>,
}

impl Relay {
    /// A relay, and the waker that speaks to it.
    pub(super) fn new() -> (Arc<Relay>, Waker) {
        let relay = Arc::new(Relay::default());
        (relay.clone(), Waker::from(relay))
    }

    /// From now on this one is woken.
    pub(super) fn aim(&self, waker: &Waker) {
        let mut target = self.target.lock();
        if !target.as_ref().is_some_and(|t| t.will_wake(waker)) {
            *target = Some(waker.clone());
        }
    }
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(waker) = &*self.target.lock() {
            waker.wake_by_ref();
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
    fn wakes_reach_the_target_of_the_moment() {
        let (relay, waker) = Relay::new();
        waker.wake_by_ref();
        let (a, b) = (
            Arc::new(Count(AtomicUsize::new(0))),
            Arc::new(Count(AtomicUsize::new(0))),
        );
        relay.aim(&Waker::from(a.clone()));
        waker.wake_by_ref();
        relay.aim(&Waker::from(b.clone()));
        waker.wake_by_ref();
        assert_eq!(a.0.load(Ordering::SeqCst), 1);
        assert_eq!(b.0.load(Ordering::SeqCst), 1);
    }
}
