//! The threads of the history: one records readings once per second, the other one saves them.

mod readings;
mod saving;
mod thread;

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::Context as _;

use super::edge::Edge;
use crate::config::{HistoryPlan, Plan};
use crate::sys::{Clock, priority};
use crate::telemetry::history::{MEMORY_MAX, Moment, SharedHistory, Tick, layouts};

use readings::Recorder;
use thread::{Stop, Thread};

/// Seconds between two readings of sites, routes, caches, volumes, upstreams and servers.
const COARSE_S: u64 = 10;
/// Seconds after which members without points are removed.
const PRUNE_S: u64 = 3600;
/// Longest time that the end of the thread is awaited.
const END_WAIT: Duration = Duration::from_secs(5);

/// The running threads of the history.
pub(super) struct HistoryThreads {
    collector: Thread,
    saver: Option<Thread>,
}

/// Returns an empty history, if the plan wants one.
pub(super) fn shared(plan: &Plan, clock: &Clock) -> Option<Arc<SharedHistory>> {
    let now_s = moment(clock).unix_s;
    let history = || SharedHistory::new(layouts(), MEMORY_MAX, now_s);
    plan.history.is_on().then(|| Arc::new(history()))
}

/// Starts the threads, if there is a history. Called before the first request is accepted, when all counters are zero.
///
/// # Errors
///
/// The folder of the history can't be used, or a thread can't be started.
pub(super) fn start(edge: &Arc<Edge>) -> anyhow::Result<Option<HistoryThreads>> {
    let Some(history) = &edge.history else {
        return Ok(None);
    };
    let (restored, is_restored) = mpsc::channel();
    let plan = edge.snapshots.borrow().plan.history.clone();
    let saver = match plan {
        HistoryPlan::Folder(path) => Some(saving::start(edge, history, &path, restored)?),
        HistoryPlan::Memory | HistoryPlan::Off => {
            drop(restored);
            None
        }
    };
    let collector = Collector {
        began: moment(&edge.clock),
        clock: edge.clock.clone(),
        history: history.clone(),
        recorder: Recorder::new(edge.clone(), history.clone()),
    };
    let collector = Thread::start("history", move |stop| collector.run(stop, &is_restored));
    Ok(Some(HistoryThreads {
        collector: collector.context("can't start a thread")?,
        saver,
    }))
}

impl HistoryThreads {
    /// Ends the threads. The last points are saved.
    pub(super) fn end(self) {
        let ended = self.collector.end(END_WAIT);
        let saved = self.saver.is_none_or(|saver| saver.end(saving::END_WAIT));
        if !(ended && saved) {
            tracing::warn!("the last points of the history could not be saved in time");
        }
    }
}

/// Returns the present.
fn moment(clock: &Clock) -> Moment {
    Moment {
        unix_s: clock.unix_ms() / 1000,
        monotonic_us: clock.monotonic_us(),
    }
}

/// The thread that records readings.
struct Collector {
    /// Time at which all counters were zero.
    began: Moment,
    clock: Clock,
    history: Arc<SharedHistory>,
    recorder: Recorder,
}

impl Collector {
    fn run(mut self, stop: &Stop, is_restored: &Receiver<()>) {
        if let Err(error) = priority::lower() {
            tracing::debug!(%error, "the history's thread keeps its priority");
        }
        // An error means that the sender was dropped: there is nothing to restore, or it is done.
        let _ = is_restored.recv();
        let (mut fine, mut coarse) = (self.began, self.began);
        while stop.wait(self.until_next_second()) {
            let now = moment(&self.clock);
            if now.unix_s == fine.unix_s {
                continue;
            }
            self.recorder.note_fine(&Tick::between(fine, now));
            if now.unix_s / COARSE_S != coarse.unix_s / COARSE_S {
                self.recorder.note_coarse(&Tick::between(coarse, now));
                coarse = now;
            }
            self.history.announce(now.unix_s);
            if now.unix_s / PRUNE_S != fine.unix_s / PRUNE_S {
                self.history.write().prune(now.unix_s);
            }
            fine = now;
        }
    }

    /// Returns the time until a moment after the beginning of the next second.
    fn until_next_second(&self) -> Duration {
        let ms = self.clock.unix_ms() % 1000;
        Duration::from_millis(1001 - ms)
    }
}
