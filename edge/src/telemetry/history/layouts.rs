//! The series of each scope, from the table of metrics.

use super::layout::Layout;
use super::scope::Scope;
use crate::telemetry::table::{
    CacheNumbers, Counters, ServerCounters, ServerNumbers, VolumeNumbers, WorkerNumbers,
};

/// Most memory of the histories of all members together. Further members have no history.
pub const MEMORY_MAX: usize = 192 << 20;

/// Series of one worker. The sum over all workers has all series.
const OF_WORKERS: [&str; 8] = [
    "connections_now",
    "connections_accepted",
    "requests",
    "requests_now",
    "client_bytes_out",
    "upstream_bytes_in",
    "tls_handshakes",
    "cpu_ms",
];

/// Returns the layout of a scope.
pub fn layout(scope: Scope) -> Layout {
    let layout = Layout::new(scope);
    let all = |_: &str| true;
    match scope {
        Scope::Edge => layout
            .with_numbers::<WorkerNumbers>(all)
            .with_histograms(Counters::HISTOGRAMS, all),
        Scope::Reason => layout.with_counter("requests", "Requests that had this reason."),
        Scope::Worker => layout
            .with_numbers::<WorkerNumbers>(|name| OF_WORKERS.contains(&name))
            .with_histograms(Counters::HISTOGRAMS, all),
        Scope::Site | Scope::Route => layout.with_counter("requests", "Requests."),
        Scope::Cache => layout.with_numbers::<CacheNumbers>(all),
        Scope::Volume => layout.with_numbers::<VolumeNumbers>(all),
        Scope::Upstream | Scope::Server => layout
            .with_numbers::<ServerNumbers>(all)
            .with_histograms(ServerCounters::HISTOGRAMS, all),
    }
}

/// Returns the layouts of all scopes.
pub fn layouts() -> impl Iterator<Item = Layout> {
    Scope::ALL.into_iter().map(layout)
}

/// Returns the memory that the history of one member of a scope takes, in bytes.
pub fn member_bytes(scope: Scope) -> usize {
    layout(scope).member_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_series_of_a_scope_has_a_name_of_its_own() {
        for layout in layouts() {
            let names: BTreeSet<&str> = layout.series().iter().map(|one| &*one.name).collect();
            assert_eq!(names.len(), layout.series().len(), "{:?}", layout.scope());
            assert!(!names.is_empty());
        }
    }

    #[test]
    fn chosen_series_exist() {
        let worker = layout(Scope::Worker);
        let missing = OF_WORKERS
            .iter()
            .filter(|name| worker.position(name).is_none());
        assert_eq!(missing.count(), 1, "cpu_ms");
    }
}
