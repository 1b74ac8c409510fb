//! How connections balance over the workers: the kernel deals them out, few of them unevenly, and a
//! worker that got too many hands the next one over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::sys::limits;
use crate::sys::net::Accepted;

use super::addresses::Addresses;
use super::listener::ConnectionSetup;

/// Connections that may lie between two workers.
const INBOX_MAX: usize = 1024;

/// A connection on its way to another worker.
pub(super) struct HandedOver {
    pub(super) accepted: Accepted,
    pub(super) setup: Arc<ConnectionSetup>,
}

/// What the workers know of each other: how many connections each has, and where to send one.
pub struct ConnectionBalance {
    workers: Box<[WorkerEntry]>,
    /// Whose connections they are.
    pub(super) addresses: Addresses,
    derived_limit: usize,
    /// Idle connections that a worker with none wants the others to close.
    wanted: AtomicUsize,
}

/// One worker's count is on cache lines of its own, for it changes with every connection.
#[repr(align(128))]
struct WorkerEntry {
    open: AtomicUsize,
    /// Nothing is handed over to it any more.
    draining: AtomicBool,
    sender: mpsc::Sender<HandedOver>,
    inbox: Mutex<Option<mpsc::Receiver<HandedOver>>>,
}

impl ConnectionBalance {
    /// Over this many workers, at least one.
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
            addresses: Addresses::default(),
            derived_limit: derived_limit(),
            wanted: AtomicUsize::new(0),
        })
    }

    /// Open connections of all workers.
    pub fn open(&self) -> usize {
        self.workers.iter().map(WorkerEntry::open).sum()
    }

    /// Open connections of one worker.
    pub fn open_at(&self, worker: usize) -> usize {
        self.workers[worker].open()
    }

    /// Whether there may be no more; `connections` as in `Options`.
    pub(super) fn is_full(&self, connections: usize) -> bool {
        let limit = match connections {
            0 => self.derived_limit,
            n => n,
        };
        self.open() >= limit
    }

    /// Connections wait, and the worker that would accept them has no idle one to close: others are to
    /// close so many.
    pub(super) fn want_room(&self, connections: usize) {
        if self.workers.len() > 1 {
            self.wanted.fetch_max(connections, Ordering::Relaxed);
        }
    }

    /// How many idle connections are wanted to be closed.
    pub(super) fn wanted_room(&self) -> usize {
        self.wanted.load(Ordering::Relaxed)
    }

    /// So many of them were closed.
    pub(super) fn made_room(&self, connections: usize) {
        let left = |wanted: usize| Some(wanted.saturating_sub(connections));
        // Always given.
        let _ = self
            .wanted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }

    /// The limit is not reached any more.
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

    /// This worker takes what has been handed over to it, and nothing more. What still lies between
    /// two workers is in its count from here on.
    pub(super) fn drains(&self, worker: usize) {
        self.workers[worker].draining.store(true, Ordering::SeqCst);
    }

    pub(super) fn opened(&self, worker: usize) {
        self.workers[worker].open.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn closed(&self, worker: usize) {
        self.workers[worker].open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sends a new connection to the worker with the fewest, if `worker` would have clearly more
    /// with it; else gives it back. Few connections balance evenly, many roughly.
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
        // Counted before it is sent, so that the next decision knows of it; and before it is asked
        // again whether that worker drains: one that begins to now waits for this connection.
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

/// From the limit of descriptors, some of which are for origins, files and ourselves.
fn derived_limit() -> usize {
    let descriptors = limits::descriptors();
    descriptors.saturating_sub(descriptors / 16 + 64).max(16)
}
