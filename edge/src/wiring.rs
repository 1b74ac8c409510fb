//! Builds a running server from a plan: the only place that connects all parts.
//!
//! Everything that outlives a reload (stores, upstream statistics, the log writer) belongs to a
//! `Snapshot`. Each worker builds its handlers from the newest snapshot and replaces them between
//! two requests.

mod compression;
mod handlers;
mod inspect;
mod logged;
mod privileges;
mod purge;
mod signals;
mod snapshot;
mod volumes;
mod worker;

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::admin::Admin;
use crate::config::{self, ListenerPlan, Plan};
use crate::downstream::{ConnectionBalance, ConnectionSetup};
use crate::sys::net::Listener;
use crate::sys::{Address, Clock, Random, limits};
use crate::telemetry::{Telemetry, messages};
use privileges::DroppedPrivileges;
pub use signals::Signals;
use snapshot::{Log, Snapshot};
use volumes::Held;

/// The configuration file from which a reload gets its plan.
pub struct Source {
    /// Path of the configuration file.
    pub file: PathBuf,
    /// Reads the file again and returns its plan, or a description of the errors in it.
    pub read: Box<dyn Fn() -> Result<Plan, String> + Send + Sync>,
}

/// Longest time that a reload waits for the workers to apply it.
const RELOAD_WAIT: Duration = Duration::from_secs(5);
/// Longest time for writing the last log lines at shutdown.
const LOG_WAIT: Duration = Duration::from_secs(5);
/// Longest time for writing the last messages at shutdown.
const MESSAGES_WAIT: Duration = Duration::from_secs(1);
/// Shortest time that volumes get for queued writes at shutdown, even if requests used up the
/// shutdown timeout.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// Number of descriptors below which a warning is logged at start.
const DESCRIPTORS_FEW: usize = 4096;

/// The state that all threads share.
struct Edge {
    clock: Clock,
    random: Random,
    began_us: u64,
    telemetry: Telemetry,
    balance: Arc<ConnectionBalance>,
    source: Option<Source>,
    given_up: DroppedPrivileges,
    /// The current snapshot. Workers watch it; only `reload` replaces it.
    snapshots: watch::Sender<Arc<Snapshot>>,
    /// Error of the last reload, if it failed.
    last_error: Mutex<Option<String>>,
    stopping: watch::Sender<bool>,
    /// Number of drained workers. Each worker lives until all have drained, since its flights may
    /// have riders on other workers.
    drained: watch::Sender<usize>,
    /// Thread that removes purged objects from the stores in the background.
    sweeper: Mutex<Option<JoinHandle<()>>>,
    /// Held during a reload, so that reloads run one after another.
    reloading: Mutex<()>,
    volumes: Arc<Held>,
    loggers: purge::Loggers,
    /// Every access log that a worker may still write to. The last lines of these logs are written
    /// at shutdown.
    logs: Mutex<Vec<Arc<Log>>>,
}

/// A running Sluice. It runs until `stop`.
pub struct Running {
    /// The listeners' addresses, in the order of the configuration.
    pub listeners: Vec<SocketAddr>,
    /// The admin API's address.
    pub admin: Option<SocketAddr>,
    edge: Arc<Edge>,
    admin_thread: Option<Admin>,
    workers: Vec<JoinHandle<()>>,
}

