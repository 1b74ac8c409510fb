//! Types of `GET /status`, which reports the state of everything. The table in `telemetry`
//! describes the numbers in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::certificate_state::Certificates;
use crate::telemetry::{
    BufferNumbers, CacheNumbers, CompressNumbers, EffectiveState, FilesNumbers, ProcessNumbers,
    Rates, RouteNumbers, ServerMeasures, ServerNumbers, VolumeNumbers, WorkerMeasures,
    WorkerNumbers,
};

/// Response to `GET /status`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since the process started.
    pub uptime_s: u64,
    /// Numbers of the process.
    pub process: ProcessNumbers,
    /// Each worker's counters.
    pub workers: Vec<WorkerNumbers>,
    /// Sum of the workers' counters.
    pub counters: WorkerNumbers,
    /// Each worker's histograms, which `GET /metrics` shows.
    #[serde(skip)]
    pub measures_by_worker: Vec<WorkerMeasures>,
    /// Percentiles of all workers' histograms since the start.
    #[serde(flatten)]
    pub measures: WorkerMeasures,
    /// Rates, hit ratios and request durations over the last ten seconds.
    pub recent: Rates,
    /// Numbers of each route by its name, which `GET /metrics` shows. There may be many.
    #[serde(skip)]
    pub routes: Vec<(Arc<str>, RouteNumbers)>,
    /// Sums over the routes of each site, by the site's name.
    pub sites: BTreeMap<String, RouteNumbers>,
    /// Sums over the routes of each cache, by the cache's name.
    pub cache_traffic: BTreeMap<String, RouteNumbers>,
    /// Caches by name.
    pub caches: BTreeMap<String, CacheNumbers>,
    /// Numbers of the buffers of bodies.
    pub buffers: BufferNumbers,
    /// Numbers of compressed content, if a route compresses.
    pub compress: Option<CompressNumbers>,
    /// Volumes, in the order of their names.
    pub volumes: Vec<VolumeState>,
    /// Folders of static files, in the order of their routes.
    pub files: Vec<FilesState>,
    /// Upstreams by name.
    pub upstreams: BTreeMap<String, UpstreamState>,
    /// The configuration in use, and the result of the last reload.
    pub reload: ReloadState,
    /// The certificates of listeners, sites and the admin address.
    pub certificates: Certificates,
    /// Number of certificates, authorities and secrets of tickets whose changed files can't be used.
    pub tls_files_refused: u64,
}

/// The state of one volume.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VolumeState {
    /// Name of the volume in the configuration.
    pub name: String,
    /// Path of the volume's file or block device.
    pub path: String,
    /// Whether the volume is used.
    pub state: VolumeUse,
    /// Reason for which the volume is out.
    pub why: Option<String>,
    /// Fraction of the volume's index that has been read, from 0 to 1.
    pub loaded: f64,
    /// Numbers of the volume.
    #[serde(flatten)]
    pub numbers: VolumeNumbers,
    /// Names of the caches that use the volume.
    pub caches: Vec<String>,
}

/// Whether a volume is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeUse {
    /// The volume is used.
    Up,
    /// The volume is used while its index is still being read.
    Loading,
    /// The volume is not used.
    #[default]
    Out,
}

/// The state of one folder of static files.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FilesState {
    /// Path of the folder.
    pub root: String,
    /// Numbers of the folder.
    #[serde(flatten)]
    pub numbers: FilesNumbers,
}

/// The state of one upstream.
#[derive(Clone, Debug, Default, Serialize)]
pub struct UpstreamState {
    /// Servers of the upstream, in the order of the configuration.
    pub servers: Vec<ServerState>,
    /// Sum over the servers.
    pub total: ServerTotal,
}

/// The sum over the servers of an upstream.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerTotal {
    /// Numbers of the servers.
    #[serde(flatten)]
    pub numbers: ServerNumbers,
    /// Durations and failures of the servers.
    #[serde(flatten)]
    pub measures: ServerMeasures,
}

/// The state of one origin server, over all workers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerState {
    /// Host and port of the server, or its name if that has no address yet.
    pub address: String,
    /// The server as configured: host and port, or the name of which `address` is one.
    pub name: String,
    /// `up`, `drain` or `down` as the operator has ordered; `checking` before the first health
    /// check of an added address has ended, `unhealthy` if health checks fail,
    /// `ejected` if requests failed, or `unreachable` if the last attempt to connect failed;
    /// `resolving` before the first answer about a name, and `unresolved` if it has no address.
    pub state: EffectiveState,
    /// Why the server is in this state. Absent if it is `up`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Only for an ejected server: seconds until a request may test it. 0 while one does, or is awaited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial_in_s: Option<f64>,
    /// Share of the requests relative to the other servers' weights.
    pub weight: u32,
    /// Whether the server is used only while all others fail or are full.
    pub backup: bool,
    /// Numbers of the server.
    #[serde(flatten)]
    pub numbers: ServerNumbers,
    /// Durations and failures of the server.
    #[serde(flatten)]
    pub measures: ServerMeasures,
}

/// The number of configurations that came into use, and the result of the last reload.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReloadState {
    /// Number of the configuration: 1 at the start, and one more after each reload that took
    /// effect.
    pub generation: u64,
    /// Error of the last reload. `None` if it took effect.
    pub last_error: Option<String>,
}
