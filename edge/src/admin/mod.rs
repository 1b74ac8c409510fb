//! The admin API: status, a look at one URL, purges, reload, metrics. It runs on a thread of its own and sees
//! the rest of the edge through one trait, `Inspect`.

mod metrics;
mod object;
mod purge;
mod server;
#[cfg(test)]
mod tests;
mod volume;

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

pub use object::{DecisionState, FlightState, ObjectState, OnVolume, Span, UrlState};
pub use purge::{Order, PurgeLogged, Purging, Refusal};
pub use server::Admin;
pub use volume::VolumeState;

/// What the admin API asks the edge. Called on the admin thread or one beside it, never on a worker.
pub trait Inspect: Send + Sync {
    /// The state of everything, quickly.
    fn status(&self) -> Status;

    /// What is stored and being fetched of a URL, for each cache that knows it.
    ///
    /// # Errors
    /// What is wrong with the URL (400).
    fn url(&self, url: &str) -> Result<Vec<UrlState>, String>;

    /// Purges. It is in force when this returns.
    ///
    /// # Errors
    /// Why nothing, or not all of it, was purged.
    fn purge(&self, order: &Order) -> Result<Purging, Refusal>;

    /// Reads the configuration again and brings it into force. Says what changed. May take its time.
    ///
    /// # Errors
    /// Why nothing changed (422).
    fn reload(&self) -> Result<String, String>;
}

/// `GET /status`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// Of the program.
    pub version: String,
    /// Of the process.
    pub pid: u32,
    /// Since the start, seconds.
    pub uptime_s: u64,
    /// Each worker's counters.
    pub workers: Vec<Numbers>,
    /// The workers' counters summed.
    pub counters: Numbers,
    /// By name.
    pub caches: BTreeMap<String, CacheState>,
    /// Content in codings made here, where a route compresses.
    pub compress: Option<CompressState>,
    /// In order of name.
    pub volumes: Vec<VolumeState>,
    /// In the order of their routes.
    pub files: Vec<FilesState>,
    /// By name.
    pub upstreams: BTreeMap<String, UpstreamState>,
    /// The configuration in force.
    pub reload: ReloadState,
}

/// Numbers with a name and a meaning. Names ending in `_now` are gauges, the rest only rise. In JSON
/// an object from names to values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(pub Vec<(&'static str, &'static str, u64)>);

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, _, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// One cache now.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CacheState {
    /// Objects of which something is stored.
    pub objects: u64,
    /// Bytes of memory in use, bookkeeping included.
    pub bytes: u64,
    /// Bytes it may use.
    pub limit: u64,
    /// Bytes that readers or fetches hold, so that they can't be dropped now.
    pub pinned: u64,
    /// Fetches in progress.
    pub flights: u64,
    /// Objects dropped to make room, since the start.
    pub evicted: u64,
    /// Purges that something stored, or being fetched, may still have to be checked against.
    pub purges: u64,
    /// Objects and blocks that volumes had, since the start.
    pub volume_hits: u64,
    /// Bytes read from volumes, since the start.
    pub volume_bytes: u64,
}

/// Content in codings made here: what is held now, and what was done since it began.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CompressState {
    /// Contents of which something is known.
    pub contents: u64,
    /// Bytes of memory in use, bookkeeping included.
    pub bytes: u64,
    /// Bytes that may be used.
    pub limit: u64,
    /// Contents dropped to make room.
    pub evicted: u64,
    /// Codings of contents that were made.
    pub made: u64,
    /// Bytes that went into them.
    pub made_bytes_in: u64,
    /// Bytes that came out.
    pub made_bytes_out: u64,
    /// Contents that hardly shrank.
    pub not_worth: u64,
    /// Codings that could not be made, as a codec failed or the content was gone.
    pub failed: u64,
    /// Codings not made then, as too many waited.
    pub queue_full: u64,
}

/// One folder of files now.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FilesState {
    /// Its path.
    pub root: String,
    /// Paths of which something is known, be it that nothing is there.
    pub entries: u64,
    /// Bytes of memory in use, bookkeeping included; an open file counts as its share.
    pub bytes: u64,
    /// Bytes it may use.
    pub limit: u64,
    /// Files held open.
    pub open: u64,
    /// Paths looked up in the file system, since the start.
    pub loaded: u64,
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
    /// Idle connections in the pools.
    pub idle: u64,
    /// Connections in use.
    pub busy: u64,
    /// Requests sent, since the start.
    pub requests: u64,
    /// Exchanges that failed, since the start.
    pub failures: u64,
}

/// How often the configuration was brought into force, and what became of the last try.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReloadState {
    /// 1 from the start, one more for each reload that took effect.
    pub generation: u64,
    /// Why the last reload changed nothing; none when it did.
    pub last_error: Option<String>,
}
