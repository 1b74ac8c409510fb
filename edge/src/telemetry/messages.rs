//! Messages about the program itself, one line each, to standard error or a file. A separate thread
//! writes them, so that no worker waits for a slow disk. Each place in the code that logs messages
//! has a rate limit.

mod limit;
mod line;

use std::cell::Cell;
use std::io::{self, Write};
use std::panic;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use crate::sys::{Clock, disk};
use limit::Limit;

/// Most messages that may wait for the thread.
const QUEUE: usize = 1024;
/// Time between two checks whether suppressed messages have to be summed up, while there may be
/// some.
const CHECK: Duration = Duration::from_millis(500);
/// Time for which the thread waits for messages while none can be suppressed.
const SLEEP: Duration = Duration::from_secs(3600);

impl std::fmt::Display for MessageTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MessageTarget::Stderr => f.write_str("standard error"),
            MessageTarget::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Destination of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MessageTarget {
    /// Messages are written to standard error.
    #[default]
    Stderr,
    /// Messages are appended to this file.
    File(PathBuf),
}

/// Receives messages from `tracing`. Cheap to clone.
#[derive(Clone)]
pub struct Messages(Arc<Inner>);

struct Inner {
    target: MessageTarget,
    colours: bool,
    clock: Clock,
    limit: Mutex<Limit>,
    output: Mutex<Output>,
    reopen: AtomicBool,
    /// Number of messages dropped because the queue was full.
    lost: AtomicU64,
}

/// The way in which lines are written.
enum Output {
    /// Lines are written at once, while the program has only one thread.
    Direct(Box<dyn Write + Send>),
    /// Lines are queued for the thread. The receiver is notified when the thread ends.
    Queue(SyncSender<String>, Receiver<()>),
    /// Lines are dropped, since the messages were finished.
    Ended,
}

/// The message log of the whole program.
static MESSAGES: OnceLock<Messages> = OnceLock::new();

thread_local! {
    /// Whether this thread is logging a message, and may hold a lock of `Messages`.
    static LOGGING: Cell<bool> = const { Cell::new(false) };
}

/// Returns the message log of the whole program, if `Messages::install` was called.
pub fn installed() -> Option<&'static Messages> {
    MESSAGES.get()
}

/// Formats a message with its fields, escaped, as in a line of the log.
pub(super) fn text_of(event: &Event<'_>) -> String {
    line::text(event)
}

impl Messages {
    /// Creates a message log that writes to standard error until `begin` is called. `colours` says
    /// whether the target shows colours.
    pub fn new(target: MessageTarget, colours: bool, clock: Clock) -> Messages {
        Messages::on(Box::new(io::stderr()), target, colours, clock)
    }

    fn on(
        to: Box<dyn Write + Send>,
        target: MessageTarget,
        colours: bool,
        clock: Clock,
    ) -> Messages {
        Messages(Arc::new(Inner {
            target,
            colours,
            clock,
            limit: Mutex::default(),
            output: Mutex::new(Output::Direct(to)),
            reopen: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        }))
    }

