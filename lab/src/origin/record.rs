//! What a test origin was asked and what it sent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How far an answer got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Still being read, held or sent.
    Pending,
    /// Sent as the resource says.
    Sent,
    /// Ended by a fault.
    Faulted,
    /// The other side went away before the end.
    Aborted,
}

/// One request that reached the origin.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Counts requests from the origin's start; a reset of the record does not touch it.
    pub id: u64,
    /// The connection's number.
    pub connection: u64,
    /// How many requests this connection brought before.
    pub nth_on_connection: u64,
    /// When the head was complete.
    pub at: Instant,
    /// The head as it came, with the empty line that ends it.
    pub raw_head: Vec<u8>,
    /// The method as it came.
    pub method: String,
    /// The request target as it came.
    pub target: String,
    /// Minor version: 1 for HTTP/1.1.
    pub minor_version: u8,
    /// Fields in their order, names as they came.
    pub headers: Vec<(String, String)>,
    /// The body, without its framing, up to [`BODY_KEPT`] bytes.
    pub body: Vec<u8>,
    /// Length of the whole body so far.
    pub body_length: u64,
    /// Whether the body came to its end.
    pub body_complete: bool,
    /// Whether all of the body so far is an offset body.
    pub body_is_offset: bool,
    /// Status that was answered, 0 before that.
    pub status: u16,
    /// First and last byte of a 206 with one range.
    pub range: Option<(u64, u64)>,
    /// Body bytes sent so far.
    pub sent: u64,
    /// How far the answer got.
    pub outcome: Outcome,
}

/// Bytes of a request body that are kept in [`Seen::body`].
pub const BODY_KEPT: usize = 1 << 20;

/// Bytes of what a connection brought that are kept in [`Connection::received`].
pub const RECEIVED_KEPT: usize = 256 << 10;

impl Seen {
    /// The target's path, without the query.
    pub fn path(&self) -> &str {
        path_of(&self.target)
    }

    /// The first value of a field, by its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// All values of a field in their order.
    pub fn header_all(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }
}

/// One connection that the origin accepted.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Its number, counted from the origin's start.
    pub id: u64,
    /// The other side.
    pub peer: SocketAddr,
    /// When it was accepted.
    pub at: Instant,
    /// Heads of requests that it brought.
    pub requests: u64,
    /// The first [`RECEIVED_KEPT`] bytes that came in, unparsed.
    pub received: Vec<u8>,
    /// A head that the origin could not parse.
    pub malformed: bool,
    /// Whether it has ended.
    pub closed: bool,
}

/// All that was recorded since the start or the last reset.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// Requests in the order in which their heads were complete; where the origin forgets, only those not yet ended.
    pub requests: Vec<Seen>,
    /// How many requests came, those that were forgotten included.
    pub requests_total: u64,
    /// Connections in the order in which they were accepted. Those that were open at a reset stay.
    pub connections: Vec<Connection>,
    /// Body bytes sent, by path.
    pub sent: HashMap<String, u64>,
    /// Body bytes sent in all.
    pub sent_total: u64,
    next_request: u64,
}

impl Record {
    /// Requests for a path, with any query.
    pub fn of(&self, path: &str) -> impl Iterator<Item = &Seen> {
        self.requests.iter().filter(move |seen| seen.path() == path)
    }

    /// How many requests came for a path.
    pub fn count(&self, path: &str) -> usize {
        self.of(path).count()
    }

    /// Body bytes sent for a path.
    pub fn sent_for(&self, path: &str) -> u64 {
        self.sent.get(path).copied().unwrap_or(0)
    }

    fn find(&mut self, id: u64) -> Option<&mut Seen> {
        let at = self.requests.binary_search_by_key(&id, |seen| seen.id);
        at.ok().map(|at| &mut self.requests[at])
    }

    /// Connections that are open now.
    pub fn open_connections(&self) -> usize {
        self.connections.iter().filter(|one| !one.closed).count()
    }

