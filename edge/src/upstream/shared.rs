//! What is known of an upstream's servers, kept per worker without contention and read by anyone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

use super::Options;
use crate::telemetry::Counter;

/// One upstream's servers and their numbers, for all workers together.
pub struct Shared {
    name: String,
    servers: Vec<Described>,
    workers: Mutex<Vec<Arc<[Numbers]>>>,
    health: Arc<Health>,
}

/// Which servers accept connections, as far as it was told.
pub(super) struct Health {
    upstream: String,
    servers: Vec<(String, AtomicBool)>,
}

impl Health {
    /// A server accepted a connection, or did not. Says so when that is news.
    pub(super) fn note(&self, server: usize, accepted: bool) {
        let Some((address, is_down)) = self.servers.get(server) else {
            return;
        };
        // Nearly always nothing is new: then nothing is written.
        if is_down.load(Ordering::Relaxed) != accepted {
            return;
        }
        match (is_down.swap(!accepted, Ordering::Relaxed), accepted) {
            (true, true) => {
                tracing::info!(upstream = %self.upstream, server = %address, "a server accepts connections again");
            }
            (false, false) => {
                tracing::warn!(upstream = %self.upstream, server = %address, "a server accepts no connections");
            }
            _ => {}
        }
    }
}

struct Described {
    address: String,
    weight: u32,
    backup: bool,
}

/// One worker's numbers of one server; only that worker writes them.
#[derive(Default)]
pub(super) struct Numbers {
    pub(super) idle: Counter,
    pub(super) busy: Counter,
    pub(super) connects: Counter,
    pub(super) requests: Counter,
    pub(super) failures: Counter,
}

/// A server's numbers now, summed over the workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerStatus {
    /// Host and port as configured.
    pub address: String,
    /// Share of requests.
    pub weight: u32,
    /// Whether it is only asked when all others failed.
    pub backup: bool,
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

impl Shared {
    /// For the upstream of this name.
    pub fn new(name: impl Into<String>, options: &Options) -> Arc<Shared> {
        let described = |server: &super::Server| Described {
            address: server.address(),
            weight: server.weight,
            backup: server.backup,
        };
        let name = name.into();
        let servers = options.servers.iter();
        Arc::new(Shared {
            health: Arc::new(Health {
                upstream: name.clone(),
                servers: servers
                    .map(|server| (server.address(), AtomicBool::new(false)))
                    .collect(),
            }),
            name,
            servers: options.servers.iter().map(described).collect(),
            workers: Mutex::default(),
        })
    }

    /// The upstream's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the workers know of its servers together.
    pub(super) fn health(&self) -> Arc<Health> {
        self.health.clone()
    }

    /// Numbers for one more worker, one for each server.
    pub(super) fn worker(&self) -> Arc<[Numbers]> {
        let numbers: Arc<[Numbers]> = self.servers.iter().map(|_| Numbers::default()).collect();
        self.workers.lock().push(numbers.clone());
        numbers
    }

    /// Each server's numbers, in the order of the configuration. Any thread may ask.
    pub fn status(&self) -> Vec<ServerStatus> {
        let workers = self.workers.lock().clone();
        let sum = |server: usize, of: fn(&Numbers) -> &Counter| {
            workers
                .iter()
                .map(|w| of(&w[server]).get())
                .fold(0, u64::wrapping_add)
        };
        let status = |(i, server): (usize, &Described)| ServerStatus {
            address: server.address.clone(),
            weight: server.weight,
            backup: server.backup,
            idle: sum(i, |n| &n.idle),
            busy: sum(i, |n| &n.busy),
            connects: sum(i, |n| &n.connects),
            requests: sum(i, |n| &n.requests),
            failures: sum(i, |n| &n.failures),
        };
        self.servers.iter().enumerate().map(status).collect()
    }
}