/// Starts Sluice, which accepts connections when this function returns. Each reload reads
/// `source`.
///
/// # Errors
///
/// An address, a thread or the access log is not available.
pub fn start(plan: Plan, source: Option<Source>) -> anyhow::Result<Running> {
    raise_descriptors();
    let count = worker_count(&plan);
    let (mut sockets, listeners) = bind(&plan, count)?;
    let given_up = drop_privileges(&plan, source.as_ref())?;
    let clock = Clock::system();
    let admin_address = plan.admin;
    let first = Snapshot::build(plan, count, None, &clock).map_err(|e| given_up.explain(e))?;
    let volumes = Arc::<Held>::default();
    volumes.take_up(&first.volumes, Duration::ZERO);
    let edge = Arc::new(Edge {
        began_us: clock.monotonic_us(),
        clock,
        random: Random::system(),
        telemetry: Telemetry::default(),
        balance: ConnectionBalance::new(count),
        source,
        given_up,
        snapshots: watch::Sender::new(Arc::new(first)),
        last_error: Mutex::new(None),
        stopping: watch::Sender::new(false),
        drained: watch::Sender::new(0),
        sweeper: Mutex::new(None),
        reloading: Mutex::new(()),
        volumes,
        loggers: purge::Loggers::default(),
        logs: Mutex::new(Vec::new()),
    });
    edge.keep_log();
    let sweeper = purge::start_sweeper(Arc::downgrade(&edge)).context("can't start a thread")?;
    edge.snapshots.borrow().wake(&sweeper);
    *edge.sweeper.lock() = Some(sweeper);
    // The admin API starts before the first request is accepted, so that it is available as soon as
    // a listener is.
    let admin_thread = match admin_address {
        None => None,
        Some(address) => Some(
            Admin::start(address, edge.clone())
                .with_context(|| format!("can't listen on the admin address {address}"))?,
        ),
    };
    let (ready, is_ready) = mpsc::channel();
    let workers = (0..count)
        .map(|index| {
            worker::start(
                index,
                edge.clone(),
                std::mem::take(&mut sockets[index]),
                ready.clone(),
            )
        })
        .collect::<std::io::Result<Vec<_>>>()
        .context("can't start a worker thread")?;
    drop(ready);
    for _ in 0..count {
        is_ready.recv().context("a worker ended before it began")?;
    }
    Ok(Running {
        listeners,
        admin: admin_thread.as_ref().map(Admin::address),
        edge,
        admin_thread,
        workers,
    })
}

/// Drops the privileges that are no longer needed, and begins to log messages. Called after
/// everything that needs privileges, and before the first thread is started.
fn drop_privileges(plan: &Plan, source: Option<&Source>) -> anyhow::Result<DroppedPrivileges> {
    let file = source.map(|source| source.file.as_path());
    let given_up = privileges::drop_privileges(plan, file)?;
    if let Some(messages) = messages::installed() {
        messages
            .begin()
            .with_context(|| format!("can't write messages to {}", messages.target()))
            .map_err(|e| given_up.explain(e))?;
    }
    Ok(given_up)
}

fn worker_count(plan: &Plan) -> usize {
    match plan.workers {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        count => count,
    }
}

/// One worker's socket of one listener, and the setup of its connections.
type Door = (Listener, Arc<ConnectionSetup>);

/// Binds one socket per worker and listener. The kernel distributes connections among these
/// sockets.
fn bind(plan: &Plan, workers: usize) -> anyhow::Result<(Vec<Vec<Door>>, Vec<SocketAddr>)> {
    let mut sockets: Vec<Vec<Door>> = (0..workers).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for listener in &plan.listeners {
        // With port 0 the first worker's socket gets a free port, and the other workers bind to the
        // same port.
        let mut address = listener.address;
        warn_of_backlog(listener);
        Listener::check_free(address).with_context(|| format!("can't listen on {address}"))?;
        let setup = Arc::new(listener.setup.clone());
        for of_worker in &mut sockets {
            let socket = Listener::bind(address, &listener.listening)
                .with_context(|| format!("can't listen on {address}"))?;
            if let Address::Ip(bound) = socket.local() {
                address = bound;
            }
            of_worker.push((socket, setup.clone()));
        }
        addresses.push(address);
    }
    Ok((sockets, addresses))
}

/// Warns of a configured backlog that is above the kernel's limit, since the kernel reduces it
/// silently.
fn warn_of_backlog(listener: &ListenerPlan) {
    let (wanted, most) = (listener.listening.backlog, limits::somaxconn());
    if let (Some(wanted), Some(most)) = (wanted, most)
        && wanted > most
    {
        tracing::warn!(
            "{}: net.core.somaxconn limits a backlog of {wanted} to {most} \
             (`sluice check --system` says how to raise it)",
            listener.address
        );
    }
}

/// Raises the limit of descriptors, from which the limit of connections is derived.
fn raise_descriptors() {
    let descriptors = limits::raise_descriptors();
    if descriptors < DESCRIPTORS_FEW {
        tracing::warn!(
            "only {descriptors} file descriptors may be open, and no more connections than that \
             (`sluice check --system` says how to raise it)"
        );
    }
}

impl Edge {
    /// Applies a new plan. Returns a description of the changes.
    fn reload(&self) -> Result<String, String> {
        let result = self.try_reload();
        *self.last_error.lock() = result.as_ref().err().cloned();
        match &result {
            Ok(changes) => tracing::info!("reloaded: {}", changes.trim_end().replace('\n', "; ")),
            Err(error) => {
                tracing::error!("a reload failed and changed nothing:\n{}", error.trim_end())
            }
        }
        result
    }

