//! The length of the queue of requests that wait for a connection to an upstream.

use std::cell::Cell;

use tokio::sync::Notify;

/// The number of requests that wait for a connection to an upstream, because all connections that
/// the upstream may have are in use. A fetch that nobody waits for can make room for one of them.
#[derive(Debug, Default)]
pub struct ConnectionQueue {
    length: Cell<usize>,
    grown: Notify,
}

impl ConnectionQueue {
    /// Sets the number of waiting requests.
    pub fn set_length(&self, length: usize) {
        let before = self.length.replace(length);
        if length > before {
            self.grown.notify_waiters();
        }
    }

    /// Waits until the queue is not empty.
    pub async fn not_empty(&self) {
        loop {
            let grown = self.grown.notified();
            if self.length.get() > 0 {
                return;
            }
            grown.await;
        }
    }
}
