//! Lets a flight wait until nobody reads its object.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::object::Object;

/// Waits until an object has no reader. After that, it may be polled again.
pub struct Unread<'a> {
    object: &'a Object,
    waker: Option<Waker>,
}

impl Object {
    /// Waits until the object has no reader.
    pub fn unread(&self) -> Unread<'_> {
        Unread {
            object: self,
            waker: None,
        }
    }
}

impl Unread<'_> {
    fn withdraw(&mut self) {
        if let Some(waker) = self.waker.take() {
            let waiting = &mut self.object.lock().unread;
            if let Some(place) = waiting.iter().position(|other| other.will_wake(&waker)) {
                waiting.swap_remove(place);
            }
        }
    }
}

impl Future for Unread<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.withdraw();
        let object = self.object;
        let mut state = object.lock();
        if state.riders.is_empty() {
            return Poll::Ready(());
        }
        state.unread.push(cx.waker().clone());
        drop(state);
        self.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        self.withdraw();
    }
}
