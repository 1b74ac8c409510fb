//! One worker's connections to an upstream's servers: the connections with room for an exchange, a
//! limit on all connections, and a bounded queue of requests that wait because the limit is
//! reached.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::connection::Connection;
use super::fair_queue::FairQueue;
use super::lease::{Grant, Lease, Opening};
use super::options::{Limits, Options, Server};
use super::permit::{Gauges, InProgress, Permit, PermitOwner, SharedBalancer};
use super::state::{ServerState, UpstreamState};
#[cfg(test)]
use crate::balance::Balancer;
use crate::balance::{self, Ask};
use crate::handler::{ConnectionQueue, Fault};
use crate::http::ClientId;
use crate::reason::Reason;
use crate::sys::Clock;
use crate::telemetry::{Counters, ServerCounters};

/// Time for which other servers are preferred after a server did not accept a connection.
const AVOIDED_US: u64 = 5_000_000;

/// Indices of the servers that failed this request.
pub(super) type Failed = SmallVec<[usize; 4]>;

/// One worker's pool of connections to the servers of one upstream.
pub(super) struct Pool {
    servers: Vec<PooledServer>,
    limits: Limits,
    clock: Clock,
    balancer: SharedBalancer,
    waiting: RefCell<FairQueue<Rc<Waiter>>>,
    /// The length of `waiting`, for fetches that can make room.
    queue: Rc<ConnectionQueue>,
    /// Notified when the server of an idle connection closes it or sends something.
    idle_events: Arc<Notify>,
    idle_waker: Waker,
    /// The task that closes idle connections. Started when the first connection becomes idle.
    idle_task: RefCell<Option<JoinHandle<()>>>,
}

/// A server, with this worker's connections to it.
struct PooledServer {
    state: Arc<ServerState>,
    gauges: Rc<Gauges>,
    backup: bool,
    /// Number of connections that are open or being opened.
    open: Cell<usize>,
    avoided_until_us: Cell<u64>,
    /// Connections with room for an exchange, the longest idle first. An HTTP/1.1 connection has
    /// room for one exchange, so it is here only while it is idle.
    available: RefCell<Vec<Connection>>,
}

enum Choice {
    Server(usize),
    /// All servers that may be used have reached their limit of connections.
    Full,
    /// No server may be used.
    None,
}

impl Pool {
    pub(super) fn new(
        options: &Options,
        limits: Limits,
        clock: Clock,
        counters: &Arc<Counters>,
        state: &UpstreamState,
    ) -> Rc<Pool> {
        let pooled = |(server, state): (&Server, &Arc<ServerState>)| PooledServer {
            gauges: Rc::new(Gauges {
                worker: counters.clone(),
                server: state.worker(),
            }),
            state: state.clone(),
            backup: server.backup,
            open: Cell::new(0),
            avoided_until_us: Cell::new(0),
            available: RefCell::default(),
        };
        let weights: Vec<u32> = options.servers.iter().map(|s| s.weight).collect();
        let balancer = balance::build(options.balance, &weights);
        let idle_events = Arc::<Notify>::default();
        let servers = options.servers.iter().zip(state.servers());
        Rc::new(Pool {
            servers: servers.map(pooled).collect(),
            clock,
            balancer: Rc::new(RefCell::new(balancer)),
            waiting: RefCell::new(FairQueue::new(limits.queue)),
            limits,
            queue: Rc::default(),
            idle_waker: Waker::from(Arc::new(IdleWaker(idle_events.clone()))),
            idle_events,
            idle_task: RefCell::default(),
        })
    }

    /// Returns the length of the queue of requests that wait for a connection.
    pub(super) fn queue(&self) -> Rc<ConnectionQueue> {
        self.queue.clone()
    }

    /// Changes the queue of waiting requests.
    fn change_queue<T>(&self, change: impl FnOnce(&mut FairQueue<Rc<Waiter>>) -> T) -> T {
        let mut waiting = self.waiting.borrow_mut();
        let changed = change(&mut waiting);
        let length = waiting.len();
        drop(waiting);
        self.queue.set_length(length);
        changed
    }

    /// Returns this worker's counters of a server.
    pub(super) fn counters(&self, server: usize) -> &ServerCounters {
        &self.servers[server].gauges.server
    }

    /// Returns room for an exchange with a server that has not failed this request yet. If all
    /// servers are full, waits in the queue, which is bounded and serves clients in turn. `client`
    /// is the client of the request; `key` computes the hash of the requested URL.
    pub(super) async fn acquire(
        self: &Rc<Pool>,
        failed: &Failed,
        client: ClientId,
        key: &dyn Fn() -> u64,
    ) -> Result<Grant, Fault> {
        match self.choose(failed, key) {
            Choice::Server(server) => Ok(self.take(server)),
            Choice::Full => self.wait(failed, client).await,
            Choice::None => Err(Reason::NoServer.into()),
        }
    }