    /// Whether every request so far has ended, in whichever way.
    pub fn quiet(&self) -> bool {
        let pending = |seen: &Seen| seen.outcome == Outcome::Pending;
        !self.requests.iter().any(pending)
    }
}

/// The path of a request target in origin form or absolute form.
pub(super) fn path_of(target: &str) -> &str {
    let path = match target.split_once("://") {
        Some((_, rest)) if !target.starts_with('/') => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => target,
    };
    path.split('?').next().unwrap_or(path)
}

/// The record as its writers share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorder {
    inner: Arc<RecorderInner>,
}

#[derive(Debug, Default)]
struct RecorderInner {
    record: Mutex<Record>,
    changed: Condvar,
    forget: bool,
}

impl Recorder {
    /// A record that drops requests and connections once they have ended, or keeps them.
    pub(super) fn new(forget: bool) -> Recorder {
        let inner = RecorderInner {
            forget,
            ..RecorderInner::default()
        };
        Recorder {
            inner: Arc::new(inner),
        }
    }

    pub(super) fn snapshot(&self) -> Record {
        self.inner.record.lock().clone()
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Record) -> T) -> T {
        read(&self.inner.record.lock())
    }

    pub(super) fn reset(&self) {
        let mut record = self.inner.record.lock();
        let mut open = std::mem::take(&mut record.connections);
        open.retain(|one| !one.closed);
        *record = Record {
            connections: open,
            next_request: record.next_request,
            ..Record::default()
        };
        self.inner.changed.notify_all();
    }

    pub(super) fn wait_for(
        &self,
        mut holds: impl FnMut(&Record) -> bool,
        timeout: Duration,
    ) -> bool {
        let deadline = Instant::now() + timeout;
        let mut record = self.inner.record.lock();
        while !holds(&record) {
            if self
                .inner
                .changed
                .wait_until(&mut record, deadline)
                .timed_out()
            {
                return holds(&record);
            }
        }
        true
    }

    pub(super) fn accepted(&self, connection: Connection) {
        self.update(|record| record.connections.push(connection));
    }

    pub(super) fn connection(&self, id: u64, change: impl FnOnce(&mut Connection)) {
        self.update(|record| {
            let found = record.connections.iter_mut().rev().find(|one| one.id == id);
            if let Some(connection) = found {
                change(connection);
            }
        });
    }

    /// Files a request under the next number, so that numbers rise in the list.
    pub(super) fn requested(&self, mut seen: Seen) -> Seen {
        self.update(|record| {
            seen.id = record.next_request;
            record.next_request += 1;
            record.requests_total += 1;
            record.requests.push(seen.clone());
        });
        seen
    }

    pub(super) fn request(&self, id: u64, change: impl FnOnce(&mut Seen)) {
        self.update(|record| {
            if let Some(seen) = record.find(id) {
                change(seen);
            }
        });
    }

    /// Request `id` came to this end.
    pub(super) fn ended(&self, id: u64, outcome: Outcome) {
        let forget = self.inner.forget;
        self.update(|record| {
            let Ok(at) = record.requests.binary_search_by_key(&id, |seen| seen.id) else {
                return;
            };
            match forget {
                true => drop(record.requests.remove(at)),
                false => record.requests[at].outcome = outcome,
            }
        });
    }

    /// A connection ended.
    pub(super) fn disconnected(&self, id: u64) {
        match self.inner.forget {
            true => self.update(|record| record.connections.retain(|one| one.id != id)),
            false => self.connection(id, |connection| connection.closed = true),
        }
    }

    /// Body bytes left for the client of request `id`.
    pub(super) fn sent(&self, id: u64, path: &str, bytes: u64) {
        self.update(|record| {
            record.sent_total += bytes;
            match record.sent.get_mut(path) {
                Some(sent) => *sent += bytes,
                None => {
                    record.sent.insert(path.to_owned(), bytes);
                }
            }
            if let Some(seen) = record.find(id) {
                seen.sent += bytes;
            }
        });
    }

    fn update(&self, change: impl FnOnce(&mut Record)) {
        change(&mut self.inner.record.lock());
        self.inner.changed.notify_all();
    }
}
