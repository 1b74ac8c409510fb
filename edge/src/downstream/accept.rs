//! Accepts connections: in bounded batches, within the limit of connections, and without spinning
//! when descriptors run out. When the worker stops, also accepts the connections that are still in
//! the accept queue.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::handler::Peer;
use crate::sys::listener::{Listener, is_exhausted};
use crate::sys::net::Accepted;

use super::connection::Connection;
use super::connection_balance::HandedOver;
use super::connection_setup::ConnectionSetup;
use super::deadlines::{TICK, ticks};
use super::protocol;
use super::transport::Transport;
use super::worker::Worker;

/// Most connections accepted before other tasks get their turn.
const BATCH_MAX: usize = 64;
/// Most connections that an accept queue holds: the highest value of `net.core.somaxconn`.
const ACCEPT_QUEUE_MAX: usize = 65_535;
/// Most idle connections closed at a time to make room for new ones.
const EVICTED_MAX: usize = 16;

/// Most connections that each worker closes unserved per tick while descriptors have run out.
const SHED_MAX: usize = 64;
/// Shortest time between two log messages about descriptors having run out.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

/// Reason why a batch of accepted connections ended.
enum BatchEnd {
    /// The accept queue is empty.
    Drained,
    /// The accept queue may hold more connections.
    More,
    /// The limit of connections is reached. Further ones wait in the kernel's accept queue.
    NoRoom,
    /// Descriptors or memory have run out. Trying again at once would spin.
    Exhausted,
    /// Accepting failed, and might fail again at once.
    Failed,
}

impl Worker {
    /// Accepts connections until the worker drains. Then accepts the rest of the accept queue,
    /// since closing a listening socket resets the connections in its queue, and returns.
    pub async fn listen(self: &Rc<Self>, mut listener: Listener, setup: Arc<ConnectionSetup>) {
        self.listening.set(self.listening.get() + 1);
        let _listening = Listening(self.clone());
        while !self.is_draining() {
            let stop = self.stopping.notified();
            let step = async {
                let readable = poll_fn(|cx| listener.poll_readable(cx)).await;
                match readable {
                    Ok(()) => self.accept_batch(&mut listener, &setup).await,
                    Err(_) => BatchEnd::Failed,
                }
            };
            let batch = tokio::select! {
                biased;
                () = stop => break,
                batch = step => batch,
            };
            match batch {
                BatchEnd::Drained => {}
                BatchEnd::More => tokio::task::yield_now().await,
                BatchEnd::Failed => tokio::time::sleep(TICK).await,
                // This task yields, so that the tasks of the closed connections run first and free
                // their descriptors.
                BatchEnd::NoRoom | BatchEnd::Exhausted if self.make_room() => {
                    tokio::task::yield_now().await;
                }
                BatchEnd::NoRoom => tokio::time::sleep(TICK).await,
                BatchEnd::Exhausted => {
                    self.shed(&mut listener).await;
                    tokio::time::sleep(TICK).await;
                }
            }
        }
        self.accept_the_rest(&mut listener, &setup).await;
    }

    /// Closes the connections that have been idle longest. Returns whether any connection was idle.
    fn make_room(&self) -> bool {
        let evicted = self.deadlines.expire_idle(EVICTED_MAX);
        self.counters.connections_refused.add(evicted as u64);
        if evicted == 0 {
            self.balance.want_room(EVICTED_MAX);
        }
        evicted > 0
    }

    /// Closes idle connections if another worker needs room for new ones: all workers share one
    /// limit of connections.
    pub(super) fn make_room_for_others(&self) {
        let wanted = self.balance.wanted_room();
        if wanted > 0 {
            let evicted = self.deadlines.expire_idle(wanted);
            self.counters.connections_refused.add(evicted as u64);
            self.balance.made_room(evicted);
        }
    }

    /// Accepts some connections with the reserved descriptor and closes them, so that their clients
    /// fail at once rather than after a timeout.
    async fn shed(&self, listener: &mut Listener) {
        self.log_exhaustion();
        for _ in 0..SHED_MAX {
            let ended = poll_fn(|cx| {
                let mut reserve = self.reserve.borrow_mut();
                // The connection is closed inside the closure, so the reserved descriptor is free
                // again afterwards.
                Poll::Ready(reserve.lend(|| matches!(listener.accept(cx), Ok(Some(_)))))
            });
            match ended.await {
                Some(true) => self.counters.connections_shed.add(1),
                _ => return,
            }
        }
    }

