//! The part of downstream that belongs to one worker: its connections, their deadlines, and the
//! handlers and limits that apply to them.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Context;
use std::time::{Duration, UNIX_EPOCH};

use tokio::sync::Notify;

use crate::handler::{Handler, Peer};
use crate::http::target::host_of;
use crate::http::{Fields, RequestId, TraceContext};
use crate::sys::limits::Reserve;
use crate::sys::{Clock, Random, clock::timer_now};
use crate::telemetry::{AccessLog, Counters, Sampler, WorkerRoutes};
use crate::tls::{Server, Terms};

use super::connection_balance::ConnectionBalance;
use super::deadlines::{Deadlines, TICK, Tick};
use super::handshakes::Handshakes;
use super::input::Pool;
use super::quick_durations::QuickDurations;
use super::{Options, Protocols, Trust};

/// The parts from which a worker is created.
pub struct WorkerContext {
    /// The clock.
    pub clock: Clock,
    /// This worker's counters.
    pub counters: Arc<Counters>,
    /// The balance of connections over all workers.
    pub balance: Arc<ConnectionBalance>,
    /// Index of the worker, from 0.
    pub index: usize,
    /// Returns unused memory of the worker's thread to the system.
    pub give_memory_back: fn(),
    /// Notified when other parts of the worker have freed memory without a request.
    pub memory_freed: Rc<Notify>,
    /// Chooses the requests that are sampled.
    pub sampler: Sampler,
}

/// The handlers and limits of one configuration snapshot; a reload replaces them as a whole.
pub struct Serving {
    /// The handler of all requests.
    pub handler: Rc<dyn Handler>,
    /// Limits for clients (`[limits]`).
    pub options: Options,
    /// The counters of the routes that the handler chooses from.
    pub routes: Rc<WorkerRoutes>,
    /// The access log, if there is one.
    pub log: Option<Rc<AccessLog>>,
    /// The proxies trusted to report the client's address.
    pub trust: Trust,
    /// Whether requests have ids: the random numbers of the ids that are made.
    pub request_ids: Option<Random>,
    /// Whether requests have traces: the random numbers of their ids.
    pub traces: Option<Random>,
    /// The TLS of each listener, by the listener's index.
    pub tls: Arc<[Option<Arc<Server>>]>,
    /// The protocols of each listener, by the listener's index.
    pub protocols: Arc<[Protocols]>,
}

impl Serving {
    /// Returns the TLS of the listener with this index.
    pub(super) fn tls(&self, listener: u16) -> Option<&Server> {
        self.tls.get(usize::from(listener))?.as_deref()
    }

    /// Returns the protocols of the listener with this index.
    pub(super) fn protocols(&self, listener: u16) -> Protocols {
        let listed = self.protocols.get(usize::from(listener));
        listed.copied().unwrap_or(Protocols::CLEAR)
    }

    /// Returns the id of a request with these headers, if requests have ids: the one that a trusted proxy sent, or a
    /// new one. `peer` is the other end of the connection.
    #[inline]
    pub(super) fn request_id(
        &self,
        clock: &Clock,
        peer: &Peer,
        fields: &Fields,
    ) -> Option<RequestId> {
        let random = self.request_ids.as_ref()?;
        let sent = self.trust.includes(peer);
        let sent = sent.then(|| RequestId::in_fields(fields)).flatten();
        Some(sent.unwrap_or_else(|| {
            RequestId::new(clock.unix_ms(), [random.next_u64(), random.next_u64()])
        }))
    }

    /// Returns the trace of a request with these headers, if requests have traces.
    #[inline]
    pub(super) fn trace(&self, fields: &Fields) -> Option<Rc<TraceContext>> {
        let random = self.traces.as_ref()?;
        let numbers = std::array::from_fn(|_| random.next_u64());
        Some(Rc::new(TraceContext::of(fields, numbers)))
    }

    /// Whether a request for this authority (a host and an optional port) may come over a connection with these
    /// settings of TLS.
    pub(super) fn permits(&self, terms: Terms, authority: &str) -> bool {
        let server = self.tls(terms.listener);
        server.is_some_and(|server| server.permits(terms.policy, host_of(authority)))
    }
}

/// Time between two steps of a sweep.
const STEP: Duration = Duration::from_millis(1);
/// Ticks per second.
const SECOND_TICKS: u32 = (1000 / TICK.as_millis()) as u32;

