//! The thread that writes the access log, so that a slow disk never blocks a worker.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::access::{AccessLog, Chunk};
use super::access_options::{AccessOptions, AccessTarget};
use super::table::Counters;
use crate::sys::disk;

/// Most bytes that may wait for the writer, and the least and greatest number of chunks into which
/// that translates.
const QUEUE_BYTES: usize = 4 << 20;
const QUEUE_CHUNKS: (usize, usize) = (4, 256);

/// Opens the target. Called at the start and after each log rotation.
type OpenTarget = Box<dyn FnMut() -> io::Result<Box<dyn Write + Send>> + Send>;

/// Handle to the thread that writes the access log. Each worker gets its `AccessLog` from it.
pub struct AccessWriter {
    options: AccessOptions,
    queue: SyncSender<Chunk>,
    reopen: Arc<AtomicBool>,
    /// Number of lines that the thread could not write. The thread and each worker's `AccessLog`
    /// share this counter.
    lost: Arc<AtomicU64>,
    done: Receiver<()>,
}

impl AccessWriter {
    /// Opens the target and starts the thread.
    ///
    /// # Errors
    ///
    /// The file can't be opened, or the thread can't be started.
    pub fn start(options: &AccessOptions) -> io::Result<AccessWriter> {
        AccessWriter::start_for("access-log", "the access log", options)
    }

    /// Opens the target of another log and starts its thread. `what` names the log in messages, and `thread` its thread.
    ///
    /// # Errors
    ///
    /// The file can't be opened, or the thread can't be started.
    pub(super) fn start_for(
        thread: &str,
        what: &'static str,
        options: &AccessOptions,
    ) -> io::Result<AccessWriter> {
        let target = options.target.clone();
        AccessWriter::start_on(
            (thread, what),
            options,
            Box::new(move || {
                Ok(match &target {
                    AccessTarget::Stdout => Box::new(io::stdout()),
                    AccessTarget::File(path) => Box::new(disk::open_append(path)?),
                })
            }),
        )
    }

    fn start_on(
        (thread, what): (&str, &'static str),
        options: &AccessOptions,
        mut open: OpenTarget,
    ) -> io::Result<AccessWriter> {
        let (least, most) = QUEUE_CHUNKS;
        let (queue, chunks) =
            sync_channel((QUEUE_BYTES / options.buffer.max(1)).clamp(least, most));
        let (done_sender, done) = sync_channel(1);
        let reopen = Arc::new(AtomicBool::new(false));
        let lost = Arc::new(AtomicU64::new(0));
        let mut file = AccessFile {
            what,
            to: open()?,
            open,
            reopen: reopen.clone(),
            lost: lost.clone(),
            failed: 0,
            torn: false,
        };
        thread::Builder::new()
            .name(thread.to_owned())
            .spawn(move || {
                chunks.iter().for_each(|chunk| file.write(&chunk));
                file.flush();
                // Sending fails if the handle was dropped without waiting, which is no error.
                let _ = done_sender.send(());
            })?;
        Ok(AccessWriter {
            options: options.clone(),
            queue,
            reopen,
            lost,
            done,
        })
    }

    /// Creates the access log of one more worker, in whose counters lost lines are counted.
    pub fn worker(&self, counters: Arc<Counters>) -> AccessLog {
        AccessLog::new(
            &self.options,
            self.queue.clone(),
            self.lost.clone(),
            counters,
        )
    }

    /// Passes complete lines to the thread. Returns false if its queue is full, and the lines are dropped.
    pub(super) fn pass_on(&self, text: Vec<u8>, lines: u64) -> bool {
        self.queue.try_send(Chunk { text, lines }).is_ok()
    }

    /// Whether a worker still has an `AccessLog`. If not, all lines have been passed to the thread.
    pub fn is_in_use(&self) -> bool {
        // This handle and the thread have one reference each; further ones belong to workers.
        Arc::strong_count(&self.lost) > 2
    }

    /// Reopens the file by its name, after log rotation has moved it away. Lines that are waiting
    /// go to the new file.
    pub fn reopen(&self) {
        self.reopen.store(true, Ordering::Release);
        // An empty chunk wakes the thread. If the queue is full, the thread is already awake.
        let _ = self.queue.try_send(Chunk::default());
    }

    /// Waits until everything is written. Returns whether that happened in time. Every worker's
    /// `AccessLog` must have been dropped before.
    pub fn finish(self, within: Duration) -> bool {
        drop(self.queue);
        self.done.recv_timeout(within).is_ok()
    }
}

struct AccessFile {
    /// Name of the log in messages.
    what: &'static str,
    to: Box<dyn Write + Send>,
    open: OpenTarget,
    reopen: Arc<AtomicBool>,
    /// Number of lines that could not be written and that no worker has counted yet.
    lost: Arc<AtomicU64>,
    /// Number of lines lost since writing began to fail. 0 while writing succeeds.
    failed: u64,
    /// Whether the file's last line may be incomplete.
    torn: bool,
}

impl AccessFile {
    fn write(&mut self, chunk: &Chunk) {
        if self.reopen.swap(false, Ordering::Acquire) {
            match (self.open)() {
                Ok(to) => {
                    self.flush();
                    self.to = to;
                    self.torn = false;
                }
                Err(error) => tracing::error!(%error, "{} can't be opened again", self.what),
            }
        }
        if chunk.lines == 0 {
            return;
        }
        let written = match self.torn {
            true => self
                .to
                .write_all(b"\n")
                .and_then(|()| self.to.write_all(&chunk.text)),
            false => self.to.write_all(&chunk.text),
        };
        self.torn = written.is_err();
        match written {
            Ok(()) => self.note_success(),
            Err(error) => self.note_failure(&error, chunk.lines),
        }
    }

