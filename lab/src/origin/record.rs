//! The record of requests received and bytes sent by a test origin.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// State of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The request is being read, or the response is held or being sent.
    Pending,
    /// The response has been sent completely.
    Sent,
    /// A fault has ended the response.
    Faulted,
    /// The client has closed the connection before the end.
    Aborted,
}

/// A request received by the origin.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Number of the request since the start of the origin. Clearing the record does not restart the numbers.
    pub id: u64,
    /// Number of the connection.
    pub connection: u64,
    /// Number of earlier requests on this connection.
    pub nth_on_connection: u64,
    /// Time at which the head was complete.
    pub at: Instant,
    /// The head as received, including its empty line.
    pub raw_head: Vec<u8>,
    /// The method as received.
    pub method: String,
    /// The request target as received.
    pub target: String,
    /// Minor version: 1 for HTTP/1.1.
    pub minor_version: u8,
    /// Headers in order, with names as received.
    pub headers: Vec<(String, String)>,
    /// The first [`BODY_KEPT`] bytes of the body, without framing.
    pub body: Vec<u8>,
    /// Bytes of the body received so far.
    pub body_length: u64,
    /// Whether the body is complete.
    pub body_complete: bool,
    /// Whether the body so far is an offset body.
    pub body_is_offset: bool,
    /// Status of the response; 0 before the response.
    pub status: u16,
    /// First and last byte of a 206 with one range.
    pub range: Option<(u64, u64)>,
    /// Body bytes of the response sent so far.
    pub sent: u64,
    /// State of the response.
    pub outcome: Outcome,
}

/// Maximum length of [`Seen::body`].
pub const BODY_KEPT: usize = 1 << 20;

/// Maximum length of [`Connection::received`].
pub const RECEIVED_KEPT: usize = 256 << 10;

impl Seen {
    /// Returns the path of the target, without the query.
    pub fn path(&self) -> &str {
        path_of(&self.target)
    }

    /// Returns the first value of a header; the name is compared case-insensitively.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Returns all values of a header in order.
    pub fn header_all(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }
}

/// A connection accepted by the origin.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Number of the connection since the start of the origin.
    pub id: u64,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Time at which the connection was accepted.
    pub at: Instant,
    /// Number of request heads received.
    pub requests: u64,
    /// The first [`RECEIVED_KEPT`] bytes received, unparsed.
    pub received: Vec<u8>,
    /// Whether a request head could not be parsed.
    pub malformed: bool,
    /// Whether the connection has ended.
    pub closed: bool,
}

/// Everything recorded since the start or since the record was cleared.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// Requests in the order in which their heads were complete. With `forget`, only those in progress.
    pub requests: Vec<Seen>,
    /// Number of requests, including dropped ones.
    pub requests_total: u64,
    /// Connections in the order in which they were accepted. Connections that were open when the record was cleared
    /// stay.
    pub connections: Vec<Connection>,
    /// Body bytes sent, by path.
    pub sent: HashMap<String, u64>,
    /// Total body bytes sent.
    pub sent_total: u64,
    next_request: u64,
}

impl Record {
    /// Requests for a path, with any query.
    pub fn of(&self, path: &str) -> impl Iterator<Item = &Seen> {
        self.requests.iter().filter(move |seen| seen.path() == path)
    }

    /// Returns the number of requests for a path.
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

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> usize {
        self.connections.iter().filter(|one| !one.closed).count()
    }

    /// Whether no request is in progress.
    pub fn quiet(&self) -> bool {
        let pending = |seen: &Seen| seen.outcome == Outcome::Pending;
        !self.requests.iter().any(pending)
    }
}

/// Returns the path of a request target in origin form or absolute form.
pub(super) fn path_of(target: &str) -> &str {
    let path = match target.split_once("://") {
        Some((_, rest)) if !target.starts_with('/') => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => target,
    };
    path.split('?').next().unwrap_or(path)
}

/// The record, shared by the origin's connections.
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
    /// Returns a recorder that keeps completed requests and connections, or drops them if `forget` is set.
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

    /// Adds a request under the next number, so that the list is ordered by number.
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

    /// Records the end of request `id`.
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

    /// Records the end of a connection.
    pub(super) fn disconnected(&self, id: u64) {
        match self.inner.forget {
            true => self.update(|record| record.connections.retain(|one| one.id != id)),
            false => self.connection(id, |connection| connection.closed = true),
        }
    }

    /// Records body bytes sent for request `id`.
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
