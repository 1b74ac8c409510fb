//! Messages about the program itself: to standard error or a file, one line each, each place in the
//! code so often and no oftener, by a thread of their own, so that nobody waits for a slow disk.

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
/// How often the thread looks whether there is something left to say of repeated messages …
const LOOK: Duration = Duration::from_millis(500);
/// … and how long it sleeps while nothing repeats itself.
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
    way: Mutex<Way>,
    reopen: AtomicBool,
    /// Messages that found the queue full.
    lost: AtomicU64,
}

/// How lines get to where they go.
enum Way {
    /// At once, while the program has but one thread.
    Straight(Box<dyn Write + Send>),
    /// By the thread, and how to learn of its end.
    Queue(SyncSender<String>, Receiver<()>),
    /// No more.
    Ended,
}

/// Those that the whole program tells its messages to.
static MESSAGES: OnceLock<Messages> = OnceLock::new();

thread_local! {
    /// Whether this thread is telling something, and may hold a lock of ours.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

/// The messages of the whole program, if `Messages::install` was called.
pub fn installed() -> Option<&'static Messages> {
    MESSAGES.get()
}

impl Messages {
    /// To standard error until `begin` is called. `colours`: whether the target shows them.
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
            way: Mutex::new(Way::Straight(to)),
            reopen: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        }))
    }

    /// Has these be the messages of the whole program, panics among them. Later calls change nothing.
    pub fn install(&self) {
        if MESSAGES.set(self.clone()).is_err() {
            return;
        }
        let messages = self.clone();
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // Whoever panics while telling something would wait for itself.
            match TELLING.get() || messages.has_ended() {
                true => before(info),
                false => tracing::error!("panic: {info}"),
            }
        }));
    }

    fn has_ended(&self) -> bool {
        matches!(&*self.0.way.lock(), Way::Ended)
    }

    /// From now on a thread writes them, to the target. Until then they are written where they arise:
    /// the program can give up rights as long as it has no threads and no files open.
    ///
    /// # Errors
    /// When the file can't be opened, or there is no thread to be had.
    pub fn begin(&self) -> io::Result<()> {
        if let MessageTarget::File(path) = &self.0.target {
            *self.0.way.lock() = Way::Straight(Box::new(disk::open_append(path)?));
        }
        self.start_thread()
    }

    fn start_thread(&self) -> io::Result<()> {
        let mut way = self.0.way.lock();
        let Way::Straight(_) = &*way else {
            return Ok(());
        };
        let (queue, lines) = sync_channel(QUEUE);
        let (done_sender, done) = sync_channel(1);
        let before = std::mem::replace(&mut *way, Way::Queue(queue, done));
        let Way::Straight(to) = before else {
            return Ok(());
        };
        let messages = self.clone();
        let started = thread::Builder::new()
            .name("messages".to_owned())
            .spawn(move || {
                messages.write(to, &lines);
                // Nobody may be waiting for the end any more.
                let _ = done_sender.send(());
            });
        started.map(drop)
    }

    /// Where they go.
    pub fn target(&self) -> &MessageTarget {
        &self.0.target
    }

    /// Opens the file by its name again, after it was moved away.
    pub fn reopen(&self) {
        self.0.reopen.store(true, Ordering::Release);
        // Nothing in it: it only wakes the thread. Where the queue is full, that is awake.
        if let Way::Queue(queue, _) = &*self.0.way.lock() {
            let _ = queue.try_send(String::new());
        }
    }

    /// Waits until what was told is written, so long at most. What is told later is not.
    pub fn finish(&self, within: Duration) {
        let way = std::mem::replace(&mut *self.0.way.lock(), Way::Ended);
        if let Way::Queue(queue, done) = way {
            drop(queue);
            let _ = done.recv_timeout(within);
        }
    }

    /// Takes a line; never waits for anybody once there is a thread.
    fn tell(&self, line: String) {
        match &mut *self.0.way.lock() {
            Way::Straight(to) => {
                // There is nobody left to tell.
                let _ = to.write_all(line.as_bytes());
            }
            Way::Queue(queue, _) => {
                if let Err(TrySendError::Full(_)) = queue.try_send(line) {
                    self.0.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            Way::Ended => {}
        }
    }

    /// The thread: writes lines until there are none to come.
    fn write(&self, mut to: Box<dyn Write + Send>, lines: &Receiver<String>) {
        loop {
            // Not locked while it waits.
            let watches = self.0.limit.lock().is_watching();
            let received = lines.recv_timeout(if watches { LOOK } else { SLEEP });
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
            for line in self.left_to_say(ended) {
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

    /// What was held back or lost, as soon as it is time to say so.
    fn left_to_say(&self, ended: bool) -> Vec<String> {
        let now_us = match ended {
            true => u64::MAX,
            false => self.0.clock.monotonic_us(),
        };
        let held = self.0.limit.lock().ended(now_us);
        let mut lines: Vec<String> = held
            .into_iter()
            .map(|held| {
                let text = format!("and {} more like it: {}", thousands(held.count), held.last);
                self.plain(held.level, &text)
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
        let _telling = Telling::begin();
        if self
            .0
            .limit
            .lock()
            .is_to_be_told(&place, *meta.level(), &text, now_us)
        {
            self.tell(self.plain(*meta.level(), &text));
        }
    }
}

/// For as long as this thread tells something.
struct Telling;

impl Telling {
    fn begin() -> Telling {
        TELLING.set(true);
        Telling
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        TELLING.set(false);
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