    fn flush(&mut self) {
        if let Err(error) = self.to.flush() {
            self.note_failure(&error, 0);
        }
    }

    /// Counts lines that could not be written, and logs the first of several failures.
    fn note_failure(&mut self, error: &io::Error, lines: u64) {
        if self.failed == 0 {
            tracing::error!(%error, lines, "{} can't be written: lines are lost", self.what);
        }
        // All lines of the chunk count as lost, although some may have been written.
        self.failed = self.failed.saturating_add(lines);
        self.lost.fetch_add(lines, Ordering::Relaxed);
    }

    /// Logs that writing succeeds again after a failure.
    fn note_success(&mut self) {
        let lost = std::mem::take(&mut self.failed);
        if lost > 0 {
            tracing::info!("{} is written again; lines lost: {lost}", self.what);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc;

    use parking_lot::Mutex;

    use super::*;
    use crate::telemetry::AccessRecord;

    const LONG: Duration = Duration::from_secs(20);

    fn record(log: &AccessLog, target: &str) {
        log.record(&AccessRecord {
            request_id: None,
            upstream_request_id: None,
            trace: None,
            time_unix_ms: 0,
            client: Ipv4Addr::LOCALHOST.into(),
            peer: (Ipv4Addr::LOCALHOST, 1).into(),
            scheme: "http",
            tls: None,
            method: "GET",
            authority: "a",
            target,
            version: "HTTP/1.1",
            refused_line: b"",
            status: 200,
            body_bytes: 0,
            referer: None,
            user_agent: None,
            range: None,
            request_headers: &[],
            cache: None,
            reason: None,
            request_us: 0,
            upstream: None,
            cut: false,
        });
    }

    fn file_options(path: &std::path::Path) -> AccessOptions {
        AccessOptions {
            target: AccessTarget::File(path.to_owned()),
            ..AccessOptions::default()
        }
    }

    #[test]
    fn no_line_is_lost_when_the_writer_finishes() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("access.log");
        let writer = AccessWriter::start(&file_options(&path))?;
        let counters = Arc::new(Counters::default());
        for _ in 0..2 {
            let log = writer.worker(counters.clone());
            (0..1000).for_each(|i| record(&log, &format!("/{i}")));
        }
        assert!(writer.finish(LONG));
        let text = disk::read_text(&path, 1 << 20)?;
        assert_eq!(text.lines().count(), 2000);
        assert!(
            text.lines()
                .all(|l| l.starts_with("127.0.0.1 - - [01/Jan/1970:00:00:00 +0000] \"GET /"))
        );
        assert_eq!(counters.log_lines_dropped.get(), 0);
        Ok(())
    }

    #[test]
    fn after_reopening_lines_go_to_the_new_file() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (path, moved) = (folder.path().join("a"), folder.path().join("b"));
        let writer = AccessWriter::start(&file_options(&path))?;
        std::fs::rename(&path, &moved)?;
        writer.reopen();
        record(&writer.worker(Arc::default()), "/new");
        assert!(writer.finish(LONG));
        assert_eq!(disk::read_text(&path, 1 << 20)?.lines().count(), 1);
        assert_eq!(disk::read_text(&moved, 1 << 20)?, "");
        Ok(())
    }

