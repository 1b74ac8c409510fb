//! The history of numbers in a plan.

use std::path::PathBuf;

/// Whether there is a history of numbers, and where it is saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryPlan {
    /// There is no history.
    Off,
    /// The history is only in memory.
    Memory,
    /// The history is saved in this folder.
    Folder(PathBuf),
}

/// The memory of a history, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryMemory {
    /// Memory of all members except the workers.
    pub members: u64,
    /// Memory for each worker.
    pub per_worker: u64,
    /// Number of routes without a history because the limit of memory is reached, if there is one worker.
    pub routes_without: u64,
}

impl HistoryPlan {
    /// Whether there is a history.
    pub fn is_on(&self) -> bool {
        *self != HistoryPlan::Off
    }
}
