//! Readings: numbers and histograms of one member of a scope, taken together.

use std::sync::Arc;

use super::measures::Measures;
use super::metric::Numbers;
use super::table::{CacheNumbers, ProcessNumbers, VolumeNumbers, WorkerMeasures, WorkerNumbers};
use super::traffic_table::{RouteMeasures, RouteNumbers, ServerMeasures, ServerNumbers};

/// The numbers and histograms of one member of a scope at one moment, or a sum or difference of these.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading<N, M> {
    /// The numbers.
    pub numbers: N,
    /// The histograms.
    pub measures: M,
}

/// A reading of one worker, or of all workers together.
pub type WorkerReading = Reading<WorkerNumbers, WorkerMeasures>;
/// A reading of one route, or the sum over the routes of a site or cache.
pub type RouteReading = Reading<RouteNumbers, RouteMeasures>;
/// A reading of one server, or of all servers of an upstream.
pub type ServerReading = Reading<ServerNumbers, ServerMeasures>;

impl<N: Numbers, M: Measures> Reading<N, M> {
    /// Adds another member's values to these.
    pub fn add(&mut self, other: &Reading<N, M>) {
        self.numbers.add(&other.numbers);
        self.measures.add(&other.measures);
    }
}

/// The numbers of the process and its workers at one moment.
#[derive(Clone, Debug, Default)]
pub struct FineReading {
    /// Time of the reading, in microseconds of the monotonic clock.
    pub at_us: u64,
    /// The process.
    pub process: ProcessNumbers,
    /// Each worker, by its index. Requests by reason are in the measures.
    pub workers: Vec<WorkerReading>,
    /// Sum over all workers.
    pub edge: WorkerReading,
}

/// The numbers of everything that the configuration names, at one moment. Members without requests are included.
#[derive(Clone, Debug, Default)]
pub struct CoarseReading {
    /// Sites by name, with routes that a reload removed.
    pub sites: Vec<(Arc<str>, RouteReading)>,
    /// Routes by name, in the order of the file.
    pub routes: Vec<(Arc<str>, RouteReading)>,
    /// Caches by name.
    pub caches: Vec<(Arc<str>, CacheReading)>,
    /// Volumes by name.
    pub volumes: Vec<(Arc<str>, VolumeNumbers)>,
    /// Upstreams by name, with servers that they no longer have. Begins again if a reload changes the upstream.
    pub upstreams: Vec<(Arc<str>, ServerReading)>,
    /// Servers by upstream and address. Several names that lead to one address are one member.
    pub servers: Vec<([Arc<str>; 2], ServerReading)>,
}

/// A reading of one cache.
#[derive(Clone, Debug, Default)]
pub struct CacheReading {
    /// The numbers of the cache, without those that take a pass over all objects: `pinned` and `flights` are 0.
    pub numbers: CacheNumbers,
    /// Sum over the routes of the cache, with routes that a reload removed.
    pub traffic: RouteReading,
}
