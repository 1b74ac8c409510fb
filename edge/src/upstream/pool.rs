//! One worker's connections to an upstream's servers: idle ones for reuse, a limit on all of them,
//! and a bounded queue for those who meet the limit.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::link::Link;
use super::shared::{Health, Numbers};
use super::{Limits, Options};
use crate::balance::{self, Balancer};
use crate::handler::{Cause, Fault};
use crate::sys::Clock;
use crate::telemetry::{Counter, Counters};

/// A server that did not accept a connection is left alone for so long, if there are others.
const AVOIDED_US: u64 = 5_000_000;

/// Servers that failed this request.
pub(super) type Failed = SmallVec<[usize; 4]>;

/// The pool.
pub(super) struct Pool {
    places: Vec<ServerPool>,
    limits: Limits,
    clock: Clock,
    balancer: RefCell<Box<dyn Balancer>>,
    waiting: RefCell<VecDeque<Rc<Waiter>>>,
    tally: Rc<Tally>,
    /// Rung by idle connections that the server closed or that are due to be looked at.
    bell: Arc<Notify>,
    bell_waker: Waker,
    health: Arc<Health>,
    janitor: RefCell<Option<JoinHandle<()>>>,
}

/// One server's.
struct ServerPool {
    backup: bool,
    open: Cell<usize>,
    avoided_until_us: Cell<u64>,
    /// The longest idle first.
    #[expect(
        clippy::vec_box,
        reason = "a connection goes from pool to exchange and back as a pointer"
    )]
    idle: RefCell<Vec<Box<Link>>>,
}

/// What a request gets to reach a server.
pub(super) enum Grant {
    /// A connection that was used before.
    Link(Box<Link>),
    /// The right to open one.
    Seat(Seat),
}

enum Choice {
    Server(usize),
    /// All that may be asked are at their limit.
    Full,
    /// There is none that may be asked.
    None,
}

impl Pool {
    pub(super) fn new(
        options: &Options,
        limits: Limits,
        clock: Clock,
        counters: Arc<Counters>,
        numbers: Arc<[Numbers]>,
        health: Arc<Health>,
    ) -> Rc<Pool> {
        let place = |server: &super::Server| ServerPool {
            backup: server.backup,
            open: Cell::new(0),
            avoided_until_us: Cell::new(0),
            idle: RefCell::default(),
        };
        let weights: Vec<u32> = options.servers.iter().map(|s| s.weight).collect();
        let bell = Arc::<Notify>::default();
        Rc::new(Pool {
            places: options.servers.iter().map(place).collect(),
            limits,
            clock,
            balancer: RefCell::new(balance::build(options.balance, &weights)),
            waiting: RefCell::default(),
            tally: Rc::new(Tally { counters, numbers }),
            bell_waker: Waker::from(Arc::new(Ringer(bell.clone()))),
            bell,
            health,
            janitor: RefCell::default(),
        })
    }

    /// The way to a server that has not failed yet. Waits, within limits, when all are full.
    pub(super) async fn acquire(self: &Rc<Pool>, failed: &Failed) -> Result<Grant, Fault> {
        match self.choose(failed) {
            Choice::Server(server) => Ok(self.take(server)),
            Choice::Full => self.wait(failed).await,
            Choice::None => Err(Cause::NoServer.into()),
        }
    }

    /// Prefers servers that accept connections, then backups, then those that lately did not.
    fn choose(&self, failed: &Failed) -> Choice {
        let avoids = self.places.iter().any(|p| p.avoided_until_us.get() > 0);
        let now_us = if avoids { self.clock.monotonic_us() } else { 0 };
        let tier = |server: usize| {
            let place = &self.places[server];
            match place.avoided_until_us.get() > now_us {
                _ if failed.contains(&server) => 3,
                true => 2,
                false => u8::from(place.backup),
            }
        };
        let Some(best @ 0..3) = (0..self.places.len()).map(tier).min() else {
            return Choice::None;
        };
        let excluded = |server: usize| tier(server) != best || self.is_full(server);
        match self.balancer.borrow_mut().choose(&excluded) {
            Some(server) => Choice::Server(server),
            None => Choice::Full,
        }
    }

    fn is_full(&self, server: usize) -> bool {
        let place = &self.places[server];
        self.limits.connections > 0
            && place.open.get() >= self.limits.connections
            && place.idle.borrow().is_empty()
    }

    /// The connection that became idle last, if it still stands, else the right to a new one: in
    /// that one's place, which those who wait would get if it were left.
    pub(super) fn take(self: &Rc<Pool>, server: usize) -> Grant {
        let idle = self.places[server].idle.borrow_mut().pop();
        let Some(mut link) = idle else {
            return Grant::Seat(Seat::new(self, server));
        };
        link.seat.set_busy(true);
        match self.expires_in_us(&link) > 0 && link.is_idle() {
            true => Grant::Link(link),
            false => Grant::Seat(link.abandon()),
        }
    }

