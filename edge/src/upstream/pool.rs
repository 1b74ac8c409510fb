//! One worker's connections to an upstream's servers: the connections with room for an exchange, a
//! limit on all connections, and a bounded queue of requests that wait because the limit is
//! reached.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::balancing::Balancing;
use super::connection::Connection;
use super::criteria::{Choice, Criteria};
use super::fair_queue::FairQueue;
use super::inbound::Step;
use super::lease::{Grant, Lease};
use super::options::{Limits, Options};
use super::permit::{Gauges, InProgress, Permit, PermitOwner};
use super::probe_waiters::ProbeWaiters;
use super::queue_entry::QueueEntry;
use super::retry::Failed;
use super::slots::{PooledServer, Slots};
use super::state::UpstreamState;
#[cfg(test)]
use crate::balance::Balancer;
use crate::handler::{ConnectionQueue, Fault};
use crate::http::ClientId;
use crate::reason::Reason;
use crate::sys::Clock;
use crate::sys::clock::timer_now;
use crate::telemetry::Counters;

/// One worker's pool of connections to the servers of one upstream.
pub(super) struct Pool {
    pub(super) slots: Slots,
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    pub(super) balancing: Rc<Balancing>,
    waiting: RefCell<FairQueue<Rc<Waiter>>>,
    /// The requests that wait for a probe.
    pub(super) probe_waiters: ProbeWaiters,
    /// Notified when an attempt to connect to a server has ended.
    pub(super) probe_ended: Notify,
    /// The number of entries in `waiting` for which fetches can make room.
    queue: Rc<ConnectionQueue>,
    /// Notified when the server of an idle connection closes it or sends something, and when the
    /// slots have changed.
    pub(super) idle_events: Arc<Notify>,
    pub(super) idle_waker: Waker,
    /// Notified when a sweep has freed memory.
    pub(super) memory_freed: Rc<Notify>,
    /// The task that sweeps idle connections. Started with the first request.
    pub(super) idle_task: RefCell<Option<JoinHandle<()>>>,
    /// Whether this task sweeps within a second, so that it need not be told of another idle connection.
    pub(super) is_sweep_due: Cell<bool>,
    /// Time at which the weights of servers that have just started grow next.
    pub(super) grows_at_us: Cell<u64>,
}

impl Pool {
    pub(super) fn new(
        options: &Options,
        limits: Limits,
        clock: Clock,
        counters: &Arc<Counters>,
        state: &Arc<UpstreamState>,
        memory_freed: Rc<Notify>,
    ) -> Rc<Pool> {
        let idle_events = Arc::<Notify>::default();
        Rc::new(Pool {
            slots: Slots::new(state, counters, &idle_events, &clock),
            balancing: Rc::new(Balancing::new(options, clock.clone(), state)),
            clock,
            waiting: RefCell::new(FairQueue::new(limits.queue)),
            probe_waiters: ProbeWaiters::new(limits.queue),
            limits,
            probe_ended: Notify::new(),
            queue: Rc::default(),
            idle_waker: Waker::from(Arc::new(IdleWaker(idle_events.clone()))),
            idle_events,
            memory_freed,
            idle_task: RefCell::default(),
            is_sweep_due: Cell::new(false),
            grows_at_us: Cell::new(u64::MAX),
        })
    }

    /// Returns the number of requests that wait for a connection and do not yield.
    pub(super) fn queue(&self) -> Rc<ConnectionQueue> {
        self.queue.clone()
    }

    /// Returns this worker's counters of a server, and those of the worker.
    pub(super) fn gauges(&self, server: usize) -> Rc<Gauges> {
        self.slots.server(server).gauges.clone()
    }

    /// Whether there is a server for a request that these servers failed.
    pub(super) fn has_other(&self, failed: &Failed) -> bool {
        let servers = self.slots.servers();
        let mut others = servers.iter().enumerate();
        others.any(|(index, server)| server.is_open() && !failed.contains(&index))
    }

    /// Whether a request that these servers failed would go to another server in good condition that
    /// has room now.
    pub(super) fn has_ready(self: &Rc<Pool>, failed: &Failed) -> bool {
        self.refresh();
        let servers = self.slots.servers();
        let mut others = servers.iter().enumerate();
        others.any(|(index, server)| !failed.contains(&index) && self.is_ready(server))
    }

