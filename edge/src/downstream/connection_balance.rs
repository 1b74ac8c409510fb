//! The balance of connections over the workers. The kernel distributes a few connections unevenly,
//! so a worker that has too many hands the next one over to another worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use crate::sys::limits;
use crate::sys::net::Accepted;

use super::client_totals::ClientTotals;
use super::connection_setup::ConnectionSetup;

/// Most connections that may wait in a worker's inbox.
const INBOX_MAX: usize = 1024;

/// An accepted connection that is being handed over to another worker.
pub(super) struct HandedOver {
    pub(super) accepted: Accepted,
    pub(super) setup: Arc<ConnectionSetup>,
}

/// The number of connections of each worker, and each worker's inbox.
pub struct ConnectionBalance {
    workers: Box<[WorkerEntry]>,
    /// Number of connections of each client.
    pub(super) clients: ClientTotals,
    /// Bytes of memory of the requests that wait for their responses.
    pub(super) request_memory: AtomicU64,
    /// The same for each client, while `request_memory` limits them.
    pub(super) client_request_memory: ClientTotals,
    derived_limit: usize,
    /// Number of idle connections that workers without idle ones want the other workers to close.
    wanted: AtomicUsize,
    /// Notified when `wanted` may have grown.
    room_wanted: Notify,
}

/// A worker's entry. Its count changes with every connection, so each entry has its own cache
/// lines.
#[repr(align(128))]
struct WorkerEntry {
    open: AtomicUsize,
    /// Whether the worker drains and thus takes no further connections.
    draining: AtomicBool,
    sender: mpsc::Sender<HandedOver>,
    inbox: Mutex<Option<mpsc::Receiver<HandedOver>>>,
}

impl ConnectionBalance {
    /// Creates the balance of this many workers, at least one.
    pub fn new(workers: usize) -> Arc<ConnectionBalance> {
        let place = |_| {
            let (sender, inbox) = mpsc::channel(INBOX_MAX);
            WorkerEntry {
                open: AtomicUsize::new(0),
                draining: AtomicBool::new(false),
                sender,
                inbox: Mutex::new(Some(inbox)),
            }
        };
        Arc::new(ConnectionBalance {
            workers: (0..workers.max(1)).map(place).collect(),
            clients: ClientTotals::default(),
            request_memory: AtomicU64::new(0),
            client_request_memory: ClientTotals::default(),
            derived_limit: derived_limit(),
            wanted: AtomicUsize::new(0),
            room_wanted: Notify::new(),
        })
    }

    /// Returns the number of open connections of all workers.
    pub fn open(&self) -> usize {
        self.workers.iter().map(WorkerEntry::open).sum()
    }

    /// Returns the number of open connections of one worker.
    pub fn open_at(&self, worker: usize) -> usize {
        self.workers[worker].open()
    }

    /// Whether the limit of open connections is reached. `connections` is the configured limit, 0
    /// for the derived one.
    pub(super) fn is_full(&self, connections: usize) -> bool {
        let limit = match connections {
            0 => self.derived_limit,
            n => n,
        };
        self.open() >= limit
    }

    /// Requests that other workers close this many idle connections, since the calling worker has
    /// none to close.
    pub(super) fn want_room(&self, connections: usize) {
        if self.workers.len() > 1 {
            self.wanted.fetch_max(connections, Ordering::SeqCst);
            self.room_wanted.notify_waiters();
        }
    }

    /// Returns the number of idle connections that workers still want closed.
    pub(super) fn wanted_room(&self) -> usize {
        self.wanted.load(Ordering::SeqCst)
    }

    /// Waits until a worker wants room. Includes each `want_room` after this call, also before the result is
    /// first polled.
    pub(super) fn room_wanted(&self) -> impl Future<Output = ()> + use<'_> {
        self.room_wanted.notified()
    }

    /// Reports that this worker has closed this many idle connections to make room.
    pub(super) fn made_room(&self, connections: usize) {
        let left = |wanted: usize| Some(wanted.saturating_sub(connections));
        // `left` always returns a value, so the update cannot fail.
        let _ = self
            .wanted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }

    /// Withdraws the request of `want_room`, since the limit is no longer reached.
    pub(super) fn has_room(&self) {
        if self.wanted_room() > 0 {
            self.wanted.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn inbox(&self, worker: usize) -> Option<mpsc::Receiver<HandedOver>> {
        match self.workers.len() {
            1 => None,
            _ => self.workers.get(worker)?.inbox.lock().take(),
        }
    }

    /// Stops handing connections over to this worker. The worker's count still includes the
    /// connections in its inbox.
    pub(super) fn drains(&self, worker: usize) {
        self.workers[worker].draining.store(true, Ordering::SeqCst);
    }

    pub(super) fn opened(&self, worker: usize) {
        self.workers[worker].open.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn closed(&self, worker: usize) {
        self.workers[worker].open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Hands a new connection over to the worker with the fewest, if `worker` would otherwise have
    /// clearly more than that one. If not, returns the connection to the caller. The difference
    /// that is tolerated grows with the number of connections.
    pub(super) fn hand_over(
        &self,
        worker: usize,
        connection: HandedOver,
    ) -> Result<(), HandedOver> {
        if self.workers.len() == 1 {
            return Err(connection);
        }
        let (mut least, mut total) = (worker, 0);
        for (i, place) in self.workers.iter().enumerate() {
            let open = place.open();
            total += open;
            if open < self.workers[least].open() && !place.drains() {
                least = i;
            }
        }
        let margin = 1 + total / 16;
        if self.open_at(worker) < self.open_at(least) + margin {
            return Err(connection);
        }
        // The connection is counted before it is sent, so that the next decision includes it. It is
        // also counted before draining is checked again, so that a worker that begins to drain now
        // waits for it.
        self.opened(least);
        if self.workers[least].drains() {
            self.closed(least);
            return Err(connection);
        }
        self.workers[least]
            .sender
            .try_send(connection)
            .map_err(|e| {
                self.closed(least);
                e.into_inner()
            })
    }
}

impl WorkerEntry {
    fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    fn drains(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }
}

/// Returns the limit of connections that follows from the limit of descriptors. Some descriptors
/// are reserved for origins, files and the process itself.
fn derived_limit() -> usize {
    let descriptors = limits::descriptors();
    descriptors.saturating_sub(descriptors / 16 + 64).max(16)
}
