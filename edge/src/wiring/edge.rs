//! The state that all threads share, and reloads, which replace the snapshot in it.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::encryption::Encryption;
use super::fetches::Fetches;
use super::observed;
use super::obtained::Obtained;
use super::privileges::DroppedPrivileges;
use super::purge_logs::Loggers;
use super::snapshot::{Log, Snapshot};
use super::volumes::OpenVolumes;
use crate::config::{self, Loaded};
use crate::downstream::ConnectionBalance;
use crate::spool::Buffers;
use crate::sys::{Clock, Random, memory};
use crate::telemetry::history::SharedHistory;
use crate::telemetry::{Observed, Recent, RouteTelemetry, Telemetry, messages};
use crate::upstream::Monitor;
use crate::what_if::WhatIf;

/// Longest time that a reload waits for the workers to apply it.
const RELOAD_WAIT: Duration = Duration::from_secs(5);
/// Longest time for writing the last log lines at shutdown.
const LOG_WAIT: Duration = Duration::from_secs(5);
/// Shortest time that volumes get for queued writes at shutdown, even if requests used up the
/// shutdown timeout.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// The configuration file from which a reload gets its plan.
pub struct Source {
    /// Path of the configuration file.
    pub file: PathBuf,
    /// The text of the file when Sluice started.
    pub text: String,
    /// Reads the file again and returns its plan and text, or a description of the errors in it.
    pub read: Box<dyn Fn() -> Result<Loaded, String> + Send + Sync>,
}

impl Source {
    /// Returns the name and the text of the configuration file, for reports.
    pub(super) fn file(&self) -> (String, &str) {
        (self.file.display().to_string(), &self.text)
    }
}

/// The texts about a reload that was applied.
struct Reloaded {
    /// The changes of the configuration.
    changes: String,
    /// The warnings about the configuration; empty if there are none.
    warnings: String,
}

/// The state that all threads share.
pub(super) struct Edge {
    pub(super) clock: Clock,
    pub(super) random: Random,
    pub(super) began_us: u64,
    pub(super) telemetry: Telemetry,
    /// The counters of all routes.
    pub(super) routes: RouteTelemetry,
    pub(super) recent: Recent,
    /// The history of numbers, unless it is off.
    pub(super) history: Option<Arc<SharedHistory>>,
    /// Samples of requests, and recent errors and events.
    pub(super) observed: Observed,
    pub(super) balance: Arc<ConnectionBalance>,
    /// The limits and numbers of the buffers of bodies.
    pub(super) buffers: Arc<Buffers>,
    pub(super) source: Option<Source>,
    pub(super) dropped_privileges: DroppedPrivileges,
    /// The current snapshot. Workers watch it; only `reload` replaces it.
    pub(super) snapshots: watch::Sender<Arc<Snapshot>>,
    /// Error of the last reload, if it failed.
    pub(super) last_error: Mutex<Option<String>>,
    pub(super) stopping: watch::Sender<bool>,
    /// Number of drained workers. Each worker lives until all have drained, since its flights may
    /// have riders on other workers.
    pub(super) drained: watch::Sender<usize>,
    /// Thread that removes purged objects from the stores in the background.
    pub(super) sweeper: Mutex<Option<JoinHandle<()>>>,
    /// The text of the configuration file that is in use. Locked during a reload, so that reloads run
    /// one after another.
    pub(super) text: Mutex<String>,
    /// The health checks of servers.
    pub(super) monitor: Monitor,
    /// The certificates that are obtained from authorities.
    pub(super) obtained: Obtained,
    pub(super) volumes: Arc<OpenVolumes>,
    pub(super) loggers: Loggers,
    /// The simulations of other sizes of the caches.
    pub(super) what_if: WhatIf,
    /// Every access log that a worker may still write to. The last lines of these logs are written
    /// at shutdown.
    pub(super) logs: Mutex<Vec<Arc<Log>>>,
    /// The fetches by the operator.
    pub(super) fetches: Fetches,
}

impl Edge {
    /// Applies a new plan. Returns a description of the changes, and the warnings about the
    /// configuration.
    pub(super) fn reload(&self) -> Result<String, String> {
        let result = self.try_reload();
        // Reading the configuration took much more memory than is kept of it.
        memory::give_back();
        *self.last_error.lock() = result.as_ref().err().cloned();
        match &result {
            Ok(Reloaded { changes, warnings }) => {
                tracing::info!(target: "sluice::event::reload::reloaded", "reloaded: {}", changes.trim_end().replace('\n', "; "));
                if !warnings.is_empty() {
                    let warnings = warnings.trim_end();
                    tracing::warn!(target: "sluice::event::reload::warnings", "the new configuration has warnings:\n{warnings}");
                }
            }
            Err(error) => {
                tracing::error!(target: "sluice::event::reload::reload-failed", "a reload failed and changed nothing:\n{}", error.trim_end())
            }
        }
        let Reloaded { changes, warnings } = result?;
        Ok(match warnings.is_empty() {
            true => changes,
            false => format!("{}\n\n{warnings}", changes.trim_end()),
        })
    }

