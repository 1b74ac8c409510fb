//! The thread that writes the access log, so that a slow disk never holds a worker.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::access::Chunk;
use super::{AccessLog, AccessOptions, AccessTarget, Counters};
use crate::sys::disk;

/// Bytes that may wait for the writer, and the least and greatest number of chunks for it.
const QUEUE_BYTES: usize = 4 << 20;
const QUEUE_CHUNKS: (usize, usize) = (4, 256);

/// Where lines are written; can be opened again.
type Open = Box<dyn FnMut() -> io::Result<Box<dyn Write + Send>> + Send>;

/// The writer's thread, seen from outside. Workers get their ends from it.
pub struct AccessWriter {
    options: AccessOptions,
    queue: SyncSender<Chunk>,
    reopen: Arc<AtomicBool>,
    /// Lines that the thread could not write. Besides it, each worker's end has a share.
    lost: Arc<AtomicU64>,
    done: Receiver<()>,
}

impl AccessWriter {
    /// Opens the target and starts the thread.
    ///
    /// # Errors
    /// When the file can't be opened or no thread be had.
    pub fn start(options: &AccessOptions) -> io::Result<AccessWriter> {
        let target = options.target.clone();
        AccessWriter::start_on(
            options,
            Box::new(move || {
                Ok(match &target {
                    AccessTarget::Stdout => Box::new(io::stdout()),
                    AccessTarget::File(path) => Box::new(disk::open_append(path)?),
                })
            }),
        )
    }

    fn start_on(options: &AccessOptions, mut open: Open) -> io::Result<AccessWriter> {
        let (least, most) = QUEUE_CHUNKS;
        let (queue, chunks) =
            sync_channel((QUEUE_BYTES / options.buffer.max(1)).clamp(least, most));
        let (done_sender, done) = sync_channel(1);
        let reopen = Arc::new(AtomicBool::new(false));
        let lost = Arc::new(AtomicU64::new(0));
        let mut file = AccessFile {
            to: open()?,
            open,
            reopen: reopen.clone(),
            lost: lost.clone(),
            failed: 0,
            torn: false,
        };
        thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || {
                chunks.iter().for_each(|chunk| file.write(&chunk));
                file.flush();
                // Nobody may be waiting for the end any more.
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

    /// The end of one more worker, whose counters count what is dropped.
    pub fn worker(&self, counters: Arc<Counters>) -> AccessLog {
        AccessLog::new(
            &self.options,
            self.queue.clone(),
            self.lost.clone(),
            counters,
        )
    }

    /// Whether any worker still has an end of it. Without, all that there was is on its way to the file.
    pub fn is_in_use(&self) -> bool {
        // Ours, and that of the thread.
        Arc::strong_count(&self.lost) > 2
    }

    /// Opens the file by its name again, after it was moved away: lines that wait go to the new one.
    pub fn reopen(&self) {
        self.reopen.store(true, Ordering::Release);
        // Nothing in it: it only wakes the writer. Where the queue is full, that is awake.
        let _ = self.queue.try_send(Chunk::default());
    }

    /// Waits until everything is written; says whether it was in time. Every worker's end must be
    /// gone before.
    pub fn finish(self, within: Duration) -> bool {
        drop(self.queue);
        self.done.recv_timeout(within).is_ok()
    }
}

struct AccessFile {
    to: Box<dyn Write + Send>,
    open: Open,
    reopen: Arc<AtomicBool>,
    /// Lines that could not be written; workers take them from here and count them.
    lost: Arc<AtomicU64>,
    /// Lines lost since writing began to fail; 0: it does not.
    failed: u64,
    /// The file's last line may be incomplete.
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
                Err(error) => tracing::error!(%error, "the access log can't be opened again"),
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

    /// Reports the first of several failures, and counts what is lost by all.
    fn note_failure(&mut self, error: &io::Error, lines: u64) {
        if self.failed == 0 {
            tracing::error!(%error, lines, "the access log can't be written: lines are lost");
        }
        // A part of them may have been written.
        self.failed = self.failed.saturating_add(lines);
        self.lost.fetch_add(lines, Ordering::Relaxed);
    }

    /// Reports that it goes on.
    fn note_success(&mut self) {
        let lost = std::mem::take(&mut self.failed);
        if lost > 0 {
            tracing::info!("the access log is written again: {lost} lines were lost");
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
            time_unix_ms: 0,
            client: Ipv4Addr::LOCALHOST.into(),
            peer: (Ipv4Addr::LOCALHOST, 1).into(),
            scheme: "http",
            method: "GET",
            authority: "a",
            target,
            version: "HTTP/1.1",
            status: 200,
            body_bytes: 0,
            referer: None,
            user_agent: None,
            range: None,
            request_fields: &[],
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
    fn nothing_is_lost_at_the_end() -> io::Result<()> {
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

    /// Writes when a test lets it, and fails when it is told to.
    struct Gated {
        gate: mpsc::Receiver<io::Result<()>>,
        entered: mpsc::Sender<()>,
        text: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Without a test that listens or a gate that is held, writing simply goes on.
            let _ = self.entered.send(());
            self.gate.recv().unwrap_or(Ok(()))?;
            self.text.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_writer_that_hangs_costs_lines_and_never_holds_a_worker() -> io::Result<()> {
        let options = AccessOptions {
            buffer: 4096,
            ..AccessOptions::default()
        };
        let (gate, gate_end) = mpsc::channel();
        let (entered, entered_end) = mpsc::channel();
        let text = Arc::new(Mutex::new(Vec::new()));
        let mut gated = Some(Gated {
            gate: gate_end,
            entered,
            text: text.clone(),
        });
        let writer = AccessWriter::start_on(
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
        drop(gate);
        assert!(writer.finish(LONG));
        let written = text.lock().iter().filter(|&&b| b == b'\n').count() as u64;
        assert_eq!(written + counters.log_lines_dropped.get(), total);
        Ok(())
    }

    #[test]
    fn after_a_failed_write_the_next_chunk_begins_a_line() -> io::Result<()> {
        let (gate, gate_end) = mpsc::channel();
        let (entered, _entered_end) = mpsc::channel();
        let text = Arc::new(Mutex::new(Vec::new()));
        let mut gated = Some(Gated {
            gate: gate_end,
            entered,
            text: text.clone(),
        });
        let writer = AccessWriter::start_on(
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
        gate.send(Err(io::Error::other("disk full")))
            .expect("the writer runs");
        drop(gate);
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
