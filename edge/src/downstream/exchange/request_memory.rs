//! The memory of requests that wait for their responses: counted, and bounded over all workers. One
//! client gets at most half of it, so that others are served.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use crate::downstream::worker::Worker;
use crate::handler::Head;
use crate::http::ClientId;

/// Memory of a waiting request besides its head, in bytes: the handler's state, buffers and the
/// connection to an origin (measured: 10 KiB on a route without a cache, 23 KiB with one).
const BASE_BYTES: u64 = 24 << 10;
/// Number of copies of the head that a waiting request has: in the request and in the request to the
/// origin (measured: 1.1 to 2 copies).
const COPIES: u64 = 2;

/// The memory of one waiting request, counted until this is dropped.
pub struct RequestMemory {
    worker: Rc<Worker>,
    bytes: u64,
    /// The client, if its share is limited.
    client: Option<ClientId>,
}

/// Returns the number of bytes to count for a request with this head.
#[inline]
pub fn needed(head: &Head) -> u64 {
    BASE_BYTES + COPIES * (head.fields.text().len() + head.target.len()) as u64
}

impl RequestMemory {
    /// Counts a waiting request. Returns `None` if all waiting requests would then take more than
    /// `limit` bytes (0: no limit), or several of this client more than half of that.
    pub fn charge(
        worker: &Rc<Worker>,
        client: IpAddr,
        bytes: u64,
        limit: u64,
    ) -> Option<RequestMemory> {
        let client = (limit > 0).then(|| ClientId::of(client));
        let of_clients = &worker.balance.client_request_memory;
        if client.is_some_and(|client| !of_clients.add(client, bytes, limit / 2)) {
            worker.counters.requests_over_memory.add(1);
            return None;
        }
        let counted = RequestMemory {
            worker: worker.clone(),
            bytes,
            client,
        };
        let total = &worker.balance.request_memory;
        let before = total.fetch_add(bytes, Ordering::Relaxed);
        worker.counters.request_memory_now.add(bytes);
        if limit > 0 && before.saturating_add(bytes) > limit {
            worker.counters.requests_over_memory.add(1);
            return None;
        }
        Some(counted)
    }
}

impl Drop for RequestMemory {
    fn drop(&mut self) {
        let total = &self.worker.balance.request_memory;
        total.fetch_sub(self.bytes, Ordering::Relaxed);
        self.worker.counters.request_memory_now.sub(self.bytes);
        if let Some(client) = self.client {
            let of_clients = &self.worker.balance.client_request_memory;
            of_clients.subtract(client, self.bytes);
        }
    }
}
