//! Wakers of the streams of a connection. Each one notes its stream and wakes the connection's task, so that the connection
//! polls only the exchanges for which something has happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use parking_lot::Mutex;

/// The wakers of one connection, by slot. A slot that is used again keeps its waker, so an exchange may be polled once for
/// an event of an earlier one.
#[derive(Default)]
pub struct Wakeups {
    shared: Arc<Shared>,
    slots: Vec<Option<(Arc<StreamWaker>, Waker)>>,
}

#[derive(Default)]
struct Shared {
    /// The slots whose wakers were woken since the last `take`, each once.
    woken: Mutex<Vec<usize>>,
    /// The connection's task.
    task: Mutex<Option<Waker>>,
}

struct StreamWaker {
    slot: usize,
    is_woken: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<StreamWaker>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<StreamWaker>) {
        if self.is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.woken.lock().push(self.slot);
        let task = self.shared.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Wakeups {
    /// Sets the task to wake. Has to be called at each poll of the connection.
    pub fn watch(&self, cx: &Context<'_>) {
        let mut task = self.shared.task.lock();
        match &*task {
            Some(task) if task.will_wake(cx.waker()) => {}
            _ => *task = Some(cx.waker().clone()),
        }
    }

    /// Returns the waker of a slot.
    pub fn waker(&mut self, slot: usize) -> Waker {
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, None);
        }
        let (_, waker) = self.slots[slot].get_or_insert_with(|| {
            let stream = Arc::new(StreamWaker {
                slot,
                is_woken: AtomicBool::new(false),
                shared: self.shared.clone(),
            });
            (stream.clone(), Waker::from(stream))
        });
        waker.clone()
    }

    /// Returns the slots whose wakers were woken since the last call.
    pub fn take(&mut self) -> Vec<usize> {
        let woken = std::mem::take(&mut *self.shared.woken.lock());
        for slot in &woken {
            if let Some(Some((stream, _))) = self.slots.get(*slot) {
                stream.is_woken.store(false, Ordering::Release);
            }
        }
        woken
    }

    /// Frees the wakers, which must not be in use.
    pub fn rest(&mut self) {
        self.slots = Vec::new();
        self.shared.woken.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count(Mutex<u32>);

    impl Wake for Count {
        fn wake(self: Arc<Count>) {
            *self.0.lock() += 1;
        }
    }

    #[test]
    fn each_woken_stream_is_reported_once() {
        let count = Arc::new(Count(Mutex::new(0)));
        let task = Waker::from(count.clone());
        let mut wakeups = Wakeups::default();
        wakeups.watch(&Context::from_waker(&task));
        let (third, first) = (wakeups.waker(3), wakeups.waker(1));
        third.wake_by_ref();
        third.wake_by_ref();
        first.wake();
        assert_eq!((wakeups.take(), *count.0.lock()), (vec![3, 1], 2));
        assert!(wakeups.take().is_empty());
        third.wake();
        assert_eq!(wakeups.take(), [3]);
    }
}
