//! The access log: one record per request, formatted by the worker and written by a separate
//! thread.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use tokio::sync::Notify;

use super::access_format::{Stamp, combined, combined_cache, json};
use super::access_options::{AccessFormat, AccessOptions};
use super::access_record::AccessRecord;
use super::selection::Selection;
use super::table::Counters;

/// One worker's access log. It collects lines and passes them to the writer's thread in chunks.
pub struct AccessLog {
    worker: Option<Worker>,
    /// The log rule of the request that is being handled, as set by `select`.
    selection: Cell<Option<Rc<Selection>>>,
}

struct Worker {
    lines: RefCell<Lines>,
    format: AccessFormat,
    buffer: usize,
    flush: Duration,
    /// Notified when the first line is collected since lines were passed on.
    collected: Rc<Notify>,
    writer: SyncSender<Chunk>,
    /// Number of lines that the writer could not write and that no worker has counted yet.
    lost: Arc<AtomicU64>,
    counters: Arc<Counters>,
}

/// Complete lines for the writer.
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

/// Bytes that a buffer has beyond its limit, since the last line exceeds the limit.
const LINE_USUAL: usize = 1 << 10;

impl AccessLog {
    /// Returns a disabled access log.
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
            collected: Rc::default(),
            writer,
            lost,
            counters,
        };
        AccessLog {
            worker: Some(worker),
            selection: Cell::default(),
        }
    }

    /// Returns the names, in lower case, of the request headers whose values each record must have.
    pub fn request_headers(&self) -> &[Box<str>] {
        match self.worker.as_ref().map(|worker| &worker.format) {
            Some(AccessFormat::Template(template)) => template.request_headers(),
            _ => &[],
        }
    }

    /// Sets the log rule of the current request. A route's handler calls this before it returns,
    /// and the handler's caller then takes the rule. The worker handles no other request in
    /// between.
    pub fn select(&self, selection: Rc<Selection>) {
        self.selection.set(Some(selection));
    }

    /// Takes the rule that `select` has set, if there is one.
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
            AccessFormat::CombinedCache => combined_cache(&mut chunk.text, record, stamp),
            AccessFormat::Json => json(&mut chunk.text, record, stamp),
            AccessFormat::Template(template) => template.write(&mut chunk.text, record, stamp),
        }
        chunk.lines += 1;
        if chunk.lines == 1 {
            worker.collected.notify_one();
        }
        if chunk.text.len() >= worker.buffer {
            worker.pass_on(chunk);
        }
    }

    /// Passes all collected lines to the writer. Returns whether there were any.
    pub fn flush(&self) -> bool {
        let Some(worker) = &self.worker else {
            return false;
        };
        let had_lines = worker.pass_on(&mut worker.lines.borrow_mut().chunk);
        worker.count_lost();
        had_lines
    }

    /// Passes collected lines to the writer at most `flush` after they were collected, as long as
    /// the log is in use. No timer runs while there are none. Runs as a task of the worker.
    pub async fn flush_regularly(log: Weak<AccessLog>) {
        let worker = log.upgrade().and_then(|log| {
            let worker = log.worker.as_ref()?;
            Some((worker.flush, worker.collected.clone()))
        });
        let Some((flush, collected)) = worker else {
            return;
        };
        loop {
            collected.notified().await;
            // After the last lines, another round counts those that the writer has lost.
            loop {
                tokio::time::sleep(flush).await;
                match log.upgrade() {
                    None => return,
                    Some(log) if !log.flush() => break,
                    Some(_) => {}
                }
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

    /// Passes lines to the writer. Returns whether there were any.
    fn pass_on(&self, chunk: &mut Chunk) -> bool {
        if chunk.lines == 0 {
            return false;
        }
        let lines = chunk.lines;
        if self.writer.try_send(std::mem::take(chunk)).is_err() {
            self.counters.log_lines_dropped.add(lines);
        }
        true
    }
}

/// Passes the last lines to the writer, so that they are not lost when the worker ends.
impl Drop for AccessLog {
    fn drop(&mut self) {
        self.flush();
    }
}
