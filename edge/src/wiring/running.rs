//! Starts and stops Sluice: its threads, in the order in which they depend on one another.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::admin_socket::{self, RunningAdmin};
use super::edge::{Edge, Source};
use super::fetches::Fetches;
use super::history::{self, HistoryThreads};
use super::listeners::{self, Listeners, WorkerListener};
use super::obtained::Obtained;
use super::privileges::{self, DroppedPrivileges};
use super::purge_logs::Loggers;
use super::snapshot::Snapshot;
use super::volumes::OpenVolumes;
use super::{observed, purge, what_if, worker};
use crate::config::{Part, Plan, Unusable};
use crate::downstream::ConnectionBalance;
use crate::http::Scheme;
use crate::spool::Buffers;
use crate::sys::socket_file::SocketFile;
use crate::sys::{Clock, ListenAddress, Random, limits, usage};
use crate::telemetry::{Recent, RouteTelemetry, Telemetry, messages};
use crate::upstream::Monitor;
use crate::what_if::WhatIf;

/// Longest time for writing the last messages at shutdown.
const MESSAGES_WAIT: Duration = Duration::from_secs(1);
/// Number of descriptors below which a warning is logged at start.
const DESCRIPTORS_FEW: usize = 4096;

/// A running Sluice. It runs until `stop`.
pub struct Running {
    /// The listeners' addresses, in the order of the configuration.
    pub listeners: Vec<ListenAddress>,
    /// The schemes of the listeners, in the same order.
    pub schemes: Vec<Scheme>,
    /// The files of the listeners' Unix sockets.
    socket_files: Vec<SocketFile>,
    pub(super) edge: Arc<Edge>,
    history_threads: Option<HistoryThreads>,
    /// The thread that simulates other sizes of the caches.
    simulator: Option<JoinHandle<()>>,
    admin: Option<RunningAdmin>,
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
    let Listeners {
        sockets,
        addresses,
        files,
    } = listeners::bind(&plan, count)?;
    let admin = admin_socket::bind(&plan)?;
    let text = source.as_ref().map(|source| source.text.clone());
    usage::prepare();
    let dropped_privileges = drop_privileges(&plan, source.as_ref())?;
    let schemes = schemes(&plan);
    let clock = Clock::system();
    let file = source.as_ref().map(Source::file);
    let first = Snapshot::build(plan, count, None, &clock)
        .map_err(|error| dropped_privileges.explain(error, file))?;
    let observed = observed::start(&first.plan, &clock)
        .map_err(|error| dropped_privileges.explain(error, source.as_ref().map(Source::file)))?;
    let volumes = Arc::<OpenVolumes>::default();
    volumes.take_up(&first.volumes, Duration::ZERO);
    let edge = Arc::new(Edge {
        began_us: clock.monotonic_us(),
        history: history::shared(&first.plan, &clock),
        clock,
        random: Random::system(),
        telemetry: Telemetry::default(),
        routes: RouteTelemetry::default(),
        balance: ConnectionBalance::new(count),
        buffers: Buffers::new(&first.plan.buffers),
        source,
        dropped_privileges,
        snapshots: watch::Sender::new(Arc::new(first)),
        recent: Recent::default(),
        observed,
        last_error: Mutex::new(None),
        stopping: watch::Sender::new(false),
        drained: watch::Sender::new(0),
        sweeper: Mutex::new(None),
        text: Mutex::new(text.unwrap_or_default()),
        monitor: Monitor::default(),
        obtained: Obtained::default(),
        volumes,
        loggers: Loggers::default(),
        what_if: WhatIf::default(),
        logs: Mutex::new(Vec::new()),
        fetches: Fetches::default(),
    });
    edge.keep_log();
    edge.watch_servers();
    edge.obtain_certificates()
        .map_err(|error| edge.dropped_privileges.explain(error, None))?;
    start_sweeper(&edge)?;
    let simulator = what_if::start(&edge).context("can't start a thread")?;
    let history_threads = history::start(&edge)?;
    // The admin API starts before the first request is accepted, so that it is available as soon as
    // a listener is.
    let admin = admin.map(|bound| bound.start(&edge)).transpose()?;
    let workers = start_workers(&edge, sockets)?;
    Ok(Running {
        listeners: addresses,
        schemes,
        socket_files: files,
        edge,
        history_threads,
        simulator,
        admin,
        workers,
    })
}