    fn try_reload(&self) -> Result<Reloaded, String> {
        let mut text = self.text.lock();
        let source = self.source.as_ref().ok_or(
            "there is no configuration file to read again: Sluice was started with options, or read its configuration from standard input",
        )?;
        let Loaded { plan, warnings } = (source.read)()?;
        let before = self.snapshots.borrow().clone();
        let mut changes = config::changes(&before.plan, &plan);
        if !changes.needs_restart.is_empty() {
            return Err(config::restart(&text, &warnings, &changes.needs_restart).render(false));
        }
        if let Some(why) = self.dropped_privileges.refuses(&plan) {
            return Err(why);
        }
        let workers = before.workers;
        let next = Snapshot::build(plan, workers, Some(&before), &self.clock).map_err(|error| {
            let file = (warnings.name.clone(), warnings.text.as_str());
            let error = self.dropped_privileges.explain(error, Some(file));
            format!("{}\n", format!("{error:#}").trim_end())
        })?;
        if next.has_other_keys(&before) {
            changes.applied.push("keys in files changed".to_owned());
        }
        let rendered = match warnings.problems.is_empty() {
            true => String::new(),
            false => warnings.render(false),
        };
        let all_follow = self.put_in_force(next, before)?;
        *text = warnings.text;
        let changes = match all_follow {
            true => changes.to_string(),
            false => format!("{changes}\nsome workers are busy and will follow"),
        };
        Ok(Reloaded {
            changes,
            warnings: rendered,
        })
    }

    /// Reads the files of TLS again, with the configuration that is in use. Returns whether changed contents came into
    /// use.
    pub(super) fn renew_certificates(&self) -> Result<bool, String> {
        // Reloads wait meanwhile.
        let _text = self.text.lock();
        let before = self.snapshots.borrow().clone();
        let (plan, workers) = (before.plan.clone(), before.workers);
        let next = Encryption::renew(&plan, &before.encryption, &self.clock).and_then(|tls| {
            Snapshot::with_encryption(plan, workers, Some(&before), tls, &self.clock)
        });
        let next = next.map_err(|e| format!("{:#}", self.dropped_privileges.explain(e, None)))?;
        let has_changed = next.encryption.has_changed;
        self.put_in_force(next, before).map(|_| has_changed)
    }

    /// Replaces the snapshot in use, and waits for the workers. Returns whether all of them follow.
    fn put_in_force(&self, next: Snapshot, before: Arc<Snapshot>) -> Result<bool, String> {
        let (workers, taken_up) = (before.workers, next.taken_up.clone());
        // Building the snapshot may have waited long for a disk or a pipe, so shutdown may have
        // begun since.
        if *self.stopping.borrow() {
            return Err("it is stopping\n".to_owned());
        }
        let (volumes, shutdown_timeout) = (next.volumes.clone(), next.plan.limits.shutdown_timeout);
        self.buffers.set_options(&next.plan.buffers);
        // The workers that follow need the answers to challenges.
        let managed = &next.encryption.managed;
        let helper = self.dropped_privileges.dns_helper();
        let followed = self
            .obtained
            .follow(&next.plan, managed, &self.clock, helper);
        followed
            .map_err(|error| format!("{:#}\n", self.dropped_privileges.explain(error, None)))?;
        next.take_effect(&before);
        self.simulate(&next);
        self.observed.notices().set_mask(observed::mask(&next.plan));
        let next = Arc::new(next);
        self.snapshots.send_replace(next.clone());
        if let Some(sweeper) = &*self.sweeper.lock() {
            next.wake(sweeper);
        }
        drop(next);
        self.watch_servers();
        self.keep_log();
        drop(before);
        self.volumes.take_up(&volumes, shutdown_timeout);
        let all_follow = taken_up.wait(workers, RELOAD_WAIT);
        self.keep_log();
        let current = self.snapshots.borrow().route_keys.clone();
        self.routes.retain(&current);
        Ok(all_follow)
    }

    /// Obtains the certificates that the snapshot in use wants, or signs them.
    pub(super) fn obtain_certificates(&self) -> anyhow::Result<()> {
        let snapshot = self.snapshots.borrow().clone();
        let managed = &snapshot.encryption.managed;
        let helper = self.dropped_privileges.dns_helper();
        self.obtained
            .follow(&snapshot.plan, managed, &self.clock, helper)
    }

    /// Has the health of the servers in use checked.
    pub(super) fn watch_servers(&self) {
        let snapshot = self.snapshots.borrow().clone();
        let upstreams = snapshot.upstreams.iter();
        let upstreams = upstreams.filter_map(|(name, state)| {
            let options = snapshot.plan.upstreams.get(name)?;
            Some((options, state))
        });
        if let Err(error) = self.monitor.watch(upstreams, &self.clock) {
            tracing::error!(%error, "health checks can't be run");
        }
    }

    pub(super) fn reopen_logs(&self) {
        if let Some(log) = &self.snapshots.borrow().log {
            log.reopen();
        }
        if let Some(messages) = messages::installed() {
            messages.reopen();
        }
        self.observed.reopen();
    }

    /// Keeps the current log, and drops the logs to which no worker can write any more. Dropping a
    /// log ends its thread and closes its file.
    pub(super) fn keep_log(&self) {
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
    pub(super) fn close_volumes(&self, within: Duration) {
        if !self.volumes.end(within.max(CLOSE_WAIT)) {
            tracing::warn!(
                "not all volumes could be closed in time: the next start takes longer to load their index"
            );
        }
    }

    /// Writes the last lines of the access logs.
    pub(super) fn finish_logs(&self) {
        for log in self.logs.lock().drain(..) {
            if !log.finish(LOG_WAIT) {
                tracing::warn!("the last lines of an access log could not be written in time");
            }
        }
    }
}
