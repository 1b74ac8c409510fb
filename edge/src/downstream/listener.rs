//! Accepting: in bounded batches, within the limit of connections, never spinning when out of
//! descriptors, and to the last one in the queue when it ends.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::handler::Peer;
use crate::http::Scheme;
use crate::sys::net::{Accepted, Listener, Socket, is_exhausted};

use super::ProxyProtocol;
use super::connection_balance::HandedOver;
use super::deadlines::{TICK, ticks};
use super::worker::Worker;

/// Connections accepted before others get their turn.
const BATCH_MAX: usize = 64;
/// Idle connections closed at once to make room for new ones.
const EVICTED_MAX: usize = 16;

/// Connections ended unserved in a tick, each by each worker, while there are no descriptors.
const SHED_MAX: usize = 64;
/// How often the log is told that there are none.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Where connections come in: how one listener's are taken, by whichever worker serves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionSetup {
    /// What is spoken there.
    pub scheme: Scheme,
    /// How clients are introduced there, where a load balancer does that.
    pub proxy: Option<ProxyProtocol>,
}

impl ConnectionSetup {
    /// Clients come by themselves, without TLS.
    pub fn plain() -> Arc<ConnectionSetup> {
        Arc::new(ConnectionSetup {
            scheme: Scheme::Http,
            proxy: None,
        })
    }
}

/// What came of a batch.
enum Batch {
    /// The queue is empty.
    Drained,
    /// There may be more.
    More,
    /// The limit of connections is reached. Further ones wait in the kernel.
    NoRoom,
    /// There is no descriptor, or no memory, for another one: trying again at once would spin.
    Exhausted,
    /// It failed, and might again at once.
    Failed,
}

impl Worker {
    /// Accepts until the worker drains; then empties the queue, since closing a listening socket
    /// resets what waits in it, and returns.
    pub async fn listen(self: &Rc<Self>, mut listener: Listener, setup: Arc<ConnectionSetup>) {
        self.listening.set(self.listening.get() + 1);
        let _listening = Listening(self.clone());
        while !self.is_draining() {
            let stop = self.stopping.notified();
            let step = async {
                let readable = poll_fn(|cx| listener.poll_readable(cx)).await;
                match readable {
                    Ok(()) => self.accept_batch(&mut listener, &setup).await,
                    Err(_) => Batch::Failed,
                }
            };
            let batch = tokio::select! {
                biased;
                () = stop => break,
                batch = step => batch,
            };
            match batch {
                Batch::Drained => {}
                Batch::More => tokio::task::yield_now().await,
                Batch::Failed => tokio::time::sleep(TICK).await,
                // Those told to go have been woken before us, and are gone when we look again.
                Batch::NoRoom | Batch::Exhausted if self.make_room() => {
                    tokio::task::yield_now().await;
                }
                Batch::NoRoom => tokio::time::sleep(TICK).await,
                Batch::Exhausted => {
                    self.shed(&mut listener).await;
                    tokio::time::sleep(TICK).await;
                }
            }
        }
        self.accept_the_rest(&mut listener, &setup).await;
    }

    /// Has connections closed that have been idle for longest; says whether there were any.
    fn make_room(&self) -> bool {
        let evicted = self.deadlines.expire_idle(EVICTED_MAX);
        self.counters.connections_refused.add(evicted as u64);
        if evicted == 0 {
            self.balance.want_room(EVICTED_MAX);
        }
        evicted > 0
    }

    /// The limit is one for all workers: closes idle connections where another has none.
    pub(super) fn make_room_for_others(&self) {
        let wanted = self.balance.wanted_room();
        if wanted > 0 {
            let evicted = self.deadlines.expire_idle(wanted);
            self.counters.connections_refused.add(evicted as u64);
            self.balance.made_room(evicted);
        }
    }

    /// Accepts and closes some of those that wait, with the descriptor that is kept for it: they
    /// learn at once that they will not be served, rather than after a timeout of their own.
    async fn shed(&self, listener: &mut Listener) {
        self.tell_of_exhaustion();
        for _ in 0..SHED_MAX {
            let ended = poll_fn(|cx| {
                let mut reserve = self.reserve.borrow_mut();
                // Closed within, so that the descriptor is free again.
                Poll::Ready(reserve.lend(|| matches!(listener.accept(cx), Ok(Some(_)))))
            });
            match ended.await {
                Some(true) => self.counters.connections_shed.add(1),
                _ => return,
            }
        }
    }

    fn tell_of_exhaustion(&self) {
        let now = self.deadlines.now();
        let due = self.told_of_exhaustion.get();
        if due.is_none_or(|due| due <= now) {
            let next = now.saturating_add(ticks(TOLD_EVERY));
            self.told_of_exhaustion.set(Some(next));
            tracing::error!(
                "out of file descriptors or memory: new connections are closed unserved \
                 (`sluice check --system` says what to change)"
            );
        }
    }

    async fn accept_batch(
        self: &Rc<Self>,
        listener: &mut Listener,
        setup: &Arc<ConnectionSetup>,
    ) -> Batch {
        for _ in 0..BATCH_MAX {
            if self.balance.is_full(self.serving().options.connections) {
                // Nobody is closed for nobody's sake.
                return match poll_fn(|cx| Poll::Ready(listener.has_waiting(cx))).await {
                    Ok(true) => Batch::NoRoom,
                    Ok(false) => Batch::Drained,
                    Err(_) => Batch::Failed,
                };
            }
            self.balance.has_room();
            match accept(listener).await {
                Ok(Some(accepted)) => self.place(accepted, setup),
                Ok(None) => return Batch::Drained,
                Err(error) if is_exhausted(&error) => return Batch::Exhausted,
                Err(_) => return Batch::Failed,
            }
        }
        Batch::More
    }

    async fn accept_the_rest(
        self: &Rc<Self>,
        listener: &mut Listener,
        setup: &Arc<ConnectionSetup>,
    ) {
        while let Ok(Some(accepted)) = accept(listener).await {
            self.start(accepted, setup, true);
        }
    }

    /// Serves a new connection here or hands it to a worker with fewer.
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
        };
        self.counters.connections_accepted.add(1);
        if count {
            self.balance.opened(self.index);
        }
        self.let_in(setup, Socket::new(accepted), peer);
    }

    /// Takes what other workers hand over, for as long as this worker lives.
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

/// Says when a listener is gone, also when its task is dropped.
struct Listening(Rc<Worker>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.stopped_listening();
    }
}