    /// Chooses a server for a request: first among the servers that accept connections, then among
    /// the backups, then among those that lately did not accept one.
    fn choose(&self, failed: &Failed, key: &dyn Fn() -> u64) -> Choice {
        let avoids = self.servers.iter().any(|s| s.avoided_until_us.get() > 0);
        let now_us = if avoids { self.clock.monotonic_us() } else { 0 };
        let tier = |index: usize| {
            let server = &self.servers[index];
            match server.avoided_until_us.get() > now_us {
                _ if failed.contains(&index) => 3,
                true => 2,
                false => u8::from(server.backup),
            }
        };
        let Some(best @ 0..3) = (0..self.servers.len()).map(tier).min() else {
            return Choice::None;
        };
        let excluded = |server: usize| tier(server) != best || self.is_full(server);
        let ask = Ask {
            key,
            attempt: failed.len(),
            excluded: &excluded,
        };
        match self.balancer.borrow_mut().choose(&ask) {
            Some(server) => Choice::Server(server),
            None => Choice::Full,
        }
    }

    fn is_full(&self, server: usize) -> bool {
        let server = &self.servers[server];
        self.limits.max_connections > 0
            && server.open.get() >= self.limits.max_connections
            && server.available.borrow().is_empty()
    }

    /// Returns room on the connection that was used last, if it is still usable, else the right to
    /// open a connection. An unusable connection's permit is passed on directly: if it were
    /// released first, a waiting request would get it.
    pub(super) fn take(self: &Rc<Pool>, server: usize) -> Grant {
        let exchange = InProgress::begin(&self.balancer, server);
        let available = self.servers[server].available.borrow_mut().pop();
        let Some(connection) = available else {
            return Grant::Opening(Opening::new(exchange, self.permit(server)));
        };
        if self.expires_in_us(&connection) == 0 || !connection.has_room() {
            return Grant::Opening(self.opening(exchange, connection.close()));
        }
        let (stream, rest) = connection.begin();
        self.servers[server].available.borrow_mut().extend(rest);
        Grant::Lease(Lease::new(exchange, stream))
    }

    /// Returns the right to open another connection for the exchange of `lease`, whose connection
    /// is not usable.
    pub(super) fn reopen(self: &Rc<Pool>, lease: Lease) -> Opening {
        let (exchange, permit) = lease.abandon();
        self.opening(exchange, permit)
    }

    /// Returns the right to open a connection, with the permit of a connection that was closed for
    /// it, if there is one.
    fn opening(self: &Rc<Pool>, exchange: InProgress, permit: Option<Permit>) -> Opening {
        let permit = permit.unwrap_or_else(|| self.permit(exchange.server));
        Opening::new(exchange, permit)
    }

    /// Creates a permit for one more connection to this server.
    fn permit(self: &Rc<Pool>, server: usize) -> Permit {
        let pooled = &self.servers[server];
        pooled.open.set(pooled.open.get() + 1);
        let owner: Weak<Pool> = Rc::downgrade(self);
        Permit::new(owner, pooled.gauges.clone(), server)
    }

    /// Waits in the queue for room on a connection, or for the right to open one.
    async fn wait(self: &Rc<Pool>, failed: &Failed, client: ClientId) -> Result<Grant, Fault> {
        let waiter = Rc::new(Waiter {
            client,
            failed: failed.clone(),
            grant: RefCell::default(),
            waker: RefCell::default(),
        });
        if !self.change_queue(|waiting| waiting.push(client, waiter.clone())) {
            return Err(Reason::ServersBusy.into());
        }
        let queued = Queued { pool: self, waiter };
        let mut timeout = pin!(tokio::time::sleep(self.limits.connect));
        poll_fn(|cx| {
            if let Some(grant) = queued.waiter.grant.borrow_mut().take() {
                return Poll::Ready(Ok(grant));
            }
            *queued.waiter.waker.borrow_mut() = Some(cx.waker().clone());
            timeout
                .as_mut()
                .poll(cx)
                .map(|()| Err(Fault::from(Reason::ServersBusy)))
        })
        .await
    }

    /// Takes the next request out of the queue that may use this server.
    fn next_waiter(&self, server: usize) -> Option<Rc<Waiter>> {
        if self.waiting.borrow().len() == 0 {
            return None;
        }
        self.change_queue(|waiting| waiting.pop(|w| !w.failed.contains(&server)))
    }

    /// Ends a complete exchange. The room that it had on its connection is given to a waiting
    /// request or kept for a later one; a connection that cannot be used again is closed.
    pub(super) fn give_back(self: &Rc<Pool>, lease: Lease, now_us: u64) {
        if let Some(connection) = lease.end() {
            self.keep_from(connection, now_us);
        }
    }

    /// Keeps a connection that was just opened, if it has room for further exchanges.
    pub(super) fn keep(self: &Rc<Pool>, connection: Option<Connection>) {
        if let Some(connection) = connection {
            self.keep_from(connection, self.clock.monotonic_us());
        }
    }