    /// A target that completes each write when the test allows it, with the result that the test
    /// sends.
    struct Gated {
        latch: mpsc::Receiver<io::Result<()>>,
        entered: mpsc::Sender<()>,
        text: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Once the test has dropped its ends, each write succeeds at once.
            let _ = self.entered.send(());
            self.latch.recv().unwrap_or(Ok(()))?;
            self.text.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_writer_that_hangs_loses_lines_and_never_blocks_a_worker() -> io::Result<()> {
        let options = AccessOptions {
            buffer: 4096,
            ..AccessOptions::default()
        };
        let (latch, latch_end) = mpsc::channel();
        let (entered, entered_end) = mpsc::channel();
        let text = Arc::new(Mutex::new(Vec::new()));
        let mut gated = Some(Gated {
            latch: latch_end,
            entered,
            text: text.clone(),
        });
        let writer = AccessWriter::start_on(
            ("test", "the access log"),
            &options,
            Box::new(move || Ok(Box::new(gated.take().expect("opened once")))),
        )?;
        let counters = Arc::new(Counters::default());
        let log = writer.worker(counters.clone());
        let total = 50_000;
        (0..total).for_each(|_| record(&log, "/"));
        let dropped = counters.log_lines_dropped.get();
        assert!(dropped > 0, "the queue is bounded");
        drop(log);
        entered_end
            .recv_timeout(LONG)
            .expect("the writer is in its first write");
        drop(latch);
        assert!(writer.finish(LONG));
        let written = text.lock().iter().filter(|&&b| b == b'\n').count() as u64;
        assert_eq!(written + counters.log_lines_dropped.get(), total);
        Ok(())
    }

    #[test]
    fn after_a_failed_write_the_next_chunk_begins_a_line() -> io::Result<()> {
        let (latch, latch_end) = mpsc::channel();
        let (entered, _entered_end) = mpsc::channel();
        let text = Arc::new(Mutex::new(Vec::new()));
        let mut gated = Some(Gated {
            latch: latch_end,
            entered,
            text: text.clone(),
        });
        let writer = AccessWriter::start_on(
            ("test", "the access log"),
            &AccessOptions::default(),
            Box::new(move || Ok(Box::new(gated.take().expect("opened once")))),
        )?;
        let counters = Arc::new(Counters::default());
        let log = writer.worker(counters.clone());
        assert!(writer.is_in_use());
        record(&log, "/lost");
        log.flush();
        record(&log, "/kept");
        drop(log);
        assert!(!writer.is_in_use());
        let log = writer.worker(counters.clone());
        latch
            .send(Err(io::Error::other("disk full")))
            .expect("the writer runs");
        drop(latch);
        while counters.log_lines_dropped.get() == 0 {
            log.flush();
            thread::yield_now();
        }
        assert_eq!(counters.log_lines_dropped.get(), 1);
        drop(log);
        assert!(writer.finish(LONG));
        let text = String::from_utf8(text.lock().clone()).expect("lines are ASCII");
        assert!(
            text.starts_with("\n127.0.0.1 ") && text.contains("/kept") && !text.contains("/lost")
        );
        Ok(())
    }
}