    /// Whether a request that is late at this server would go to another server in good condition that
    /// has room, and not to a backup of this one.
    pub(super) fn has_equal(self: &Rc<Pool>, late: usize) -> bool {
        self.refresh();
        let servers = self.slots.servers();
        let is_backup = servers[late].backup.get();
        let mut others = servers.iter().enumerate();
        others.any(|(index, server)| {
            index != late && (is_backup || !server.backup.get()) && self.is_ready(server)
        })
    }

    /// Whether a server gets requests, is in good condition, as far as is known, and has room.
    fn is_ready(&self, server: &PooledServer) -> bool {
        server.is_open()
            && !server.is_avoided()
            && !server.state().is_unreachable()
            && !self.is_full(server)
    }

    /// Returns the number that names a server in cookies.
    pub(super) fn sticky_id(&self, server: usize) -> u64 {
        self.slots.servers()[server].sticky_id
    }

    /// Takes over the current slots, if they have changed.
    pub(super) fn refresh(self: &Rc<Pool>) {
        if let Some(weights) = self.slots.refresh() {
            let servers = self.slots.servers();
            let ids: Vec<u64> = servers.iter().map(|s| s.state().id()).collect();
            drop(servers);
            let now_us = self.clock.monotonic_us();
            self.balancing.set_servers(&ids, &self.growing(now_us));
            self.start_idle_task();
            (0..weights.len()).for_each(|server| self.admit_waiting(server));
            self.recall_waiting();
        }
    }

    /// Returns room for an exchange with a server that has not failed this request yet. If all
    /// servers are full, waits in the queue, which is bounded and serves clients in turn.
    pub(super) async fn acquire(
        self: &Rc<Pool>,
        failed: &Failed,
        criteria: &Criteria<'_>,
    ) -> Result<Grant, Fault> {
        let mut since_us = None;
        let mut waited = !failed.is_empty();
        let mut until = None;
        let mut awaits_openings = true;
        loop {
            match self.choose(failed, criteria) {
                Choice::Server(server)
                    if awaits_openings && self.may_await_opening(server, criteria) =>
                {
                    awaits_openings = self.await_opening(server).await;
                }
                Choice::Server(server) if !self.lacks_http1(server, criteria.needs_http1) => {
                    return Ok(self.take(server, criteria.needs_http1));
                }
                Choice::Server(_) | Choice::Full => {
                    let timeout = self.limits.queue_timeout;
                    let until = *until.get_or_insert_with(|| timer_now() + timeout);
                    if let Turn::Granted(grant) = self.wait(failed, criteria, until).await? {
                        return Ok(grant);
                    }
                }
                Choice::None if waited => return Err(Reason::NoServer.into()),
                Choice::None => {
                    self.slots.resolved(self.limits.connect).await?;
                    waited = true;
                }
                Choice::Unreachable => {
                    let since_us = *since_us.get_or_insert_with(|| self.clock.monotonic_us());
                    if let Some((server, reason)) =
                        self.await_probe(failed, criteria.client, since_us).await
                    {
                        return Ok(Grant::Refused(server, reason));
                    }
                }
            }
        }
    }

    /// Returns room on the connection that was used last, if it is still usable, else the right to
    /// open a connection. An unusable connection's permit is passed on directly: if it were
    /// released first, a waiting request would get it.
    pub(super) fn take(self: &Rc<Pool>, server: usize, needs_http1: bool) -> Grant {
        let pooled = self.slots.server(server);
        let exchange = InProgress::begin(&self.balancing, &pooled.gauges, server);
        let now_us = self.clock.recent_us();
        while let Some(connection) = pooled.take_available(needs_http1) {
            let is_expired = self.expires_in_us(&connection, now_us) == 0;
            if !is_expired && connection.has_room() {
                let (stream, rest) = connection.begin();
                if let Some(rest) = rest {
                    self.put(&pooled, rest);
                }
                return Grant::Lease(Lease::new(exchange, stream));
            }
            if is_expired || !connection.is_multiplexed() {
                let permit = connection.close();
                return Grant::Opening(self.opening(exchange, permit, needs_http1));
            }
            // The connection has become full or unusable in the meantime.
            self.put(&pooled, connection);
        }
        Grant::Opening(self.opening(exchange, None, needs_http1))
    }

