//! The history of numbers in a plan, and the memory that it takes.

use std::path::PathBuf;

use super::Plan;
use crate::telemetry::history::{MEMORY_MAX, Scope, member_bytes};

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

impl Plan {
    /// Returns the memory that the history takes once it covers a week.
    pub fn history_memory(&self) -> HistoryMemory {
        let routes: usize = self.sites.iter().map(|site| site.routes.len()).sum();
        let count = |scope: Scope| match scope {
            Scope::Edge => 1,
            Scope::Reason => crate::reason::Reason::ALL.len(),
            Scope::Worker => 0,
            Scope::Site => self.sites.len(),
            Scope::Route => routes,
            Scope::Cache => self.caches.len(),
            Scope::Volume => self.volumes.len(),
            Scope::Upstream => self.upstreams.len(),
            Scope::Server => self.upstreams.values().map(|one| one.servers.len()).sum(),
        };
        let bytes = |scope: &Scope| count(*scope) * member_bytes(*scope);
        let wanted: usize = Scope::ALL.iter().map(bytes).sum();
        let limit = MEMORY_MAX - member_bytes(Scope::Worker);
        let over = wanted
            .saturating_sub(limit)
            .div_ceil(member_bytes(Scope::Route));
        let without = over.min(routes);
        HistoryMemory {
            members: (wanted - without * member_bytes(Scope::Route)) as u64,
            per_worker: member_bytes(Scope::Worker) as u64,
            routes_without: without as u64,
        }
    }
}