    fn log_exhaustion(&self) {
        self.pass();
        let now = self.deadlines.now();
        let due = self.exhaustion_logged_from.get();
        if due.is_none_or(|due| due <= now) {
            let next = now.saturating_add(ticks(LOGGED_EVERY));
            self.exhaustion_logged_from.set(Some(next));
            tracing::error!(
                target: "sluice::event::process::exhausted",
                "out of file descriptors or memory: new connections are closed without a response \
                 (`sluice check --system` says what to change)"
            );
        }
    }

    async fn accept_batch(
        self: &Rc<Self>,
        listener: &mut Listener,
        setup: &Arc<ConnectionSetup>,
    ) -> BatchEnd {
        for _ in 0..BATCH_MAX {
            if self.balance.is_full(self.serving().options.connections) {
                // Idle connections are closed only if a new connection waits in the accept queue.
                return match poll_fn(|cx| Poll::Ready(listener.has_waiting(cx))).await {
                    Ok(true) => BatchEnd::NoRoom,
                    Ok(false) => BatchEnd::Drained,
                    Err(_) => BatchEnd::Failed,
                };
            }
            self.balance.has_room();
            match accept(listener).await {
                Ok(Some(accepted)) => self.place(accepted, setup),
                Ok(None) => return BatchEnd::Drained,
                Err(error) if is_exhausted(&error) => return BatchEnd::Exhausted,
                Err(_) => return BatchEnd::Failed,
            }
        }
        BatchEnd::More
    }

    async fn accept_the_rest(
        self: &Rc<Self>,
        listener: &mut Listener,
        setup: &Arc<ConnectionSetup>,
    ) {
        // Clients of a Unix socket could otherwise fill the queue for as long as it is emptied. Those of a TCP socket can, so the number
        // of connections is limited to the length of the longest queue that the kernel allows.
        listener.refuse_more();
        for _ in 0..ACCEPT_QUEUE_MAX {
            let Ok(Some(accepted)) = accept(listener).await else {
                return;
            };
            self.start(accepted, setup, true);
        }
    }

    /// Serves a new connection on this worker, or hands it over to a worker with fewer connections.
    fn place(self: &Rc<Self>, accepted: Accepted, setup: &Arc<ConnectionSetup>) {
        let setup = setup.clone();
        match self
            .balance
            .hand_over(self.index, HandedOver { accepted, setup })
        {
            Ok(()) => self.counters.connections_handed_over.add(1),
            Err(kept) => self.start(kept.accepted, &kept.setup, true),
        }
    }

    fn start(self: &Rc<Self>, accepted: Accepted, setup: &Arc<ConnectionSetup>, count: bool) {
        let peer = Peer {
            address: accepted.address,
            client: accepted.address.ip().to_canonical(),
            local: accepted.local,
            scheme: setup.scheme,
            tls: None,
            shared: false,
        };
        self.counters.connections_accepted.add(1);
        if count {
            self.balance.opened(self.index);
        }
        self.begin(Transport::new(accepted), peer, setup);
    }

    /// Serves a connection over this transport.
    #[cfg(any(test, feature = "test-rigs"))]
    pub(super) fn connect(
        self: &Rc<Self>,
        transport: Transport,
        peer: Peer,
        setup: &Arc<ConnectionSetup>,
    ) {
        self.balance.opened(self.index);
        self.begin(transport, peer, setup);
    }

    fn begin(self: &Rc<Self>, transport: Transport, peer: Peer, setup: &Arc<ConnectionSetup>) {
        self.opened();
        let connection = Connection::new(self.clone(), transport, peer, setup.half_close);
        protocol::start(connection, setup);
    }

    /// Serves the connections that other workers hand over, until the worker is dropped.
    pub(super) fn receive_handed_over(self: &Rc<Self>) {
        let Some(mut inbox) = self.balance.inbox(self.index) else {
            return;
        };
        let weak = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            while let Some(HandedOver { accepted, setup }) = inbox.recv().await {
                let Some(worker) = weak.upgrade() else { return };
                worker.start(accepted, &setup, false);
            }
        });
    }
}

async fn accept(listener: &mut Listener) -> io::Result<Option<Accepted>> {
    poll_fn(|cx| Poll::Ready(listener.accept(cx))).await
}

/// Guard of a listener's task: reports that the listener has stopped, also when the task is
/// dropped.
struct Listening(Rc<Worker>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.stopped_listening();
    }
}
