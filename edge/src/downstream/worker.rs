//! One worker's side of downstream: its connections, their time, what they are served with.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::handler::{Handler, Peer};
use crate::sys::Clock;
use crate::sys::limits::Reserve;
use crate::sys::net::Socket;
use crate::telemetry::{AccessLog, Counters};

use super::connection_balance::ConnectionBalance;
use super::deadlines::{Deadlines, TICK, Tick};
use super::http1::{Connection, date_line};
use super::pool::Pool;
use super::{ConnectionSetup, Options, Trust};

/// What a worker is made with.
pub struct WorkerContext {
    /// The time.
    pub clock: Clock,
    /// This worker's counters.
    pub counters: Arc<Counters>,
    /// What the workers know of each other.
    pub balance: Arc<ConnectionBalance>,
    /// Which of the workers this is, from 0.
    pub index: usize,
}

/// What requests are served with: a snapshot, swapped whole.
pub struct Serving {
    /// Who answers.
    pub handler: Rc<dyn Handler>,
    /// `[limits]`.
    pub options: Options,
    /// Where requests are logged.
    pub log: Option<Rc<AccessLog>>,
    /// Who may say who asks.
    pub trust: Trust,
}

/// Between two steps of a sweep.
const STEP: Duration = Duration::from_millis(1);

/// One worker, on a thread of its own.
pub struct Worker {
    pub(super) clock: Clock,
    pub(super) counters: Arc<Counters>,
    pub(super) balance: Arc<ConnectionBalance>,
    pub(super) index: usize,
    pub(super) deadlines: Deadlines,
    pub(super) pool: Pool,
    /// Told to stop accepting.
    pub(super) stopping: Notify,
    /// Listeners that have not stopped.
    pub(super) listening: Cell<usize>,
    /// Given up for a moment when there is no other descriptor.
    pub(super) reserve: RefCell<Reserve>,
    /// When the log is told next that there is none.
    pub(super) told_of_exhaustion: Cell<Option<Tick>>,
    serving: RefCell<Rc<Serving>>,
    date: RefCell<Date>,
    began_us: u64,
    phase: Cell<Phase>,
    open: Cell<usize>,
    /// Something happened that a drain may have waited for.
    changed: Notify,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    Draining,
    Cut,
}

struct Date {
    unix_s: u64,
    line: Vec<u8>,
}

impl Worker {
    /// On the worker's own runtime (`LocalRuntime`), for tasks are spawned here.
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
            stopping: Notify::new(),
            listening: Cell::new(0),
            reserve: RefCell::default(),
            told_of_exhaustion: Cell::new(None),
            serving: RefCell::new(Rc::new(serving)),
            date: RefCell::new(Date {
                unix_s,
                line: date_line(unix_s),
            }),
            phase: Cell::new(Phase::Serving),
            open: Cell::new(0),
            changed: Notify::new(),
        });
        tokio::task::spawn_local(keep_time(Rc::downgrade(&worker)));
        worker.receive_handed_over();
        worker
    }

    /// Swaps what requests are served with. Those under way keep what they began with.
    pub fn serve(&self, serving: Serving) {
        self.serving.replace(Rc::new(serving));
    }

    /// Serves a connection.
    pub fn connect(self: &Rc<Self>, socket: Socket, peer: Peer) {
        self.balance.opened(self.index);
        self.let_in(&ConnectionSetup::plain(), socket, peer);
    }

    /// Serves a connection that came in here and that the balance counts as this worker's already,
    /// unless it may not come in.
    pub(super) fn let_in(
        self: &Rc<Self>,
        setup: &Arc<ConnectionSetup>,
        socket: Socket,
        peer: Peer,
    ) {
        self.open.set(self.open.get() + 1);
        self.counters.connections_now.add(1);
        let connection = Connection::through(setup, self.clone(), socket, peer);
        if let Some(connection) = connection {
            tokio::task::spawn_local(connection);
        }
    }

    /// Stops accepting, closes what is idle, lets requests finish for this long, and cuts the rest.
    /// Returns when no connection is left.
    pub async fn drain(&self, time: Duration) {
        let end_us = self
            .clock
            .monotonic_us()
            .saturating_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        self.phase.set(Phase::Draining);
        self.balance.drains(self.index);
        self.stopping.notify_waiters();
        self.deadlines.wake_all();
        // The balance counts also what was handed over and has not arrived.
        while self.balance.open_at(self.index) + self.listening.get() > 0 {
            let changed = self.changed.notified();
            if self.clock.monotonic_us() >= end_us && !self.is_cut() {
                self.phase.set(Phase::Cut);
                self.deadlines.wake_all();
            }
            changed.await;
        }
    }

    /// Open client connections of this worker.
    pub fn connections(&self) -> usize {
        self.open.get()
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

    /// A connection is gone.
    pub(super) fn closed(&self, slot: usize) {
        self.deadlines.remove(slot);
        self.balance.closed(self.index);
        self.counters.connections_now.sub(1);
        self.open.set(self.open.get().saturating_sub(1));
        self.changed.notify_waiters();
    }

    /// A listener has stopped.
    pub(super) fn stopped_listening(&self) {
        self.listening.set(self.listening.get().saturating_sub(1));
        self.changed.notify_waiters();
    }

    /// The current `Date` line, at most a tick old.
    #[inline]
    pub(super) fn with_date(&self, write: impl FnOnce(&[u8])) {
        write(&self.date.borrow().line);
    }

    /// Moves the time on.
    fn pass(&self) {
        let unix_s = self.clock.unix_ms() / 1000;
        let mut date = self.date.borrow_mut();
        if date.unix_s != unix_s {
            *date = Date {
                unix_s,
                line: date_line(unix_s),
            };
        }
        let passed_us = self.clock.monotonic_us().saturating_sub(self.began_us);
        let tick = u128::from(passed_us) / TICK.as_micros();
        self.deadlines
            .pass(Tick::try_from(tick).unwrap_or(Tick::MAX - 1));
    }

    fn tick(&self) {
        self.pass();
        self.make_room_for_others();
        self.changed.notify_waiters();
    }
}

/// Ticks for as long as the worker lives.
async fn keep_time(worker: Weak<Worker>) {
    loop {
        tokio::time::sleep(TICK).await;
        match worker.upgrade() {
            Some(worker) => worker.tick(),
            None => return,
        }
        // Others get their turn between two steps.
        while let Some(worker) = worker.upgrade() {
            worker.pass();
            if !worker.deadlines.sweep() {
                break;
            }
            drop(worker);
            tokio::time::sleep(STEP).await;
        }
    }
}
