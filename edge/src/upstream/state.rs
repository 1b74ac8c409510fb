//! State of an upstream's servers that all workers share. Each worker writes it without contention,
//! and any thread may read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::options::{Options, Server};
use crate::telemetry::{Numbers, ServerCounters, ServerNumbers};

/// The servers of one upstream, with the state that all workers share.
pub struct UpstreamState {
    servers: Vec<Arc<ServerState>>,
}

/// One server, with the state that all workers share.
pub struct ServerState {
    /// Name of the server's upstream, for messages.
    upstream: String,
    address: String,
    /// Whether the last attempt to connect to the server failed.
    is_down: AtomicBool,
    workers: Mutex<Vec<Arc<ServerCounters>>>,
}

impl UpstreamState {
    /// Creates the state of the upstream of this name, before any worker uses it.
    pub fn new(name: &str, options: &Options) -> Arc<UpstreamState> {
        let state = |server: &Server| {
            Arc::new(ServerState {
                upstream: name.to_owned(),
                address: server.address(),
                is_down: AtomicBool::new(false),
                workers: Mutex::default(),
            })
        };
        Arc::new(UpstreamState {
            servers: options.servers.iter().map(state).collect(),
        })
    }

    /// Returns the servers, in the order of the configuration.
    pub fn servers(&self) -> &[Arc<ServerState>] {
        &self.servers
    }
}

impl ServerState {
    /// Returns host and port as configured.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Creates the counters of one more worker.
    pub(super) fn worker(&self) -> Arc<ServerCounters> {
        let counters = Arc::<ServerCounters>::default();
        self.workers.lock().push(counters.clone());
        counters
    }

    /// Notes whether the server accepted a connection, and logs when that changes.
    pub(super) fn note_connect(&self, accepted: bool) {
        // Usually nothing changed: then the flag is only read, so that workers do not contend for
        // its cache line.
        if self.is_down.load(Ordering::Relaxed) != accepted {
            return;
        }
        let (upstream, address) = (&self.upstream, &self.address);
        match (self.is_down.swap(!accepted, Ordering::Relaxed), accepted) {
            (true, true) => {
                tracing::info!(%upstream, server = %address, "a server accepts connections again");
            }
            (false, false) => {
                tracing::warn!(%upstream, server = %address, "a server accepts no connections");
            }
            _ => {}
        }
    }

    /// Returns the server's current numbers, summed over the workers.
    pub fn numbers(&self) -> ServerNumbers {
        let mut sum = ServerNumbers::default();
        for worker in &*self.workers.lock() {
            sum.add(&worker.numbers());
        }
        sum
    }
}