    /// Creates a permit for one more connection to this server.
    pub(super) fn permit(self: &Rc<Pool>, server: usize) -> Permit {
        let pooled = self.slots.server(server);
        pooled.open.set(pooled.open.get() + 1);
        let owner: Weak<Pool> = Rc::downgrade(self);
        Permit::new(owner, pooled.gauges.clone(), server)
    }

    /// Waits in the queue for room on a connection, or for the right to open one, `until` that time at
    /// most.
    async fn wait(
        self: &Rc<Pool>,
        failed: &Failed,
        criteria: &Criteria<'_>,
        until: Instant,
    ) -> Result<Turn, Fault> {
        let client = criteria.client;
        let waiter = Rc::new(Waiter {
            client,
            needs_http1: criteria.needs_http1,
            failed: failed.clone(),
            entry: RefCell::default(),
            turn: RefCell::default(),
            waker: RefCell::default(),
        });
        if !self.waiting.borrow_mut().push(client, waiter.clone()) {
            return Err(Reason::ServersBusy.into());
        }
        let entry = QueueEntry::new(&criteria.record, &self.queue);
        *waiter.entry.borrow_mut() = Some(entry);
        let queued = Queued { pool: self, waiter };
        let mut timeout = pin!(tokio::time::sleep_until(until));
        poll_fn(|cx| {
            if let Some(turn) = queued.waiter.turn.borrow_mut().take() {
                return Poll::Ready(Ok(turn));
            }
            *queued.waiter.waker.borrow_mut() = Some(cx.waker().clone());
            timeout
                .as_mut()
                .poll(cx)
                .map(|()| Err(Fault::from(Reason::ServersBusy)))
        })
        .await
    }

    /// Takes over the current slots if requests are in the queue. An exchange that ends may have had
    /// its server ejected, which then gets none of them.
    fn refresh_for_waiting(self: &Rc<Pool>) {
        if self.waiting.borrow().len() > 0 {
            self.refresh();
        }
    }

    /// Takes the next request out of the queue that may use this server, on a connection with this property.
    fn next_waiter(&self, server: usize, may_use: impl Fn(&Waiter) -> bool) -> Option<Rc<Waiter>> {
        let mut waiting = self.waiting.borrow_mut();
        waiting.pop(|waiter| self.may_serve(server, &waiter.failed) && may_use(waiter))
    }

    /// Has those requests in the queue choose again for which no server is left to wait for, so that
    /// they wait for probes together.
    fn recall_waiting(&self) {
        if self.waiting.borrow().len() == 0 {
            return;
        }
        let next = || {
            let mut waiting = self.waiting.borrow_mut();
            waiting.pop(|waiter| self.has_none_for(&waiter.failed))
        };
        while let Some(waiter) = next() {
            waiter.give(Turn::Over);
        }
    }

    /// Gives waiting requests connections to a server, as far as the server is not full.
    fn admit_waiting(self: &Rc<Pool>, server: usize) {
        let pooled = self.slots.server(server);
        while pooled.is_open()
            && !self.is_full(&pooled)
            && let Some(waiter) = self.next_waiter(server, |waiter| {
                !self.lacks_http1(server, waiter.needs_http1)
            })
        {
            let grant = self.take(server, waiter.needs_http1);
            waiter.give(Turn::Granted(grant));
        }
    }

    /// Ends a complete exchange. The room that it had on its connection is given to a waiting
    /// request or kept for a later one; a connection that cannot be used again is closed.
    pub(super) fn give_back(self: &Rc<Pool>, lease: Lease, now_us: u64) {
        let parked = self.unpark(&lease);
        if let Some(connection) = lease.end(now_us).or(parked) {
            self.keep_from(connection, now_us);
        }
    }

