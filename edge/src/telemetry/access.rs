//! The access log: one record per request, formatted on the worker, written by a thread of its own.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use super::access_format::{Stamp, combined, json};
use super::access_options::{AccessFormat, AccessOptions};
use super::access_record::AccessRecord;
use super::selection::Selection;
use super::table::Counters;

/// One worker's access log. It collects lines and passes them to the writer's thread in chunks.
pub struct AccessLog {
    worker: Option<Worker>,
    /// The rule by which the request that is just being handled is logged; see `select`.
    selection: Cell<Option<Rc<Selection>>>,
}

struct Worker {
    lines: RefCell<Lines>,
    format: AccessFormat,
    buffer: usize,
    flush: Duration,
    writer: SyncSender<Chunk>,
    /// Lines that the writer could not write and that no worker has counted yet.
    lost: Arc<AtomicU64>,
    counters: Arc<Counters>,
}

/// Whole lines for the writer.
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

/// A buffer is allocated this much larger than its limit, since the last line exceeds the limit.
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

    /// Names of the request headers, in lower case, whose values a record must have.
    pub fn request_fields(&self) -> &[Box<str>] {
        match self.worker.as_ref().map(|worker| &worker.format) {
            Some(AccessFormat::Template(template)) => template.request_fields(),
            _ => &[],
        }
    }

    /// Sets the rule by which the current request is logged. A route's handler calls this before it
    /// returns; the caller of the handler then takes the rule. No other request comes between.
    pub fn select(&self, selection: Rc<Selection>) {
        self.selection.set(Some(selection));
    }

    /// Takes the rule that the last handler set, if it set one.
    #[inline]
    pub fn take_selection(&self) -> Option<Rc<Selection>> {
        self.selection.take()
    }

    /// Adds a record. Never blocks: if the writer is too slow, lines are dropped and counted.
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
            worker.pass_on(chunk);
        }
    }

    /// Passes all collected lines to the writer.
    pub fn flush(&self) {
        if let Some(worker) = &self.worker {
            worker.pass_on(&mut worker.lines.borrow_mut().chunk);
            worker.count_lost();
        }
    }

    /// Flushes every `flush` for as long as the log is in use; runs as a task of the worker.
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

    fn pass_on(&self, chunk: &mut Chunk) {
        if chunk.lines == 0 {
            return;
        }
        let lines = chunk.lines;
        if self.writer.try_send(std::mem::take(chunk)).is_err() {
            self.counters.log_lines_dropped.add(lines);
        }
    }
}

/// The last lines are not lost when the worker ends.
impl Drop for AccessLog {
    fn drop(&mut self) {
        self.flush();
    }
}