    fn try_reload(&self) -> Result<String, String> {
        let _one_at_a_time = self.reloading.lock();
        let source = self.source.as_ref().ok_or(
            "there is no configuration file to read again: it was started with options alone",
        )?;
        let plan = (source.read)()?;
        let before = self.snapshots.borrow().clone();
        let mut changes = config::changes(&before.plan, &plan);
        if !changes.needs_restart.is_empty() {
            return Err(format!(
                "this change needs a restart: {}\n",
                changes.needs_restart.join(", ")
            ));
        }
        if let Some(why) = self.given_up.refuses(&plan) {
            return Err(why);
        }
        let workers = before.workers;
        let next = Snapshot::build(plan, workers, Some(&before), &self.clock)
            .map_err(|e| format!("{:#}\n", self.given_up.explain(e)))?;
        if next.has_other_keys(&before) {
            changes.applied.push("keys in files changed".to_owned());
        }
        let taken_up = next.taken_up.clone();
        // Building the snapshot may have waited long for a disk or a pipe, so shutdown may have
        // begun since.
        if *self.stopping.borrow() {
            return Err("it is stopping\n".to_owned());
        }
        let (volumes, patience) = (next.volumes.clone(), next.plan.limits.shutdown_timeout);
        next.take_effect(&before);
        let next = Arc::new(next);
        self.snapshots.send_replace(next.clone());
        if let Some(sweeper) = &*self.sweeper.lock() {
            next.wake(sweeper);
        }
        drop(next);
        self.keep_log();
        drop(before);
        self.volumes.take_up(&volumes, patience);
        let all_follow = taken_up.wait(workers, RELOAD_WAIT);
        self.keep_log();
        match all_follow {
            true => Ok(changes.to_string()),
            false => Ok(format!("{changes}\nsome workers are busy and will follow")),
        }
    }

    fn reopen_logs(&self) {
        if let Some(log) = &self.snapshots.borrow().log {
            log.reopen();
        }
        if let Some(messages) = messages::installed() {
            messages.reopen();
        }
    }
}

impl Running {
    /// Stops the edge: stops accepting connections, lets requests finish within `[limits]
    /// shutdown_timeout`, and returns when all threads have ended.
    pub fn stop(mut self) {
        let edge = &self.edge;
        let drain = edge.snapshots.borrow().plan.limits.shutdown_timeout;
        let deadline_us = edge
            .clock
            .monotonic_us()
            .saturating_add(drain.as_micros() as u64);
        edge.stopping.send_replace(true);
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a worker thread had panicked");
            }
        }
        drop(self.admin_thread.take());
        if let Some(sweeper) = self.edge.sweeper.lock().take() {
            sweeper.thread().unpark();
            if sweeper.join().is_err() {
                tracing::error!("the thread that removes purged objects had panicked");
            }
        }
        let snapshot = self.edge.snapshots.borrow().clone();
        snapshot.mark_absence();
        drop(snapshot);
        let left_us = deadline_us.saturating_sub(self.edge.clock.monotonic_us());
        self.edge.close_volumes(Duration::from_micros(left_us));
        self.edge.finish_logs();
        finish_messages();
    }
}

/// Writes the last messages to the message log.
fn finish_messages() {
    if let Some(messages) = messages::installed() {
        messages.finish(MESSAGES_WAIT);
    }
}

impl Edge {
    /// Keeps the current log, and drops the logs to which no worker can write any more. Dropping a
    /// log ends its thread and closes its file.
    fn keep_log(&self) {
        let log = self.snapshots.borrow().log.clone();
        let mut logs = self.logs.lock();
        // A log is unused if only `logs` refers to it and no worker has a sender: workers get logs
        // only from a snapshot.
        logs.retain(|kept| Arc::strong_count(kept) > 1 || kept.is_in_use());
        if let Some(log) = log
            && !logs.iter().any(|kept| Arc::ptr_eq(kept, &log))
        {
            logs.push(log);
        }
    }

    /// Finishes the volumes' queued writes and closes the volumes, so that the next start is fast.
    fn close_volumes(&self, within: Duration) {
        if !self.volumes.end(within.max(CLOSE_WAIT)) {
            tracing::warn!(
                "not all volumes could be closed in time: the next start takes longer to load their index"
            );
        }
    }

    /// Writes the last lines of the access logs.
    fn finish_logs(&self) {
        for log in self.logs.lock().drain(..) {
            if !log.finish(LOG_WAIT) {
                tracing::warn!("the last lines of an access log could not be written in time");
            }
        }
    }
}
