//! One waker per connection that passes wake-ups on to whoever drives the connection just now.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Wake, Waker};

use parking_lot::Mutex;

/// Everything inside a connection (socket, timer, hyper's channels) is given the relay's waker and
/// keeps it; only the relay's target changes as the connection goes from one exchange to the next
/// and to the pool between them.
///
/// Exchange and connection are polled by the same task, one right after the other, so what one
/// tells the other needs no wake-up: `muted` keeps those from scheduling the task once more.
#[derive(Default)]
pub(super) struct Relay {
    target: Mutex<Option<Waker>>,
}

thread_local! {
    static MUTED: Cell<bool> = const { Cell::new(false) };
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
        if MUTED.get() {
            return;
        }
        if let Some(waker) = &*self.target.lock() {
            waker.wake_by_ref();
        }
    }
}

/// Runs `act`; what it wakes on this thread through a relay is not passed on. Only for calls after
/// which the caller looks at the outcome itself.
pub(super) fn muted<T>(act: impl FnOnce() -> T) -> T {
    struct Unmute(bool);
    impl Drop for Unmute {
        fn drop(&mut self) {
            MUTED.set(self.0);
        }
    }
    let _unmute = Unmute(MUTED.replace(true));
    act()
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
    fn wakes_reach_the_target_of_the_moment_unless_muted() {
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
        muted(|| waker.wake_by_ref());
        let elsewhere = waker.clone();
        muted(|| std::thread::spawn(move || elsewhere.wake()).join()).expect("no panic");
        assert_eq!(a.0.load(Ordering::SeqCst), 1);
        assert_eq!(b.0.load(Ordering::SeqCst), 2);
    }
}
