//! The access log: one record per request, formatted on the worker, written by a thread of its own.

use crate::reason::Reason;

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use super::access_format::{Stamp, combined, json};
use super::{AccessFormat, AccessOptions, Counters, Selection};

/// What is logged of one request. Plain values: this folder knows no HTTP.
pub struct AccessRecord<'a> {
    /// When the request's head was complete, milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// Who asked.
    pub client: IpAddr,
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The method's token; empty when no request line could be read.
    pub method: &'a str,
    /// Host and port asked for.
    pub authority: &'a str,
    /// The target as received.
    pub target: &'a str,
    /// `HTTP/1.1` …
    pub version: &'a str,
    /// The status sent; 0 when nothing could be sent.
    pub status: u16,
    /// Body bytes sent.
    pub body_bytes: u64,
    /// Referer, as received.
    pub referer: Option<&'a [u8]>,
    /// User-Agent, as received.
    pub user_agent: Option<&'a [u8]>,
    /// Range, as received.
    pub range: Option<&'a [u8]>,
    /// The values of the log's `request_fields`.
    pub request_fields: &'a [Option<&'a [u8]>],
    /// `hit` or the reason for going forward, as in Cache-Status.
    pub cache: Option<&'static str>,
    /// The detail of Cache-Status, or the word of the fault that ended the request.
    pub reason: Option<Reason>,
    /// From the complete request head to the last byte handed to the kernel, microseconds.
    pub request_us: u64,
    /// The exchange with the origin, where there was one.
    pub upstream: Option<AccessUpstream>,
    /// Whether the response was cut short.
    pub cut: bool,
}

/// The origin's part of a record; microseconds.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as named in handler::UpstreamTimings")]
pub struct AccessUpstream {
    pub server: Option<SocketAddr>,
    pub status: Option<u16>,
    pub connect_us: u64,
    pub header_us: Option<u64>,
    pub response_us: Option<u64>,
}

/// One worker's end of the access log. Lines gather here and go to the writer's thread in chunks.
pub struct AccessLog {
    worker: Option<Worker>,
    /// How the route of the request that is being given to its handler is logged.
    selection: Cell<Option<Rc<Selection>>>,
}

struct Worker {
    lines: RefCell<Lines>,
    format: AccessFormat,
    buffer: usize,
    flush: Duration,
    writer: SyncSender<Chunk>,
    /// Lines that the writer could not write, and that no worker has counted yet.
    lost: Arc<AtomicU64>,
    counters: Arc<Counters>,
}

/// Whole lines on their way to the writer.
#[derive(Default)]
pub(super) struct Chunk {
    pub(super) text: Vec<u8>,
    pub(super) lines: u64,
}

#[derive(Default)]
struct Lines {
    chunk: Chunk,
    stamp: Stamp,
}

/// A buffer is made a little larger than it is let grow, since the last line goes beyond.
const LINE_USUAL: usize = 1 << 10;

impl AccessLog {
    /// No access log.
    pub fn off() -> AccessLog {
        AccessLog {
            worker: None,
            selection: Cell::default(),
        }
    }

    pub(super) fn new(
        options: &AccessOptions,
        writer: SyncSender<Chunk>,
        lost: Arc<AtomicU64>,
        counters: Arc<Counters>,
    ) -> AccessLog {
        let worker = Worker {
            lines: RefCell::default(),
            format: options.format.clone(),
            buffer: options.buffer,
            flush: options.flush,
            writer,
            lost,
            counters,
        };
        AccessLog {
            worker: Some(worker),
            selection: Cell::default(),
        }
    }

    /// Whether records are kept at all: if not, none need be made.
    pub fn is_on(&self) -> bool {
        self.worker.is_some()
    }

    /// Names of request fields, in lower case, whose values a record is to have.
    pub fn request_fields(&self) -> &[Box<str>] {
        match self.worker.as_ref().map(|worker| &worker.format) {
            Some(AccessFormat::Template(template)) => template.request_fields(),
            _ => &[],
        }
    }

    /// The route of the request that is being given to its handler is logged by this. A handler says
    /// so before it returns, and whoever called it takes it then: nothing comes between.
    pub fn select(&self, selection: Rc<Selection>) {
        self.selection.set(Some(selection));
    }

    /// What the handler that was called last said, if it did.
    #[inline]
    pub fn take_selection(&self) -> Option<Rc<Selection>> {
        self.selection.take()
    }

    /// Adds a record. Never blocks: when the writer has fallen behind, lines are dropped and counted.
    pub fn record(&self, record: &AccessRecord<'_>) {
        let Some(worker) = &self.worker else { return };
        let mut lines = worker.lines.borrow_mut();
        let Lines { chunk, stamp } = &mut *lines;
        if chunk.text.capacity() == 0 {
            chunk.text.reserve(worker.buffer + LINE_USUAL);
        }
        match &worker.format {
            AccessFormat::Combined => combined(&mut chunk.text, record, stamp),
            AccessFormat::Json => json(&mut chunk.text, record, stamp),
            AccessFormat::Template(template) => template.write(&mut chunk.text, record, stamp),
        }
        chunk.lines += 1;
        if chunk.text.len() >= worker.buffer {
            worker.hand_over(chunk);
        }
    }

    /// Hands over what has gathered.
    pub fn flush(&self) {
        if let Some(worker) = &self.worker {
            worker.hand_over(&mut worker.lines.borrow_mut().chunk);
            worker.count_lost();
        }
    }

    /// Flushes every `flush` for as long as the log is in use; to be run beside the worker's
    /// connections.
    pub async fn flush_regularly(log: Weak<AccessLog>) {
        loop {
            let Some(flush) = log
                .upgrade()
                .and_then(|log| Some(log.worker.as_ref()?.flush))
            else {
                return;
            };
            tokio::time::sleep(flush).await;
            if let Some(log) = log.upgrade() {
                log.flush();
            }
        }
    }
}

impl Worker {
    fn count_lost(&self) {
        if self.lost.load(Ordering::Relaxed) > 0 {
            let lost = self.lost.swap(0, Ordering::Relaxed);
            self.counters.log_lines_dropped.add(lost);
        }
    }

    fn hand_over(&self, chunk: &mut Chunk) {
        if chunk.lines == 0 {
            return;
        }
        let lines = chunk.lines;
        if self.writer.try_send(std::mem::take(chunk)).is_err() {
            self.counters.log_lines_dropped.add(lines);
        }
    }
}

/// What has gathered is not lost with the worker.
impl Drop for AccessLog {
    fn drop(&mut self) {
        self.flush();
    }
}
