//! The series of each scope, from the table of metrics.

use super::layout::Layout;
use super::scope::Scope;
use crate::telemetry::measures::Measures;
use crate::telemetry::table::{CacheNumbers, VolumeNumbers, WorkerMeasures, WorkerNumbers};
use crate::telemetry::traffic_table::{RouteMeasures, RouteNumbers, ServerMeasures, ServerNumbers};

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

/// Histograms of one worker that have series.
const MEASURED_OF_WORKERS: [&str; 2] = ["request_duration", "loop_lag"];

/// Series of a route, and of the sums over the routes of a site or cache. With those of the histograms they are 32, so
/// that a point takes 64 bytes.
const OF_ROUTES: [&str; 12] = [
    "requests",
    "responses_4xx",
    "responses_5xx",
    "hits",
    "validated",
    "misses",
    "collapsed",
    "passes",
    "body_bytes",
    "hit_bytes",
    "upstream_requests",
    "upstream_bytes",
];

/// Numbers of a cache that are not read for the history, because that takes a pass over all objects.
const UNREAD_OF_CACHES: [&str; 2] = ["pinned", "flights"];

/// Returns the layout of a scope.
pub fn layout(scope: Scope) -> Layout {
    let layout = Layout::new(scope);
    let all = |_: &str| true;
    let of_routes = |name: &str| OF_ROUTES.contains(&name);
    match scope {
        Scope::Edge => layout
            .with_numbers::<WorkerNumbers>(all)
            .with_histograms(WorkerMeasures::METRICS, all),
        Scope::Reason => layout.with_counter("requests", "Requests that had this reason."),
        Scope::Worker => layout
            .with_numbers::<WorkerNumbers>(|name| OF_WORKERS.contains(&name))
            .with_histograms(WorkerMeasures::METRICS, |name| {
                MEASURED_OF_WORKERS.contains(&name)
            }),
        Scope::Site | Scope::Route => layout
            .with_numbers::<RouteNumbers>(of_routes)
            .with_histograms(RouteMeasures::METRICS, all),
        Scope::Cache => layout
            .with_numbers::<RouteNumbers>(of_routes)
            .with_numbers::<CacheNumbers>(|name| !UNREAD_OF_CACHES.contains(&name))
            .with_histograms(RouteMeasures::METRICS, all),
        Scope::Volume => layout.with_numbers::<VolumeNumbers>(all),
        Scope::Upstream | Scope::Server => layout
            .with_numbers::<ServerNumbers>(all)
            .with_histograms(ServerMeasures::METRICS, all),
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
    use crate::telemetry::metric::Numbers;

    #[test]
    fn each_series_of_a_scope_has_a_name_of_its_own() {
        for layout in layouts() {
            let names: BTreeSet<&str> = layout.series().iter().map(|one| &*one.name).collect();
            assert_eq!(names.len(), layout.series().len(), "{:?}", layout.scope());
            assert!(!names.is_empty());
        }
    }

    #[test]
    fn chosen_series_exist_and_a_point_of_a_route_takes_64_bytes() {
        assert_eq!(layout(Scope::Route).series().len(), 32);
        let (worker, cache) = (layout(Scope::Worker), layout(Scope::Cache));
        let of_worker = OF_WORKERS.len() + 4 * MEASURED_OF_WORKERS.len();
        assert_eq!(worker.series().len(), of_worker);
        for name in UNREAD_OF_CACHES {
            assert!(
                CacheNumbers::METRICS
                    .iter()
                    .any(|metric| metric.name == name)
            );
            assert!(cache.position(name).is_none());
        }
    }

    #[test]
    fn a_thousand_routes_fit_into_the_memory() {
        let others: usize = [Scope::Edge, Scope::Reason, Scope::Worker]
            .map(member_bytes)
            .into_iter()
            .sum();
        let routes = 1000 * member_bytes(Scope::Route);
        assert!(routes + others < MEMORY_MAX, "{routes} and {others}");
    }
}
