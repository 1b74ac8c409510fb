//! The state of everything, as `GET /status` returns it. The numbers in it are described by the table
//! in `telemetry`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::telemetry::{
    CacheNumbers, CompressNumbers, FilesNumbers, ServerNumbers, VolumeNumbers, WorkerNumbers,
};

/// `GET /status`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// The process id.
    pub pid: u32,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Each worker's counters.
    pub workers: Vec<WorkerNumbers>,
    /// The workers' counters summed.
    pub counters: WorkerNumbers,
    /// Caches by name.
    pub caches: BTreeMap<String, CacheNumbers>,
    /// Compressed content, if a route compresses.
    pub compress: Option<CompressNumbers>,
    /// Volumes in order of name.
    pub volumes: Vec<VolumeState>,
    /// Folders of files in the order of their routes.
    pub files: Vec<FilesState>,
    /// Upstreams by name.
    pub upstreams: BTreeMap<String, UpstreamState>,
    /// The configuration in force.
    pub reload: ReloadState,
}

/// One volume now.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VolumeState {
    /// Its name in the configuration.
    pub name: String,
    /// The file or block device.
    pub path: String,
    /// Whether the volume is used.
    pub state: VolumeUse,
    /// Why the volume is out.
    pub why: Option<String>,
    /// Which part of its index has been read, 0 to 1.
    pub loaded: f64,
    /// Its numbers.
    #[serde(flatten)]
    pub numbers: VolumeNumbers,
    /// The caches that use it.
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

/// One folder of files now.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FilesState {
    /// Its path.
    pub root: String,
    /// Its numbers.
    #[serde(flatten)]
    pub numbers: FilesNumbers,
}

/// One upstream now.
#[derive(Clone, Debug, Default, Serialize)]
pub struct UpstreamState {
    /// Its servers, as configured.
    pub servers: Vec<ServerState>,
}

/// One origin server now, over all workers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerState {
    /// `host:port`.
    pub address: String,
    /// Its numbers.
    #[serde(flatten)]
    pub numbers: ServerNumbers,
}

/// How many configurations came into force, and the result of the last reload.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReloadState {
    /// 1 from the start, one more for each reload that took effect.
    pub generation: u64,
    /// Why the last reload changed nothing; `None` if it took effect.
    pub last_error: Option<String>,
}