/// One worker, which runs on its own thread.
pub struct Worker {
    pub(super) clock: Clock,
    pub(super) counters: Arc<Counters>,
    pub(super) balance: Arc<ConnectionBalance>,
    pub(super) index: usize,
    pub(super) deadlines: Deadlines,
    pub(super) pool: Pool,
    pub(super) handshakes: Handshakes,
    /// The durations of requests that are answered without waiting.
    pub(super) quick_durations: QuickDurations,
    /// Chooses the requests that are sampled.
    pub(super) sampler: Sampler,
    /// Notified when the worker stops accepting.
    pub(super) stopping: Notify,
    /// Number of listeners that have not stopped.
    pub(super) listening: Cell<usize>,
    /// A reserved descriptor, which is lent when no other is left.
    pub(super) reserve: RefCell<Reserve>,
    /// Tick from which running out of descriptors is logged again. `None`: not logged yet.
    pub(super) exhaustion_logged_from: Cell<Option<Tick>>,
    serving: RefCell<Rc<Serving>>,
    date: RefCell<Date>,
    began_us: u64,
    phase: Cell<Phase>,
    open: Cell<usize>,
    /// Notified when a connection or a listener has ended, for which a drain may be waiting.
    changed: Notify,
    /// Whether the timer of `keep_time` is paused, so that the current tick and the Date value may be old.
    paused: Cell<bool>,
    /// Notified when the paused timer has to run again.
    resumed: Rc<Notify>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    Draining,
    Cut,
}

struct Date {
    unix_s: u64,
    value: Vec<u8>,
}

impl Worker {
    /// Creates a worker and starts its tasks. Must be called on the worker's own runtime (`LocalRuntime`).
    pub fn new(context: WorkerContext, serving: Serving) -> Rc<Worker> {
        let unix_s = context.clock.unix_ms() / 1000;
        let worker = Rc::new(Worker {
            began_us: context.clock.monotonic_us(),
            clock: context.clock,
            counters: context.counters,
            balance: context.balance,
            index: context.index,
            deadlines: Deadlines::default(),
            pool: Pool::default(),
            handshakes: Handshakes::default(),
            quick_durations: QuickDurations::default(),
            sampler: context.sampler,
            stopping: Notify::new(),
            listening: Cell::new(0),
            reserve: RefCell::default(),
            exhaustion_logged_from: Cell::new(None),
            serving: RefCell::new(Rc::new(serving)),
            date: RefCell::new(Date {
                unix_s,
                value: date_value(unix_s),
            }),
            phase: Cell::new(Phase::Serving),
            open: Cell::new(0),
            changed: Notify::new(),
            paused: Cell::new(false),
            resumed: Rc::default(),
        });
        let unused = UnusedMemory::new(context.give_memory_back, context.memory_freed);
        tokio::task::spawn_local(keep_time(Rc::downgrade(&worker), unused));
        worker.receive_handed_over();
        worker
    }

    /// Replaces the handlers and limits. Requests in progress keep those that they began with.
    pub fn serve(&self, serving: Serving) {
        self.serving.replace(Rc::new(serving));
    }

    /// Counts a new connection, which the balance has already counted for this worker.
    pub(super) fn opened(&self) {
        self.resume();
        self.open.set(self.open.get() + 1);
        self.counters.connections_now.add(1);
    }

    /// Stops accepting, closes idle connections, lets requests finish for `time`, and cuts the
    /// rest. Returns when no connection is left.
    pub async fn drain(&self, time: Duration) {
        let end_us = self
            .clock
            .monotonic_us()
            .saturating_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        self.phase.set(Phase::Draining);
        self.resume();
        self.balance.drains(self.index);
        self.stopping.notify_waiters();
        self.deadlines.wake_all();
        // The balance also counts connections in the inbox of this worker, which have to be served,
        // too.
        while self.balance.open_at(self.index) + self.listening.get() > 0 {
            let changed = self.changed.notified();
            if self.clock.monotonic_us() >= end_us && !self.is_cut() {
                self.phase.set(Phase::Cut);
                self.deadlines.wake_all();
            }
            changed.await;
        }
    }

    /// Returns the number of open client connections of this worker.
    #[cfg(any(test, feature = "test-rigs"))]
    pub fn connections(&self) -> usize {
        self.open.get()
    }

    /// Whether the timer is paused.
    #[cfg(test)]
    pub(super) fn is_paused(&self) -> bool {
        self.paused.get()
    }

    #[inline]
    pub(super) fn serving(&self) -> Rc<Serving> {
        self.serving.borrow().clone()
    }

    #[inline]
    pub(super) fn is_draining(&self) -> bool {
        self.phase.get() != Phase::Serving
    }

    #[inline]
    pub(super) fn is_cut(&self) -> bool {
        self.phase.get() == Phase::Cut
    }

    /// Removes a closed connection from all counts.
    pub(super) fn closed(&self, slot: usize) {
        self.deadlines.remove(slot);
        self.balance.closed(self.index);
        self.counters.connections_now.sub(1);
        self.open.set(self.open.get().saturating_sub(1));
        self.changed.notify_waiters();
    }

    /// Records that a listener has stopped.
    pub(super) fn stopped_listening(&self) {
        self.listening.set(self.listening.get().saturating_sub(1));
        self.changed.notify_waiters();
    }

    /// Calls `write` with the value of a Date header that is at most one tick old.
    #[inline]
    pub(super) fn with_date(&self, write: impl FnOnce(&[u8])) {
        write(&self.date.borrow().value);
    }

