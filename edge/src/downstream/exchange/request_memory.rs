//! The memory of requests that wait for their responses: counted, and bounded over all workers. One
//! client gets at most half of it, so that others are served.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use super::record::Record;
use crate::downstream::worker::Worker;
use crate::handler::{Fault, Head};
use crate::http::ClientId;
use crate::reason::Reason;

/// Memory of a waiting request besides its head, in bytes: the handler's state, buffers and the
/// connection to an origin (measured: 10 KiB on a route without a cache, 23 KiB with one).
const BASE_BYTES: u64 = 24 << 10;
/// Number of copies of the head that a waiting request has: in the request and in the request to the
/// origin (measured: 1.1 to 2 copies).
const COPIES: u64 = 2;

/// Unread content in bytes that `BASE_BYTES` includes.
const UNREAD_INCLUDED: u64 = 16 << 10;
/// Unit in which unread content is counted, since counting takes a lock.
const UNREAD_STEP: u64 = 64 << 10;

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

impl RequestMemory {
    /// Takes over the bytes that `other` counts for the same request.
    fn add(&mut self, mut other: RequestMemory) {
        self.bytes += std::mem::take(&mut other.bytes);
        other.client = None;
    }

    /// Counts this many bytes less.
    fn reduce(&mut self, bytes: u64) {
        self.bytes -= bytes;
        drop(RequestMemory {
            worker: self.worker.clone(),
            bytes,
            client: self.client,
        });
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

/// The memory of a request's content that has arrived and that no reader has taken. Only a protocol whose clients send
/// content unasked needs this.
pub struct UnreadMemory {
    client: IpAddr,
    counted: Option<RequestMemory>,
}

impl UnreadMemory {
    /// Counts nothing yet for a request of this client.
    pub fn new(client: IpAddr) -> UnreadMemory {
        UnreadMemory {
            client,
            counted: None,
        }
    }

    /// Sets the number of unread bytes, which is counted roughly.
    ///
    /// # Errors
    ///
    /// The memory of all requests, or of this client's, would be over the limit: see `RequestMemory::charge`. The count is
    /// unchanged.
    #[inline]
    pub fn set(&mut self, record: &Record, bytes: usize) -> Result<(), Fault> {
        let bytes = (bytes as u64).saturating_sub(UNREAD_INCLUDED);
        if bytes == 0 && self.counted.is_none() {
            return Ok(());
        }
        self.count(record, bytes.next_multiple_of(UNREAD_STEP))
    }

    fn count(&mut self, record: &Record, bytes: u64) -> Result<(), Fault> {
        let before = self.counted.as_ref().map_or(0, |counted| counted.bytes);
        if bytes > before {
            let limit = record.serving.options.request_memory;
            let more = RequestMemory::charge(record.worker(), self.client, bytes - before, limit)
                .ok_or(Reason::RequestMemory)?;
            match &mut self.counted {
                Some(counted) => counted.add(more),
                None => self.counted = Some(more),
            }
        } else if bytes + 2 * UNREAD_STEP <= before
            && let Some(counted) = &mut self.counted
        {
            counted.reduce(before - bytes);
        }
        Ok(())
    }
}
