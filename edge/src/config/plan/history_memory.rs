//! The memory that the history of a plan takes.

use super::Plan;
use super::history::HistoryMemory;
use crate::telemetry::Reasons;
use crate::telemetry::history::{MEMORY_MAX, Scope, member_bytes};

impl Plan {
    /// Returns the memory that the history takes once it covers a week.
    pub fn history_memory(&self) -> HistoryMemory {
        let members = Scope::ALL
            .iter()
            .map(|scope| self.members(*scope) * member_bytes(*scope));
        let wanted: usize = members.sum();
        let (per_worker, per_route) = (member_bytes(Scope::Worker), member_bytes(Scope::Route));
        let over = wanted.saturating_sub(MEMORY_MAX - per_worker);
        let without = over.div_ceil(per_route).min(self.members(Scope::Route));
        HistoryMemory {
            members: (wanted - without * per_route) as u64,
            per_worker: per_worker as u64,
            routes_without: without as u64,
        }
    }

    /// Returns the number of members of a scope, without the workers.
    fn members(&self, scope: Scope) -> usize {
        match scope {
            Scope::Edge => 1,
            Scope::Reason => Reasons::names().count(),
            Scope::Worker => 0,
            Scope::Site => self.sites.len(),
            Scope::Route => self.sites.iter().map(|site| site.routes.len()).sum(),
            Scope::Cache => self.caches.len(),
            Scope::Volume => self.volumes.len(),
            Scope::Upstream => self.upstreams.len(),
            Scope::Server => self.upstreams.values().map(|one| one.servers.len()).sum(),
        }
    }
}