    /// Gives the room on a connection to waiting requests, and keeps the connection from the time
    /// `now_us` on if some room is left.
    fn keep_from(self: &Rc<Pool>, mut connection: Connection, now_us: u64) {
        let server = connection.server();
        while let Some(waiter) = self.next_waiter(server) {
            let exchange = InProgress::begin(&self.balancer, server);
            let (stream, rest) = connection.begin();
            waiter.give(Grant::Lease(Lease::new(exchange, stream)));
            match rest {
                Some(rest) => connection = rest,
                None => return,
            }
        }
        connection.rest(now_us);
        if !connection.stays_usable(&self.idle_waker) {
            return;
        }
        let mut available = self.servers[server].available.borrow_mut();
        let oldest = (available.len() >= self.limits.keepalive).then(|| available.remove(0));
        available.push(connection);
        drop(available);
        drop(oldest);
        self.start_idle_task();
    }

    /// Returns the state of a server that all workers share.
    pub(super) fn state(&self, server: usize) -> &ServerState {
        &self.servers[server].state
    }

    /// Notes whether a server accepted a connection, or the reason why it did not.
    pub(super) fn note_connect(&self, server: usize, result: Result<(), Reason>) {
        let until = match result {
            Ok(()) => 0,
            Err(_) => self.clock.monotonic_us().saturating_add(AVOIDED_US),
        };
        let server = &self.servers[server];
        server.avoided_until_us.set(until);
        server.state.note_connect(result);
    }

    /// Returns the time until an idle connection expires. One with exchanges in progress is not
    /// idle.
    fn expires_in_us(&self, connection: &Connection) -> u64 {
        let now_us = self.clock.monotonic_us();
        let since_us = connection.idle_since_us().unwrap_or(now_us);
        let idle_us = now_us.saturating_sub(since_us);
        self.limits.keepalive_timeout_us.saturating_sub(idle_us)
    }

    /// Closes idle connections that have expired or that the server has closed. Returns the time
    /// until the next one expires.
    fn sweep(&self) -> Duration {
        let mut next_us = self.limits.keepalive_timeout_us;
        for server in &self.servers {
            let all = std::mem::take(&mut *server.available.borrow_mut());
            for mut connection in all {
                let left_us = self.expires_in_us(&connection);
                if left_us > 0 && connection.stays_usable(&self.idle_waker) {
                    next_us = next_us.min(left_us);
                    server.available.borrow_mut().push(connection);
                }
            }
        }
        Duration::from_micros(next_us.max(1000))
    }

    /// Starts the task that runs `sweep` whenever an idle connection has an event or expires.
    fn start_idle_task(self: &Rc<Pool>) {
        if self.idle_task.borrow().is_some() {
            return;
        }
        let (pool, events) = (Rc::downgrade(self), self.idle_events.clone());
        let rounds = async move {
            while let Some(pool) = pool.upgrade() {
                let next = pool.sweep();
                drop(pool);
                let _ = tokio::time::timeout(next, events.notified()).await;
            }
        };
        *self.idle_task.borrow_mut() = Some(tokio::task::spawn_local(rounds));
    }

    #[cfg(test)]
    pub(super) fn set_balancer(&self, balancer: Box<dyn Balancer>) {
        *self.balancer.borrow_mut() = balancer;
    }

    #[cfg(test)]
    pub(super) fn idle_connections(&self, server: usize) -> usize {
        self.servers[server].available.borrow().len()
    }
}

impl PermitOwner for Pool {
    /// Gives a waiting request the permit for a new connection at once, so that no later request
    /// can take it.
    fn released(self: Rc<Self>, server: usize) {
        let open = &self.servers[server].open;
        open.set(open.get().saturating_sub(1));
        if !self.is_full(server)
            && let Some(waiter) = self.next_waiter(server)
        {
            let exchange = InProgress::begin(&self.balancer, server);
            waiter.give(Grant::Opening(Opening::new(exchange, self.permit(server))));
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(task) = self.idle_task.take() {
            task.abort();
        }
    }
}

/// A waker that wakes the task which closes idle connections.
struct IdleWaker(Arc<Notify>);

impl Wake for IdleWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// A request in the queue.
struct Waiter {
    client: ClientId,
    failed: Failed,
    grant: RefCell<Option<Grant>>,
    waker: RefCell<Option<Waker>>,
}

impl Waiter {
    fn give(&self, grant: Grant) {
        *self.grant.borrow_mut() = Some(grant);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A waiting request's entry in the queue. Dropping it removes the request from the queue and
/// passes a grant that was not used to the next request.
struct Queued<'a> {
    pool: &'a Rc<Pool>,
    waiter: Rc<Waiter>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        match self.waiter.grant.take() {
            Some(Grant::Lease(lease)) => self.pool.give_back(lease, self.pool.clock.monotonic_us()),
            Some(Grant::Opening(opening)) => drop(opening),
            None => self.pool.change_queue(|waiting| {
                waiting.remove(self.waiter.client, |w| Rc::ptr_eq(w, &self.waiter));
            }),
        }
    }
}
