//! The thread that answers the requests to a slow disk at their scheduled times.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};
use parking_lot::{Condvar, Mutex};

use super::queue::{Done, Kind, Queue, Trouble};
use super::{Activity, Condition, Pace};

/// A prepared answer to a request of the kernel, sent when the request is due.
pub(super) enum Reply {
    /// Answer to a read, with the bytes read.
    Read(ReplyData, Vec<u8>),
    /// Answer to a write, with the number of bytes written.
    Write(ReplyWrite, u32),
    Sync(ReplyEmpty),
}

impl Reply {
    fn kind(&self) -> Kind {
        match self {
            Reply::Read(..) => Kind::Read,
            Reply::Write(..) => Kind::Write,
            Reply::Sync(_) => Kind::Sync,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Reply::Read(_, bytes) => bytes.len() as u64,
            Reply::Write(_, count) => u64::from(*count),
            Reply::Sync(_) => 0,
        }
    }

    fn give(self, outcome: Result<(), Trouble>) {
        match (self, outcome) {
            (Reply::Read(reply, bytes), Ok(())) => reply.data(&bytes),
            (Reply::Write(reply, count), Ok(())) => reply.written(count),
            (Reply::Sync(reply), Ok(())) => reply.ok(),
            (reply, Err(trouble)) => reply.refuse(trouble.errno()),
        }
    }

    pub(super) fn refuse(self, errno: Errno) {
        match self {
            Reply::Read(reply, _) => reply.error(errno),
            Reply::Write(reply, _) => reply.error(errno),
            Reply::Sync(reply) => reply.error(errno),
        }
    }
}

impl Trouble {
    pub(super) fn errno(self) -> Errno {
        match self {
            Trouble::Io => Errno::EIO,
            Trouble::Full => Errno::ENOSPC,
        }
    }
}

/// A slow disk's requests in progress, and the thread that answers them.
pub(super) struct Pacer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State that the file system's thread, the answering thread and the owner of the disk share.
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    began: Instant,
}

struct State {
    queue: Queue<Reply>,
    over: bool,
}

impl Pacer {
    pub(super) fn start(pace: Pace) -> anyhow::Result<Pacer> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                queue: Queue::new(pace),
                over: false,
            }),
            changed: Condvar::new(),
            began: Instant::now(),
        });
        let answering = shared.clone();
        let thread = thread::Builder::new()
            .name("slow-disk".to_owned())
            .spawn(move || answering.answer())?;
        Ok(Pacer {
            shared,
            thread: Some(thread),
        })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Pacer {
    /// Answers all requests in progress with an error. A process that waits for a disk that never answers could not
    /// even be killed.
    fn drop(&mut self) {
        let left = {
            let mut state = self.shared.state.lock();
            state.over = true;
            state.queue.drain()
        };
        self.shared.changed.notify_all();
        left.into_iter().for_each(|reply| reply.refuse(Errno::EIO));
        if let Some(thread) = self.thread.take() {
            // The result is ignored: if the thread panicked, the message is printed already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the error with which a request of this kind fails now, or `None` if it succeeds.
    pub(super) fn trouble(&self, kind: Kind) -> Option<Trouble> {
        self.state.lock().queue.trouble(kind)
    }

    /// Whether writes transfer only a part of their bytes now.
    pub(super) fn writes_short(&self) -> bool {
        self.state.lock().queue.writes_short()
    }

    /// Schedules an answer to be sent when the disk completes the request.
    pub(super) fn answer_later(&self, reply: Reply) {
        let mut state = self.state.lock();
        if state.over {
            drop(state);
            return reply.refuse(Errno::EIO);
        }
        let (kind, bytes, now) = (reply.kind(), reply.bytes(), self.now());
        state.queue.arrive(now, kind, bytes, reply);
        drop(state);
        self.changed.notify_one();
    }

    pub(super) fn change(&self, condition: Condition) {
        let now = self.now();
        self.state.lock().queue.change(now, condition);
        self.changed.notify_one();
    }

    pub(super) fn set_pace(&self, pace: Pace) {
        self.state.lock().queue.set_pace(pace);
    }

    pub(super) fn activity(&self) -> Activity {
        let state = self.state.lock();
        state.queue.activity(self.now())
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.state.lock().queue.in_flight()
    }

    /// Runs the answering thread: sends each answer when it is due.
    fn answer(&self) {
        let mut state = self.state.lock();
        while !state.over {
            let now = self.now();
            let due = state.queue.due(now);
            if !due.is_empty() {
                drop(state);
                for Done { reply, outcome } in due {
                    reply.give(outcome);
                }
                state = self.state.lock();
                continue;
            }
            match state.queue.next_due() {
                Some(due) => {
                    self.changed.wait_for(&mut state, due.saturating_sub(now));
                }
                None => self.changed.wait(&mut state),
            }
        }
    }
}