    /// Waits in the queue for a connection that another request gives back, or for its place.
    async fn wait(self: &Rc<Pool>, failed: &Failed) -> Result<Grant, Fault> {
        if self.waiting.borrow().len() >= self.limits.queue {
            return Err(Cause::ServersBusy.into());
        }
        let waiter = Rc::new(Waiter {
            failed: failed.clone(),
            grant: RefCell::default(),
            waker: RefCell::default(),
        });
        self.waiting.borrow_mut().push_back(waiter.clone());
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
                .map(|()| Err(Fault::from(Cause::ServersBusy)))
        })
        .await
    }

    /// Whoever waits longest and may ask this server; no longer in the queue.
    fn next_waiter(&self, server: usize) -> Option<Rc<Waiter>> {
        let mut waiting = self.waiting.borrow_mut();
        let at = waiting.iter().position(|w| !w.failed.contains(&server))?;
        waiting.remove(at)
    }

    /// Takes a connection back after a complete exchange. Closes it if it cannot be used again.
    pub(super) fn give_back(self: &Rc<Pool>, mut link: Box<Link>, now_us: u64) {
        if !link.is_idle() {
            return;
        }
        if let Some(waiter) = self.next_waiter(link.seat.server) {
            return waiter.give(Grant::Link(link));
        }
        link.trim();
        if !link.rests(&self.bell_waker) {
            return;
        }
        link.seat.set_busy(false);
        link.idle_since_us = now_us;
        let mut idle = self.places[link.seat.server].idle.borrow_mut();
        let oldest = (idle.len() >= self.limits.keepalive).then(|| idle.remove(0));
        idle.push(link);
        drop(idle);
        drop(oldest);
        self.employ_janitor();
    }

    /// Whether a server accepted the connection just opened.
    pub(super) fn note_connect(&self, server: usize, accepted: bool) {
        let until = match accepted {
            true => 0,
            false => self.clock.monotonic_us().saturating_add(AVOIDED_US),
        };
        self.places[server].avoided_until_us.set(until);
        self.health.note(server, accepted);
    }

    fn expires_in_us(&self, link: &Link) -> u64 {
        let idle_us = self.clock.monotonic_us().saturating_sub(link.idle_since_us);
        self.limits.keepalive_timeout_us.saturating_sub(idle_us)
    }

    /// Closes idle connections that expired or that the server closed; says when the next expires.
    fn sweep(&self) -> Duration {
        let mut next_us = self.limits.keepalive_timeout_us;
        for place in &self.places {
            let all = std::mem::take(&mut *place.idle.borrow_mut());
            for mut link in all {
                let left_us = self.expires_in_us(&link);
                if left_us > 0 && link.rests(&self.bell_waker) {
                    next_us = next_us.min(left_us);
                    place.idle.borrow_mut().push(link);
                }
            }
        }
        Duration::from_micros(next_us.max(1000))
    }

    /// The janitor wakes when an idle connection has news or expires.
    fn employ_janitor(self: &Rc<Pool>) {
        if self.janitor.borrow().is_some() {
            return;
        }
        let (pool, notify) = (Rc::downgrade(self), self.bell.clone());
        let rounds = async move {
            while let Some(pool) = pool.upgrade() {
                let next = pool.sweep();
                drop(pool);
                let _ = tokio::time::timeout(next, notify.notified()).await;
            }
        };
        *self.janitor.borrow_mut() = Some(tokio::task::spawn_local(rounds));
    }

    #[cfg(test)]
    pub(super) fn idle_connections(&self, server: usize) -> usize {
        self.places[server].idle.borrow().len()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(janitor) = self.janitor.take() {
            janitor.abort();
        }
    }
}

struct Ringer(Arc<Notify>);

impl Wake for Ringer {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Someone in the queue.
struct Waiter {
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

/// Leaves the queue when dropped; what was granted and not taken goes to the next.
struct Queued<'a> {
    pool: &'a Rc<Pool>,
    waiter: Rc<Waiter>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        match self.waiter.grant.take() {
            Some(Grant::Link(link)) => self.pool.give_back(link, self.pool.clock.monotonic_us()),
            Some(Grant::Seat(seat)) => drop(seat),
            None => self
                .pool
                .waiting
                .borrow_mut()
                .retain(|w| !Rc::ptr_eq(w, &self.waiter)),
        }
    }
}

/// One of a server's connections, from before it is opened until it is closed. Dropping it makes
/// room, whatever happened.
pub(super) struct Seat {
    pool: Weak<Pool>,
    tally: Rc<Tally>,
    pub(super) server: usize,
    busy: bool,
}

struct Tally {
    counters: Arc<Counters>,
    numbers: Arc<[Numbers]>,
}

impl Seat {
    fn new(pool: &Rc<Pool>, server: usize) -> Seat {
        let open = &pool.places[server].open;
        open.set(open.get() + 1);
        let mut seat = Seat {
            pool: Rc::downgrade(pool),
            tally: pool.tally.clone(),
            server,
            busy: false,
        };
        seat.enter(true);
        seat
    }

    /// Busy with an exchange, or idle.
    fn set_busy(&mut self, busy: bool) {
        if self.busy != busy {
            self.leave();
            self.enter(busy);
        }
    }

    fn enter(&mut self, busy: bool) {
        self.busy = busy;
        let (all, own) = self.gauges();
        all.add(1);
        own.add(1);
        if let (true, Some(pool)) = (busy, self.pool.upgrade()) {
            pool.balancer.borrow_mut().begin(self.server);
        }
    }

    fn leave(&mut self) {
        let (all, own) = self.gauges();
        all.sub(1);
        own.sub(1);
        if let (true, Some(pool)) = (self.busy, self.pool.upgrade()) {
            pool.balancer.borrow_mut().end(self.server);
        }
    }

    fn gauges(&self) -> (&Counter, &Counter) {
        let (all, own) = (&self.tally.counters, &self.tally.numbers[self.server]);
        match self.busy {
            true => (&all.upstream_busy_now, &own.busy),
            false => (&all.upstream_idle_now, &own.idle),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
        let Some(pool) = self.pool.upgrade() else {
            return;
        };
        let open = &pool.places[self.server].open;
        open.set(open.get().saturating_sub(1));
        // Whoever waits gets the place at once, so that nobody who comes later can take it.
        if !pool.is_full(self.server)
            && let Some(waiter) = pool.next_waiter(self.server)
        {
            waiter.give(Grant::Seat(Seat::new(&pool, self.server)));
        }
    }
}
