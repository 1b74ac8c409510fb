//! State of an upstream's servers that all workers share. Each worker writes it without contention,
//! and any thread may read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::failure_log::FailureLog;
use super::options::{Options, Server};
use crate::reason::{Party, Reason};
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
    failures: FailureLog,
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
                failures: FailureLog::default(),
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

    /// Notes whether the server accepted a connection (`Ok`), or the reason why it did not, and logs
    /// when that changes.
    pub(super) fn note_connect(&self, result: Result<(), Reason>) {
        let accepted = result.is_ok();
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
            (false, false) if result == Err(Reason::Unresolved) => {
                tracing::warn!(%upstream, server = %address, "the name of a server does not resolve");
            }
            (false, false) => {
                tracing::warn!(%upstream, server = %address, "a server accepts no connections");
            }
            _ => {}
        }
    }

    /// Logs that a request to the server failed, unless the client is at fault or the last message
    /// about this cause is recent. `url` makes the text of the request's URL.
    pub(super) fn report_failure(&self, cause: Reason, now_us: u64, url: impl FnOnce() -> String) {
        if cause.whose() != Some(Party::Origin) {
            return;
        }
        if let Some(failures) = self.failures.count(cause, now_us) {
            let (upstream, address, url) = (&self.upstream, &self.address, url());
            tracing::warn!(
                %upstream, server = %address, %url, cause = cause.text(), failures,
                "requests to a server fail"
            );
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