/// Starts the thread that removes purged objects.
fn start_sweeper(edge: &Arc<Edge>) -> anyhow::Result<()> {
    let sweeper = purge::start_sweeper(Arc::downgrade(edge)).context("can't start a thread")?;
    edge.snapshots.borrow().wake(&sweeper);
    *edge.sweeper.lock() = Some(sweeper);
    Ok(())
}

/// Starts a worker for each set of listening sockets, and waits until all of them accept connections.
fn start_workers(
    edge: &Arc<Edge>,
    sockets: Vec<Vec<WorkerListener>>,
) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let count = sockets.len();
    let (ready, is_ready) = mpsc::channel();
    let workers = sockets
        .into_iter()
        .enumerate()
        .map(|(index, sockets)| worker::start(index, edge.clone(), sockets, ready.clone()))
        .collect::<std::io::Result<Vec<_>>>()
        .context("can't start a worker thread")?;
    drop(ready);
    for _ in 0..count {
        is_ready.recv().context("a worker ended before it began")?;
    }
    let version = env!("CARGO_PKG_VERSION");
    let text = format!("Sluice {version} accepts connections");
    edge.observed.notices().event("process", "started", text);
    Ok(workers)
}

/// Drops the privileges that are no longer needed, and begins to log messages. Called after
/// everything that needs privileges, and before the first thread is started.
fn drop_privileges(plan: &Plan, source: Option<&Source>) -> anyhow::Result<DroppedPrivileges> {
    let file = source.map(|source| source.file.as_path());
    let dropped_privileges = privileges::drop_privileges(plan, file)?;
    if let Some(messages) = messages::installed() {
        messages.begin().map_err(|error| {
            let what = format!("can't write messages to {}", messages.target());
            let error = Unusable::new(Part::ErrorLog, &what, &error).into();
            dropped_privileges.explain(error, source.map(Source::file))
        })?;
    }
    Ok(dropped_privileges)
}

fn schemes(plan: &Plan) -> Vec<Scheme> {
    let listeners = plan.listeners.iter();
    listeners.map(|listener| listener.setup.scheme).collect()
}

fn worker_count(plan: &Plan) -> usize {
    match plan.workers {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        count => count,
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

impl Running {
    /// Returns the scheme and the address of the admin API.
    pub fn admin(&self) -> Option<(Scheme, &ListenAddress)> {
        let admin = self.admin.as_ref()?;
        Some((admin.scheme, &admin.address))
    }

    /// Stops the edge: stops accepting connections, lets requests finish within `[limits]
    /// shutdown_timeout`, and returns when all threads have ended.
    pub fn stop(mut self) {
        let edge = &self.edge;
        let drain = edge.snapshots.borrow().plan.limits.shutdown_timeout;
        let deadline_us = edge
            .clock
            .monotonic_us()
            .saturating_add(drain.as_micros() as u64);
        // The workers refuse further connections to Unix sockets. Without the files, clients also see that at the path.
        self.socket_files.clear();
        edge.stopping.send_replace(true);
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!(target: "sluice::event::process::worker-panicked", "a worker thread had panicked");
            }
        }
        drop(self.admin.take());
        if let Some(threads) = self.history_threads.take() {
            threads.end();
        }
        what_if::stop(self.simulator.take());
        self.edge.obtained.end();
        self.edge.monitor.stop();
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
        self.edge.observed.stop();
        finish_messages();
    }
}

/// Writes the last messages to the message log.
pub(super) fn finish_messages() {
    if let Some(messages) = messages::installed() {
        messages.finish(MESSAGES_WAIT);
    }
}
