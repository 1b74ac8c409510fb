//! Reads the numbers and histograms of every member of each scope, for the history and the admin API.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::edge::Edge;
use super::snapshot::Snapshot;
use crate::sys::disk::load::load_of;
use crate::sys::usage;
use crate::telemetry::{
    CacheReading, CoarseReading, FineReading, ProcessNumbers, RouteReading, RouteSums,
    ServerReading, VolumeNumbers, WorkerReading,
};
use crate::upstream::UpstreamState;

impl Edge {
    /// Reads the numbers of the process and its workers. Takes some microseconds for each worker.
    pub(super) fn read_fine(&self) -> FineReading {
        let workers = self.telemetry.read();
        let mut edge = WorkerReading::default();
        workers.iter().for_each(|worker| edge.add(worker));
        FineReading {
            at_us: self.clock.monotonic_us(),
            process: self.process_numbers(),
            workers,
            edge,
        }
    }

    /// Reads the numbers of everything that the configuration names. Takes some microseconds for each route and worker, and
    /// holds no lock meanwhile that a request needs.
    pub(super) fn read_coarse(&self) -> CoarseReading {
        let snapshot = self.snapshots.borrow().clone();
        let mut sums = self.routes.read::<RouteReading>(&snapshot.route_keys);
        let names = snapshot.route_keys.iter().map(|key| key.route.clone());
        let routes = names.zip(std::mem::take(&mut sums.routes)).collect();
        let (upstreams, servers) = read_upstreams(&snapshot);
        CoarseReading {
            routes,
            caches: read_caches(&snapshot, &mut sums),
            sites: sums.sites.into_iter().collect(),
            volumes: read_volumes(&snapshot),
            upstreams,
            servers,
        }
    }

    /// Returns the numbers of the process.
    pub(super) fn process_numbers(&self) -> ProcessNumbers {
        let snapshot = self.snapshots.borrow().clone();
        ProcessNumbers {
            uptime_seconds: (self.clock.monotonic_us() - self.began_us) / 1_000_000,
            config_generation: snapshot.generation,
            tls_files_refused: snapshot.encryption.refused.len() as u64,
            config_reload_failed: u64::from(self.last_error.lock().is_some()),
            resident_bytes: usage::resident_bytes().unwrap_or(0),
            memory_limit: usage::memory_limit().unwrap_or(0),
            process_cpu_ms: usage::process_cpu_ms(),
        }
    }
}

fn read_caches(
    snapshot: &Snapshot,
    sums: &mut RouteSums<RouteReading>,
) -> Vec<(Arc<str>, CacheReading)> {
    let caches = snapshot.stores.iter();
    let read = caches.map(|(name, stored)| {
        let traffic = sums.caches.remove(name.as_str()).unwrap_or_default();
        let numbers = stored.store.quick_numbers();
        (name.as_str().into(), CacheReading { numbers, traffic })
    });
    read.collect()
}

fn read_volumes(snapshot: &Snapshot) -> Vec<(Arc<str>, VolumeNumbers)> {
    let volumes = snapshot.volumes.iter();
    let read = volumes.map(|(name, volume)| {
        let options = snapshot.plan.volumes.get(name);
        let numbers = volume.status().numbers;
        let numbers = match options {
            Some(options) => with_load(numbers, &options.path),
            None => numbers,
        };
        (name.as_str().into(), numbers)
    });
    read.collect()
}

/// Adds the load of the disk on which this file or block device is.
pub(super) fn with_load(numbers: VolumeNumbers, path: &Path) -> VolumeNumbers {
    let load = load_of(path).unwrap_or_default();
    VolumeNumbers {
        disk_reads: load.reads,
        disk_read_ms: load.read_ms,
        disk_writes: load.writes,
        disk_write_ms: load.write_ms,
        disk_in_flight: load.in_flight,
        disk_busy_ms: load.busy_ms,
        disk_queue_ms: load.queue_ms,
        ..numbers
    }
}

type OfUpstreams = Vec<(Arc<str>, ServerReading)>;
type OfServers = Vec<([Arc<str>; 2], ServerReading)>;

fn read_upstreams(snapshot: &Snapshot) -> (OfUpstreams, OfServers) {
    let mut upstreams = Vec::new();
    let mut servers = Vec::new();
    for (name, state) in &snapshot.upstreams {
        let name: Arc<str> = name.as_str().into();
        let (numbers, measures) = state.total();
        upstreams.push((name.clone(), ServerReading { numbers, measures }));
        let its = read_servers(state).into_iter();
        servers.extend(its.map(|(address, reading)| ([name.clone(), address], reading)));
    }
    (upstreams, servers)
}

fn read_servers(state: &UpstreamState) -> BTreeMap<Arc<str>, ServerReading> {
    let mut all: BTreeMap<Arc<str>, ServerReading> = BTreeMap::new();
    for server in state.servers() {
        let reading = ServerReading {
            numbers: server.numbers(),
            measures: server.measures(),
        };
        let sum = all.entry(server.address().into()).or_default();
        sum.add(&reading);
    }
    all
}
