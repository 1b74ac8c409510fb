//! A request's entry in the queue for a connection.

use std::rc::Rc;

use crate::handler::{ConnectionQueue, UpstreamTimings};

/// Counts a request as waiting for a connection until the value is dropped.
pub(super) struct QueueEntry {
    record: Rc<UpstreamTimings>,
    queue: Rc<ConnectionQueue>,
}

impl QueueEntry {
    pub(super) fn new(record: &Rc<UpstreamTimings>, queue: &Rc<ConnectionQueue>) -> QueueEntry {
        record.queue_entries.enter(queue);
        QueueEntry {
            record: record.clone(),
            queue: queue.clone(),
        }
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        self.record.queue_entries.leave(&self.queue);
    }
}