    /// Ends an exchange whose response is not used. Its connection is closed unless all of the
    /// response was received.
    pub(super) fn discard(self: &Rc<Pool>, mut lease: Lease) {
        while let Ok(Step::Frame(_)) = lease.stream.step() {}
        if lease.stream.has_ended() {
            self.give_back(lease, self.clock.monotonic_us());
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
    pub(super) fn keep_from(self: &Rc<Pool>, mut connection: Connection, now_us: u64) {
        let server = connection.server();
        self.refresh_for_waiting();
        let pooled = self.slots.server(server);
        if pooled.weight.get() == 0 || !pooled.state().may_use(connection.peer()) {
            return;
        }
        while pooled.is_open()
            && connection.has_room()
            && let Some(waiter) = self.next_waiter(server, |waiter| {
                !waiter.needs_http1 || !connection.is_multiplexed()
            })
        {
            let exchange = InProgress::begin(&self.balancing, &pooled.gauges, server);
            let (stream, rest) = connection.begin();
            waiter.give(Turn::Granted(Grant::Lease(Lease::new(exchange, stream))));
            match rest {
                Some(rest) => connection = rest,
                None => return,
            }
        }
        connection.rest(now_us);
        let is_expired = self.expires_in_us(&connection, now_us) == 0;
        if is_expired || !connection.stays_usable(&self.idle_waker) {
            return;
        }
        let mut available = pooled.available.borrow_mut();
        let has_room = connection.has_room();
        let is_over = has_room && available.len() >= self.limits.keepalive;
        let oldest = is_over.then(|| available.remove(0));
        drop(available);
        pooled.put(connection);
        drop(oldest);
        if !has_room {
            return;
        }
        self.note_idle();
        if !self.probe_waiters.is_empty() {
            // One request may use the connection instead of waiting for a probe.
            self.probe_ended.notify_one();
        }
    }

    /// Notes whether a server accepted a connection, or the reason why it did not. The attempt began
    /// at the time `began_us`. A failure of this machine says nothing about the server.
    pub(super) fn note_connect(&self, server: usize, result: Result<(), Reason>, began_us: u64) {
        let is_local = result.is_err_and(Reason::is_local_connect);
        if !is_local {
            let server = self.slots.server(server);
            let now_us = self.clock.monotonic_us();
            server.state().note_connect(result, began_us, now_us);
        }
        if result.is_err() && !is_local {
            self.recall_waiting();
        }
        if !self.probe_waiters.is_empty() {
            self.probe_ended.notify_waiters();
        }
    }

    #[cfg(test)]
    pub(super) fn set_balancer(&self, balancer: Box<dyn Balancer>) {
        self.balancing.replace(balancer);
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    #[cfg(test)]
    pub(super) fn idle_connections(&self, server: usize) -> usize {
        self.slots.server(server).available.borrow().len()
    }

    #[cfg(test)]
    pub(super) fn shrunk_connections(&self, server: usize) -> usize {
        let server = self.slots.server(server);
        let available = server.available.borrow();
        available.iter().filter(|one| one.is_shrunk()).count()
    }
}

impl PermitOwner for Pool {
    /// Gives a waiting request the permit for a new connection at once, so that no later request
    /// can take it.
    fn released(self: Rc<Self>, server: usize) {
        let pooled = self.slots.server(server);
        pooled.note_closed();
        self.refresh_for_waiting();
        self.admit_waiting(server);
        // Looking through the whole queue takes long, so that is done only if it may help.
        if !pooled.is_open() || pooled.state().is_unreachable() {
            self.recall_waiting();
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

/// A waker that wakes the task which sweeps idle connections.
struct IdleWaker(Arc<Notify>);

impl Wake for IdleWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// A request in the queue.
struct Waiter {
    client: ClientId,
    needs_http1: bool,
    failed: Failed,
    /// Counts the request as waiting until its turn comes.
    entry: RefCell<Option<QueueEntry>>,
    turn: RefCell<Option<Turn>>,
    waker: RefCell<Option<Waker>>,
}

/// The end of a request's wait in the queue.
enum Turn {
    Granted(Grant),
    /// No server is left to wait for: the request has to choose again.
    Over,
}

impl Waiter {
    fn give(&self, turn: Turn) {
        self.entry.take();
        *self.turn.borrow_mut() = Some(turn);
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
        match self.waiter.turn.take() {
            Some(Turn::Granted(Grant::Lease(lease))) => {
                self.pool.give_back(lease, self.pool.clock.monotonic_us());
            }
            // The permit of a connection that was to be opened goes to the next request when the turn is
            // dropped.
            Some(turn) => drop(turn),
            None => {
                let mut waiting = self.pool.waiting.borrow_mut();
                waiting.remove(self.waiter.client, |w| Rc::ptr_eq(w, &self.waiter));
            }
        }
    }
}
