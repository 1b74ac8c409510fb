//! The memory of buffers: counted over all workers and for each client, and limited.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::http::ClientId;
use crate::telemetry::Counters;

/// Options of `[buffers]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most bytes of memory that all buffers take. The buffers of one client take at most half of it.
    pub memory: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { memory: 128 << 20 }
    }
}

/// The memory of all buffers, shared by all workers.
pub struct BufferMemory {
    limit: AtomicU64,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    all: u64,
    /// Memory of each client. A client without buffers has no entry.
    of_clients: HashMap<ClientId, u64>,
}

/// The memory of one body's buffers, released when this is dropped.
pub(super) struct Charge {
    memory: Arc<BufferMemory>,
    counters: Arc<Counters>,
    client: ClientId,
    bytes: u64,
}

impl BufferMemory {
    /// Creates the account for these options.
    pub fn new(options: Options) -> Arc<BufferMemory> {
        Arc::new(BufferMemory {
            limit: AtomicU64::new(options.memory),
            used: Mutex::default(),
        })
    }

    /// Applies other options to further buffers.
    pub fn set_options(&self, options: Options) {
        self.limit.store(options.memory, Ordering::Relaxed);
    }

    /// Returns the most bytes that the buffers of one client may take.
    pub(super) fn of_client(&self) -> u64 {
        self.limit.load(Ordering::Relaxed) / 2
    }
}

impl Charge {
    pub(super) fn new(
        memory: &Arc<BufferMemory>,
        counters: &Arc<Counters>,
        client: ClientId,
    ) -> Charge {
        Charge {
            memory: memory.clone(),
            counters: counters.clone(),
            client,
            bytes: 0,
        }
    }

    /// Returns the most bytes that the buffers of one client may take.
    pub(super) fn most(&self) -> u64 {
        self.memory.of_client()
    }

    /// Counts `bytes` more, unless a limit would be exceeded. Returns whether they were counted.
    pub(super) fn grow(&mut self, bytes: u64) -> bool {
        let limit = self.memory.limit.load(Ordering::Relaxed);
        let mut used = self.memory.used.lock();
        let of_client = used.of_clients.get(&self.client).copied().unwrap_or(0) + bytes;
        if used.all + bytes > limit || of_client > limit / 2 {
            return false;
        }
        used.all += bytes;
        used.of_clients.insert(self.client, of_client);
        drop(used);
        self.bytes += bytes;
        self.counters.buffers_now.add(bytes);
        true
    }

    /// Releases bytes that `grow` has counted.
    pub(super) fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        if bytes == 0 {
            return;
        }
        let mut used = self.memory.used.lock();
        used.all -= bytes;
        if let Some(of_client) = used.of_clients.get_mut(&self.client) {
            *of_client -= bytes;
            if *of_client == 0 {
                used.of_clients.remove(&self.client);
            }
        }
        drop(used);
        self.bytes -= bytes;
        self.counters.buffers_now.sub(bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}
