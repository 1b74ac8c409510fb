//! Accepting: in bounded batches, within the limit of connections, never spinning when out of
//! descriptors, and to the last one in the queue when it ends.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;

use crate::handler::Peer;
use crate::http::Scheme;
use crate::sys::net::{Accepted, Listener, Socket, is_exhausted};

use super::deadlines::TICK;
use super::spread::HandedOver;
use super::worker::Worker;

/// Connections accepted before others get their turn.
const BATCH_MAX: usize = 64;
/// Idle connections closed at once to make room for new ones.
const EVICTED_MAX: usize = 16;

/// What came of a batch.
enum Batch {
    /// The queue is empty.
    Drained,
    /// There may be more.
    More,
    /// There is no room: trying again at once would spin.
    NoRoom,
    /// It failed, and might again at once.
    Failed,
}

impl Worker {
    /// Accepts until the worker drains; then empties the queue, since closing a listening socket
    /// resets what waits in it, and returns.
    pub async fn listen(self: &Rc<Self>, mut listener: Listener, scheme: Scheme) {
        self.listening.set(self.listening.get() + 1);
        let _listening = Listening(self.clone());
        while !self.is_draining() {
            let stop = self.stopping.notified();
            let step = async {
                let readable = poll_fn(|cx| listener.poll_readable(cx)).await;
                match readable {
                    Ok(()) => self.accept_batch(&mut listener, scheme).await,
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
                Batch::NoRoom => {
                    let evicted = self.deadlines.expire_idle(EVICTED_MAX);
                    self.counters.connections_refused.add(evicted as u64);
                    match evicted {
                        0 => tokio::time::sleep(TICK).await,
                        // They have been woken before us, and are gone when we look again.
                        _ => tokio::task::yield_now().await,
                    }
                }
            }
        }
        self.accept_the_rest(&mut listener, scheme).await;
    }

    async fn accept_batch(self: &Rc<Self>, listener: &mut Listener, scheme: Scheme) -> Batch {
        for _ in 0..BATCH_MAX {
            if self.spread.is_full(self.serving().options.connections) {
                return Batch::NoRoom;
            }
            match accept(listener).await {
                Ok(Some(accepted)) => self.place(accepted, scheme),
                Ok(None) => return Batch::Drained,
                Err(error) if is_exhausted(&error) => return Batch::NoRoom,
                Err(_) => return Batch::Failed,
            }
        }
        Batch::More
    }

    async fn accept_the_rest(self: &Rc<Self>, listener: &mut Listener, scheme: Scheme) {
        while let Ok(Some(accepted)) = accept(listener).await {
            self.start(accepted, scheme, true);
        }
    }

    /// Serves a new connection here or hands it to a worker with fewer.
    fn place(self: &Rc<Self>, accepted: Accepted, scheme: Scheme) {
        match self
            .spread
            .hand_over(self.index, HandedOver { accepted, scheme })
        {
            Ok(()) => self.counters.connections_handed_over.add(1),
            Err(kept) => self.start(kept.accepted, kept.scheme, true),
        }
    }

    fn start(self: &Rc<Self>, accepted: Accepted, scheme: Scheme, count: bool) {
        let peer = Peer {
            address: accepted.address,
            client: accepted.address.ip().to_canonical(),
            local: accepted.local,
            scheme,
        };
        let socket = Socket::new(accepted.fd);
        self.counters.connections_accepted.add(1);
        match count {
            true => self.connect(socket, peer),
            false => self.connect_counted(socket, peer),
        }
    }

    /// Takes what other workers hand over, for as long as this worker lives.
    pub(super) fn receive_handed_over(self: &Rc<Self>) {
        let Some(mut inbox) = self.spread.inbox(self.index) else {
            return;
        };
        let weak = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            while let Some(HandedOver { accepted, scheme }) = inbox.recv().await {
                let Some(worker) = weak.upgrade() else { return };
                worker.start(accepted, scheme, false);
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
