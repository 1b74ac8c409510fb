//! Messages about the program itself, one line each, to standard error or a file. A thread of their
//! own writes them, so that no worker waits for a slow disk, and each place in the code has a limit.

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

/// Messages that may wait for the thread.
const QUEUE: usize = 1024;
/// How often the thread checks whether repeated messages are to be summed up …
const CHECK: Duration = Duration::from_millis(500);
/// … and how long it sleeps while no message is repeated.
const SLEEP: Duration = Duration::from_secs(3600);

impl std::fmt::Display for MessageTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MessageTarget::Stderr => f.write_str("standard error"),
            MessageTarget::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Where messages go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MessageTarget {
    /// Standard error.
    #[default]
    Stderr,
    /// Appended to this file.
    File(PathBuf),
}

/// Takes messages from `tracing`. Cheap to clone.
#[derive(Clone)]
pub struct Messages(Arc<Inner>);

struct Inner {
    target: MessageTarget,
    colours: bool,
    clock: Clock,
    limit: Mutex<Limit>,
    output: Mutex<Output>,
    reopen: AtomicBool,
    /// Messages that found the queue full.
    lost: AtomicU64,
}

/// How lines are written.
enum Output {
    /// At once, while the program has only one thread.
    Direct(Box<dyn Write + Send>),
    /// By the thread: the queue to it, and the notice of its end.
    Queue(SyncSender<String>, Receiver<()>),
    /// Not any more.
    Ended,
}

/// The messages of the whole program.
static MESSAGES: OnceLock<Messages> = OnceLock::new();

thread_local! {
    /// Whether this thread is logging a message, and may hold a lock of `Messages`.
    static LOGGING: Cell<bool> = const { Cell::new(false) };
}

/// The messages of the whole program, if `Messages::install` was called.
pub fn installed() -> Option<&'static Messages> {
    MESSAGES.get()
}

impl Messages {
    /// Messages to standard error until `begin` is called. `colours`: whether the target shows them.
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

    /// Makes these the messages of the whole program, and logs panics. Later calls change nothing.
    pub fn install(&self) {
        if MESSAGES.set(self.clone()).is_err() {
            return;
        }
        let messages = self.clone();
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // A panic while logging would wait for a lock that its own thread holds.
            match LOGGING.get() || messages.has_ended() {
                true => before(info),
                false => tracing::error!("panic: {info}"),
            }
        }));
    }

    fn has_ended(&self) -> bool {
        matches!(&*self.0.output.lock(), Output::Ended)
    }

    /// Starts the thread that writes to the target. Until then each message is written by the thread
    /// that logs it, since the program can give up privileges only without threads and open files.
    ///
    /// # Errors
    /// If the file can't be opened or the thread can't be started.
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
                // The receiver may be gone.
                let _ = done_sender.send(());
            });
        started.map(drop)
    }

    /// Where messages go.
    pub fn target(&self) -> &MessageTarget {
        &self.0.target
    }

    /// Opens the file by its name again, after it was moved away.
    pub fn reopen(&self) {
        self.0.reopen.store(true, Ordering::Release);
        // An empty line wakes the thread. If the queue is full, the thread is awake.
        if let Output::Queue(queue, _) = &*self.0.output.lock() {
            let _ = queue.try_send(String::new());
        }
    }

    /// Waits until all messages are written, at most `within`. Later messages are not written.
    pub fn finish(&self, within: Duration) {
        let output = std::mem::replace(&mut *self.0.output.lock(), Output::Ended);
        if let Output::Queue(queue, done) = output {
            drop(queue);
            let _ = done.recv_timeout(within);
        }
    }

    /// Writes or queues a line; never waits once there is a thread.
    fn submit(&self, line: String) {
        match &mut *self.0.output.lock() {
            Output::Direct(to) => {
                // An error has no place where it could be reported.
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

    /// The thread: writes lines until the queue is closed.
    fn write(&self, mut to: Box<dyn Write + Send>, lines: &Receiver<String>) {
        loop {
            // Not locked while the thread waits.
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

    /// Lines about messages that were suppressed or lost, when they are due.
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
            let text = format!("{} messages were lost", thousands(lost));
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

/// Marks this thread as logging a message.
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

/// `1,234`
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
