//! Restores the history from a folder, and saves it there.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::Context as _;

use super::thread::{Stop, Thread};
use crate::config::{Part, Unusable};
use crate::sys::{Clock, priority};
use crate::telemetry::history::{Damage, History, MEMORY_MAX, Saver, SharedHistory, layouts};
use crate::wiring::edge::Edge;

/// Time between two saves.
const SAVE_EVERY: Duration = Duration::from_secs(60);
/// Longest time for the last save.
pub(super) const END_WAIT: Duration = Duration::from_secs(10);

/// Opens the folder, and starts the thread. `restored` is dropped once the saved points are restored.
///
/// # Errors
///
/// The folder can't be used, or the thread can't be started.
pub(super) fn start(
    edge: &Edge,
    history: &Arc<SharedHistory>,
    path: &Path,
    restored: Sender<()>,
) -> anyhow::Result<Thread> {
    let saver = Saver::open(path).map_err(|error| {
        let what = format!("can't save the history in {}", path.display());
        let error = Unusable::new(Part::HistoryFolder, &what, &error).into();
        let file = edge.source.as_ref().map(|source| source.file());
        edge.dropped_privileges.explain(error, file)
    })?;
    let mut saving = Saving {
        saver,
        folder: path.display().to_string(),
        history: history.clone(),
        clock: edge.clock.clone(),
    };
    let thread = Thread::start("history-save", move |stop| saving.run(stop, restored));
    thread.context("can't start a thread")
}

struct Saving {
    saver: Saver,
    /// The folder, for messages.
    folder: String,
    history: Arc<SharedHistory>,
    clock: Clock,
}

impl Saving {
    fn run(&mut self, stop: &Stop, restored: Sender<()>) {
        if let Err(error) = priority::lower() {
            tracing::debug!(%error, "the thread that saves the history keeps its priority");
        }
        let is_usable = self.restore();
        drop(restored);
        if !is_usable {
            return;
        }
        loop {
            let goes_on = stop.wait(SAVE_EVERY);
            if let Err(error) = self.saver.save(self.history.points()) {
                tracing::warn!(%error, "the history can't be saved in {}", self.folder);
            }
            if !goes_on {
                return;
            }
        }
    }

    /// Restores the history. Returns `false` if the disk fails: nothing is saved then, since a save would replace a file that
    /// may be whole.
    fn restore(&mut self) -> bool {
        let mut history = History::new(layouts(), MEMORY_MAX);
        let damage = self
            .saver
            .restore(&mut history, self.clock.unix_ms() / 1000);
        *self.history.write() = history;
        match damage {
            None => {}
            Some(damage @ Damage::Io(_)) => {
                tracing::error!(
                    "a part of the history is missing, and nothing is saved until Sluice is started again: the file in {} can't be read: {damage}",
                    self.folder
                );
                return false;
            }
            Some(damage @ Damage::NoHistory) => tracing::warn!(
                "the history begins empty: the file in {} can't be read: {damage}",
                self.folder
            ),
            Some(damage) => tracing::warn!(
                "a part of the history is lost: the file in {} can't be read to its end: {damage}",
                self.folder
            ),
        }
        true
    }
}