    /// Makes this the message log of the whole program, which also logs panics. Only the first call
    /// has an effect.
    pub fn install(&self) {
        if MESSAGES.set(self.clone()).is_err() {
            return;
        }
        let messages = self.clone();
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // If this thread panics while it logs a message, it already holds the lock that logging
            // needs. The panic then goes to the previous hook.
            match LOGGING.get() || messages.has_ended() {
                true => before(info),
                false => tracing::error!("panic: {info}"),
            }
        }));
    }

    fn has_ended(&self) -> bool {
        matches!(&*self.0.output.lock(), Output::Ended)
    }

    /// Starts the thread that writes to the target. Before that, each message is written by the
    /// thread that logs it, since the program must drop privileges before it starts threads and
    /// opens files.
    ///
    /// # Errors
    ///
    /// The file can't be opened, or the thread can't be started.
    pub fn begin(&self) -> io::Result<()> {
        if let MessageTarget::File(path) = &self.0.target {
            *self.0.output.lock() = Output::Direct(Box::new(disk::open_append(path)?));
        }
        self.start_thread()
    }

    fn start_thread(&self) -> io::Result<()> {
        let mut output = self.0.output.lock();
        let Output::Direct(_) = &*output else {
            return Ok(());
        };
        let (queue, lines) = sync_channel(QUEUE);
        let (done_sender, done) = sync_channel(1);
        let before = std::mem::replace(&mut *output, Output::Queue(queue, done));
        let Output::Direct(to) = before else {
            return Ok(());
        };
        let messages = self.clone();
        let started = thread::Builder::new()
            .name("messages".to_owned())
            .spawn(move || {
                messages.write(to, &lines);
                // Sending fails if nothing waits for the end, which is no error.
                let _ = done_sender.send(());
            });
        started.map(drop)
    }

    /// Returns the destination of messages.
    pub fn target(&self) -> &MessageTarget {
        &self.0.target
    }

    /// Reopens the file by its name, after log rotation has moved it away.
    pub fn reopen(&self) {
        self.0.reopen.store(true, Ordering::Release);
        // An empty line wakes the thread. If the queue is full, the thread is already awake.
        if let Output::Queue(queue, _) = &*self.0.output.lock() {
            let _ = queue.try_send(String::new());
        }
    }

    /// Waits until all messages are written, at most `within`. Later messages are dropped.
    pub fn finish(&self, within: Duration) {
        let output = std::mem::replace(&mut *self.0.output.lock(), Output::Ended);
        if let Output::Queue(queue, done) = output {
            drop(queue);
            let _ = done.recv_timeout(within);
        }
    }

    /// Writes or queues a line. Never waits for a disk once the thread has been started.
    fn submit(&self, line: String) {
        match &mut *self.0.output.lock() {
            Output::Direct(to) => {
                // An error is ignored, since there is nowhere to report it.
                let _ = to.write_all(line.as_bytes());
            }
            Output::Queue(queue, _) => {
                if let Err(TrySendError::Full(_)) = queue.try_send(line) {
                    self.0.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            Output::Ended => {}
        }
    }

    /// Writes lines until the queue is closed. Runs on the thread.
    fn write(&self, mut to: Box<dyn Write + Send>, lines: &Receiver<String>) {
        loop {
            // The lock is released before the thread waits.
            let watches = self.0.limit.lock().is_watching();
            let received = lines.recv_timeout(if watches { CHECK } else { SLEEP });
            if self.0.reopen.swap(false, Ordering::Acquire) {
                match open(&self.0.target) {
                    Ok(opened) => to = opened,
                    Err(error) => {
                        let text = format!("the log of messages can't be opened again: {error}");
                        self.put(&mut to, &self.plain(Level::ERROR, &text));
                    }
                }
            }
            let ended = matches!(received, Err(RecvTimeoutError::Disconnected));
            if let Ok(line) = received {
                self.put(&mut to, &line);
            }
            for line in self.summaries(ended) {
                self.put(&mut to, &line);
            }
            if ended {
                return;
            }
        }
    }

    fn put(&self, to: &mut Box<dyn Write + Send>, line: &str) {
        if to.write_all(line.as_bytes()).is_err() {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns lines that report suppressed and lost messages, if such lines are due.
    fn summaries(&self, ended: bool) -> Vec<String> {
        let now_us = match ended {
            true => u64::MAX,
            false => self.0.clock.monotonic_us(),
        };
        let suppressed = self.0.limit.lock().ended(now_us);
        let mut lines: Vec<String> = suppressed
            .into_iter()
            .map(|of| {
                let text = format!("and {} more like it: {}", thousands(of.count), of.last);
                self.plain(of.level, &text)
            })
            .collect();
        let lost = self.0.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let text = format!("messages lost: {}", thousands(lost));
            lines.push(self.plain(Level::WARN, &text));
        }
        lines
    }

    fn plain(&self, level: Level, text: &str) -> String {
        line::line(self.0.clock.unix_ms(), level, text, self.0.colours)
    }
}

impl<S: Subscriber> Layer<S> for Messages {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let text = line::text(event);
        let meta = event.metadata();
        let now_us = self.0.clock.monotonic_us();
        let place = meta.callsite();
        let _logging = Logging::begin();
        if self
            .0
            .limit
            .lock()
            .allows(&place, *meta.level(), &text, now_us)
        {
            self.submit(self.plain(*meta.level(), &text));
        }
    }
}

/// Guard that marks this thread as logging a message.
struct Logging;

impl Logging {
    fn begin() -> Logging {
        LOGGING.set(true);
        Logging
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        LOGGING.set(false);
    }
}

fn open(target: &MessageTarget) -> io::Result<Box<dyn Write + Send>> {
    Ok(match target {
        MessageTarget::Stderr => Box::new(io::stderr()),
        MessageTarget::File(path) => Box::new(disk::open_append(path)?),
    })
}

/// Formats a number with thousands separators: `1,234`.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.char_indices() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests;
