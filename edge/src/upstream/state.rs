//! What all workers together know of an upstream's servers: written by each worker without
//! contention, read by any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::options::{Options, Server};
use crate::telemetry::Counter;

/// One upstream's servers as all workers together know them.
pub struct UpstreamState {
    servers: Vec<Arc<ServerState>>,
}

/// One server as all workers together know it.
pub struct ServerState {
    /// The upstream's name, for messages.
    upstream: String,
    address: String,
    /// Whether the last attempt to connect failed.
    is_down: AtomicBool,
    workers: Mutex<Vec<Arc<ServerCounters>>>,
}

/// One worker's counters of one server; only that worker writes them.
#[derive(Default)]
// Each worker writes its own often: they share no cache line.
#[repr(align(128))]
pub(super) struct ServerCounters {
    pub(super) idle: Counter,
    pub(super) busy: Counter,
    pub(super) connects: Counter,
    pub(super) requests: Counter,
    pub(super) failures: Counter,
}

/// A server's numbers now, summed over the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerNumbers {
    /// Idle connections in the pools.
    pub idle: u64,
    /// Connections in use, those being opened included.
    pub busy: u64,
    /// Connections opened so far.
    pub connects: u64,
    /// Requests sent so far, repeated ones included.
    pub requests: u64,
    /// Exchanges and connection attempts that failed so far.
    pub failures: u64,
}

impl UpstreamState {
    /// The state of the upstream of this name, before any worker uses it.
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

    /// The servers, in the order of the configuration.
    pub fn servers(&self) -> &[Arc<ServerState>] {
        &self.servers
    }
}

impl ServerState {
    /// Host and port as configured.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Counters for one more worker.
    pub(super) fn worker(&self) -> Arc<ServerCounters> {
        let counters = Arc::<ServerCounters>::default();
        self.workers.lock().push(counters.clone());
        counters
    }

    /// Notes that the server accepted a connection, or did not, and logs it when that changed.
    pub(super) fn note_connect(&self, accepted: bool) {
        // Nearly always nothing changed: then nothing is written.
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

    /// The numbers now, summed over the workers.
    pub fn numbers(&self) -> ServerNumbers {
        let workers = self.workers.lock().clone();
        let sum = |of: fn(&ServerCounters) -> &Counter| {
            let values = workers.iter().map(|counters| of(counters).get());
            values.fold(0, u64::wrapping_add)
        };
        ServerNumbers {
            idle: sum(|counters| &counters.idle),
            busy: sum(|counters| &counters.busy),
            connects: sum(|counters| &counters.connects),
            requests: sum(|counters| &counters.requests),
            failures: sum(|counters| &counters.failures),
        }
    }
}