    /// Sets the task that is woken when the deadline of this slot passes. Called first at each poll of a
    /// connection, since the connection may have been idle while the timer was paused.
    #[inline]
    pub(super) fn watch(&self, slot: usize, cx: &Context<'_>) {
        self.resume();
        self.deadlines.watch(slot, cx);
    }

    /// Makes the timer run again if it is paused, and updates the time.
    #[inline]
    fn resume(&self) {
        if self.paused.get() {
            self.resume_paused();
        }
    }

    #[cold]
    fn resume_paused(&self) {
        self.paused.set(false);
        self.pass();
        self.resumed.notify_one();
    }

    /// Updates the current tick, and the Date value if the second has changed. The time that requests
    /// begin with is then at most one tick old.
    pub(super) fn pass(&self) {
        Clock::forget();
        let unix_s = self.clock.unix_ms() / 1000;
        let mut date = self.date.borrow_mut();
        if date.unix_s != unix_s {
            *date = Date {
                unix_s,
                value: date_value(unix_s),
            };
        }
        let passed_us = self.clock.monotonic_us().saturating_sub(self.began_us);
        let tick = u128::from(passed_us) / TICK.as_micros();
        self.deadlines
            .pass(Tick::try_from(tick).unwrap_or(Tick::MAX - 1));
    }

    /// Counts by how much the timer runs late that was due at this time.
    fn count_lag(&self, due: tokio::time::Instant) {
        let late = timer_now().saturating_duration_since(due);
        let late_us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        self.counters.loop_lag.record(late_us);
    }

    fn tick(&self) {
        self.pass();
        self.make_room_for_others();
        self.changed.notify_waiters();
    }
}

/// Counts ticks and runs the sweeps of the deadlines, until the worker is dropped. After a second without
/// requests, the timer pauses.
async fn keep_time(worker: Weak<Worker>, mut unused: UnusedMemory) {
    loop {
        let due = timer_now() + TICK;
        tokio::time::sleep_until(due).await;
        let Some(now) = worker.upgrade() else { return };
        now.count_lag(due);
        now.tick();
        unused.tick(now.counters.requests.get());
        drop(now);
        // The pause between two steps of a sweep lets other tasks run.
        while let Some(worker) = worker.upgrade() {
            worker.pass();
            if !worker.deadlines.sweep() {
                break;
            }
            drop(worker);
            tokio::time::sleep(STEP).await;
        }
        if unused.is_given_back {
            pause(&worker, &unused).await;
            unused.is_given_back = false;
        }
    }
}

/// Pauses the timer until a connection is polled or opened, until the tick before the earliest deadline
/// of all connections, until memory is freed that is then given back, too, or until another worker needs
/// room for new connections.
async fn pause(worker: &Weak<Worker>, unused: &UnusedMemory) {
    let Some(now) = worker.upgrade() else { return };
    let (balance, resumed) = (now.balance.clone(), now.resumed.clone());
    // A worker that wants room after this line wakes this worker. Earlier wishes are checked below.
    let room_wanted = balance.room_wanted();
    let is_wanted = balance.wanted_room() > 0 && now.open.get() > 0;
    let left = now.deadlines.earliest().saturating_sub(now.deadlines.now());
    if now.is_draining() || is_wanted || left < 2 {
        return;
    }
    now.paused.set(true);
    drop(now);
    // The latest tick corresponds to more than 13 years.
    tokio::select! {
        () = resumed.notified() => {}
        () = unused.freed.notified() => {}
        () = room_wanted => {}
        () = tokio::time::sleep(TICK * (left - 1)) => {}
    }
    if let Some(worker) = worker.upgrade() {
        worker.paused.set(false);
    }
}

/// Returns unused memory to the system after each second in which the worker had no request.
struct UnusedMemory {
    give_back: fn(),
    freed: Rc<Notify>,
    ticks: u32,
    /// Number of requests at the beginning of the current second.
    requests: u64,
    /// Whether the last second had no request.
    is_given_back: bool,
}

impl UnusedMemory {
    fn new(give_back: fn(), freed: Rc<Notify>) -> UnusedMemory {
        UnusedMemory {
            give_back,
            freed,
            ticks: 0,
            requests: 0,
            is_given_back: false,
        }
    }

    fn tick(&mut self, requests: u64) {
        self.ticks += 1;
        if self.ticks < SECOND_TICKS {
            return;
        }
        self.ticks = 0;
        self.is_given_back = std::mem::replace(&mut self.requests, requests) == requests;
        if self.is_given_back {
            (self.give_back)();
        }
    }
}

/// Returns the value of a Date header for this time (RFC 9110 5.6.7).
fn date_value(unix_s: u64) -> Vec<u8> {
    let time = UNIX_EPOCH + Duration::from_secs(unix_s);
    httpdate::HttpDate::from(time).to_string().into_bytes()
}
