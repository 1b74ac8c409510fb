//! The record of the requests that a test origin received and of the bytes that it sent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// State of the test origin's response to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The response has not ended: the request is being read, or the response is held or being sent.
    Pending,
    /// The response has been sent completely.
    Sent,
    /// A fault ended the response.
    Faulted,
    /// The client closed the connection before the end of the response.
    Aborted,
}

/// A request received by the origin.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Number of the request, counted since the start of the origin. Clearing the record does not reset the count.
    pub id: u64,
    /// Number of the connection on which the request arrived.
    pub connection: u64,
    /// Number of earlier requests on this connection.
    pub nth_on_connection: u64,
    /// Time at which the request head was complete.
    pub at: Instant,
    /// The request head as received, including its empty line. With HTTP/2, a line for each field.
    pub raw_head: Vec<u8>,
    /// Request method as received.
    pub method: String,
    /// Request target as received.
    pub target: String,
    /// Minor version of HTTP/1: 1 for HTTP/1.1. With HTTP/2, 0.
    pub minor_version: u8,
    /// Number of the stream, if the request arrived with HTTP/2.
    pub stream: Option<u32>,
    /// Request headers in the order received, with names as received. With HTTP/2, `:authority` is the first one.
    pub headers: Vec<(String, String)>,
    /// Trailers of a request with HTTP/2.
    pub trailers: Vec<(String, String)>,
    /// The first [`BODY_KEPT`] bytes of the request body, decoded from its framing.
    pub body: Vec<u8>,
    /// Number of bytes of the request body received so far.
    pub body_length: u64,
    /// Whether the request body is complete.
    pub body_complete: bool,
    /// Whether the request body received so far is an offset body (see [`crate::offset`]).
    pub body_is_offset: bool,
    /// Status of the response; 0 before the response has begun.
    pub status: u16,
    /// First and last byte of the range, if the response is a 206 with one range.
    pub range: Option<(u64, u64)>,
    /// Number of body bytes of the response sent so far.
    pub sent: u64,
    /// State of the response.
    pub outcome: Outcome,
    /// Time at which the response ended; `None` while it is pending.
    pub ended: Option<Instant>,
}

/// Maximum length of [`Seen::body`] in bytes.
pub const BODY_KEPT: usize = 1 << 20;

/// Maximum length of [`Connection::received`] in bytes.
pub const RECEIVED_KEPT: usize = 256 << 10;

impl Seen {
    /// Returns the path of the request target, without the query.
    pub fn path(&self) -> &str {
        path_of(&self.target)
    }

    /// Returns the entry of an intermediary in Via (RFC 9110 7.6.3) for a message between it and the origin.
    pub fn via(&self, name: &str) -> String {
        let version = if self.stream.is_some() { "2.0" } else { "1.1" };
        format!("{version} {name}")
    }

    /// Returns the first value of a header. Names are compared ignoring case. With HTTP/2, `:authority` is the value of
    /// `host`.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.header_all(name).first().copied()
    }

    /// Returns all values of a header, in order. With HTTP/2, `:authority` is the first value of `host`.
    pub fn header_all(&self, name: &str) -> Vec<&str> {
        let is_wanted = |field: &str| {
            field.eq_ignore_ascii_case(name)
                || field == ":authority" && name.eq_ignore_ascii_case("host")
        };
        self.headers
            .iter()
            .filter(|(field, _)| is_wanted(field))
            .map(|(_, value)| value.as_str())
            .collect()
    }
}

/// A connection that the origin has accepted.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Number of the connection, counted since the start of the origin.
    pub id: u64,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Time at which the connection was accepted.
    pub at: Instant,
    /// Number of request heads received on the connection.
    pub requests: u64,
    /// The first [`RECEIVED_KEPT`] bytes received on the connection, as they were sent. None are kept with HTTP/2.
    pub received: Vec<u8>,
    /// Whether a request head on the connection could not be parsed, or the client has violated HTTP/2.
    pub malformed: bool,
    /// Time at which the connection ended; `None` while it is open.
    pub closed: Option<Instant>,
}

/// Everything recorded since the origin was started or its record was cleared.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// Requests in the order in which their heads were complete. With
    /// [`OriginOptions::forget`](super::OriginOptions::forget), only those in progress.
    pub requests: Vec<Seen>,
    /// Number of all requests, including those that are not kept in `requests`.
    pub requests_total: u64,
    /// Connections in the order in which they were accepted. Clearing the record keeps the connections that are open.
    pub connections: Vec<Connection>,
    /// Number of body bytes sent, by path.
    pub sent: HashMap<String, u64>,
    /// Number of body bytes sent for all paths.
    pub sent_total: u64,
    next_request: u64,
}

impl Record {
    /// Returns the requests for a path, with any query.
    pub fn of(&self, path: &str) -> impl Iterator<Item = &Seen> {
        self.requests.iter().filter(move |seen| seen.path() == path)
    }

    /// Returns the number of recorded requests for a path.
    pub fn count(&self, path: &str) -> usize {
        self.of(path).count()
    }

    /// Returns the number of body bytes sent for a path.
    pub fn sent_for(&self, path: &str) -> u64 {
        self.sent.get(path).copied().unwrap_or(0)
    }

    fn find(&mut self, id: u64) -> Option<&mut Seen> {
        let at = self.requests.binary_search_by_key(&id, |seen| seen.id);
        at.ok().map(|at| &mut self.requests[at])
    }

    /// Whether the client has left all requests: it has closed the connections of HTTP/1.1, and all streams of HTTP/2 before
    /// the end of their responses.
    pub fn is_left(&self) -> bool {
        let aborts = |id| {
            let mut of = self
                .requests
                .iter()
                .filter(|seen| seen.connection == id)
                .peekable();
            of.peek().is_some()
                && of.all(|seen| seen.stream.is_some() && seen.outcome == Outcome::Aborted)
        };
        self.connections
            .iter()
            .all(|one| one.closed.is_some() || aborts(one.id))
    }

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> usize {
        self.connections
            .iter()
            .filter(|one| one.closed.is_none())
            .count()
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

/// Access to the record of an origin, shared by the tasks of its connections.
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
    /// Creates an empty record. If `forget` is set, completed requests and connections are dropped from it.
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
        open.retain(|one| one.closed.is_none());
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

    /// Gives a request the next number and adds it to the record. Requests are therefore ordered by number.
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

    /// Records the outcome of request `id`.
    pub(super) fn ended(&self, id: u64, outcome: Outcome) {
        let forget = self.inner.forget;
        self.update(|record| {
            let Ok(at) = record.requests.binary_search_by_key(&id, |seen| seen.id) else {
                return;
            };
            match forget {
                true => drop(record.requests.remove(at)),
                false => {
                    record.requests[at].outcome = outcome;
                    record.requests[at].ended = Some(Instant::now());
                }
            }
        });
    }

    /// Records the end of connection `id`.
    pub(super) fn disconnected(&self, id: u64) {
        match self.inner.forget {
            true => self.update(|record| record.connections.retain(|one| one.id != id)),
            false => self.connection(id, |connection| connection.closed = Some(Instant::now())),
        }
    }

    /// Records that body bytes were sent for request `id`.
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
