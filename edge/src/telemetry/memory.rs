//! Upper bounds of the memory that counters, samples and events take.

use super::histogram_counters::BYTES_MAX;
use super::measures::Measures;
use super::observed;
use super::table::{Counters, WorkerMeasures};
use super::traffic_table::{RouteCounters, RouteMeasures, ServerCounters, ServerMeasures};

/// The most memory that something takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryMax {
    /// Memory for all workers together.
    pub shared: u64,
    /// Memory for each worker.
    pub per_worker: u64,
}

/// Returns the most memory of the counters and histograms of these numbers of routes and servers. Histograms allocate it only
/// for values that occur, which are far fewer.
pub fn counters_max(routes: usize, servers: usize) -> MemoryMax {
    let with = |counters: usize, histograms: usize| counters + histograms * BYTES_MAX;
    let worker = with(size_of::<Counters>(), WorkerMeasures::METRICS.len());
    let route = with(size_of::<RouteCounters>(), RouteMeasures::METRICS.len());
    let server = with(size_of::<ServerCounters>(), ServerMeasures::METRICS.len());
    MemoryMax {
        shared: 0,
        per_worker: (worker + routes * route + servers * server) as u64,
    }
}

/// Returns the most memory of samples, top URLs and events.
pub fn observed_max() -> MemoryMax {
    MemoryMax {
        shared: observed::SHARED_BYTES_MAX as u64,
        per_worker: observed::WORKER_BYTES_MAX as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::super::histogram_counters::HistogramCounters;
    use super::*;
    use crate::sys::allocations;

    #[test]
    fn a_histogram_of_all_values_allocates_its_table_and_all_pages() {
        let histogram = HistogramCounters::default();
        let allocated =
            allocations::during(|| (0..64).for_each(|bits| histogram.record(1 << bits)));
        assert_eq!(allocated, 1 + 36);
        assert_eq!(BYTES_MAX, 36 * (8 + 64 * 8));
    }

    #[test]
    fn memory_grows_with_routes_and_servers() {
        let bytes = |routes, servers| counters_max(routes, servers).per_worker;
        let route = bytes(1, 0) - bytes(0, 0);
        assert!((90_000..96_000).contains(&route), "{route}");
        assert_eq!(bytes(1000, 0), bytes(0, 0) + 1000 * route);
        assert!(bytes(0, 1) > bytes(0, 0) + route / 2);
        let observed = observed_max();
        assert!((16 << 20..32 << 20).contains(&observed.shared));
        assert!((8 << 20..12 << 20).contains(&observed.per_worker));
    }
}
