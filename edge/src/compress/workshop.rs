//! Where content is compressed: threads of low priority, and the bounded queue of what they are to do.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::lines::Mark;
use super::table::Outcome;
use super::{Encoder, codec};
use crate::handler::Get;
use crate::http::FieldBlock;
use crate::http::coding::Coding;
use crate::sys::priority;

/// Codings that may wait to be made. What waits holds no content.
const JOBS_MAX: usize = 1024;

/// What came out may be nine tenths of what went in: else the client has the trouble of decoding it
/// for nothing.
const WORTH: (u64, u64) = (9, 10);

/// Threads that compress, while it lives.
pub struct Workshop(Arc<Queue>);

/// What is to be compressed.
pub(super) struct Queue {
    state: Mutex<State>,
    more: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    /// Of those jobs, and of those that are being done: by encoder, content and coding.
    names: HashSet<Name>,
    is_open: bool,
}

type Name = (usize, u128, Coding);

/// A content to be made in a coding.
pub(super) struct Job {
    pub encoder: Arc<Encoder>,
    pub id: u128,
    pub coding: Coding,
    /// The content's.
    pub fields: FieldBlock,
    pub get: Get,
}

impl Workshop {
    /// Starts its threads: two at most, and no more than half of the cores.
    ///
    /// # Errors
    /// When a thread can't be had.
    pub fn start() -> io::Result<Arc<Workshop>> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Workshop::of((cores / 2).clamp(1, 2))
    }

    /// Starts so many threads.
    ///
    /// # Errors
    /// When a thread can't be had.
    pub(super) fn of(threads: usize) -> io::Result<Arc<Workshop>> {
        // First, so that it ends those that have begun if one can't be had.
        let workshop = Arc::new(Workshop(Queue::new()));
        for index in 0..threads {
            let queue = workshop.queue();
            let name = format!("compress-{index}");
            thread::Builder::new().name(name).spawn(move || {
                if let Err(error) = priority::lower() {
                    tracing::warn!(%error, "compression has the priority of everything else");
                }
                queue.work();
            })?;
        }
        Ok(workshop)
    }

    pub(super) fn queue(&self) -> Arc<Queue> {
        self.0.clone()
    }
}

impl Drop for Workshop {
    /// Threads end with what they have in hand; nobody waits for them.
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Queue {
    pub(super) fn new() -> Arc<Queue> {
        Arc::new(Queue {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                names: HashSet::new(),
                is_open: true,
            }),
            more: Condvar::new(),
        })
    }

    /// Puts a job at the end, unless it is there or being done. `false`: there is no room.
    pub fn put(&self, job: Job) -> bool {
        let mut state = self.state.lock();
        if state.names.contains(&job.name()) {
            return true;
        }
        if state.jobs.len() >= JOBS_MAX || !state.is_open {
            return false;
        }
        state.names.insert(job.name());
        state.jobs.push_back(job);
        drop(state);
        self.more.notify_one();
        true
    }

    /// Does what there is to do, until it is closed.
    fn work(&self) {
        while let Some(job) = self.next() {
            let name = job.name();
            let finished = job.run();
            // Who asks from now on asks anew.
            self.state.lock().names.remove(&name);
            finished.note();
        }
    }

    /// The next job, once there is one; `None`: it is closed.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        while state.is_open {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            self.more.wait(&mut state);
        }
        None
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.is_open = false;
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        // Only now: they may be the last to hold an encoder.
        drop(jobs);
        self.more.notify_all();
    }
}

impl Job {
    fn name(&self) -> Name {
        (Arc::as_ptr(&self.encoder) as usize, self.id, self.coding)
    }

    /// Does it. Whatever happens, what was asked for is seen to no longer; a panic costs this job alone.
    fn run(self) -> Finished {
        let Job {
            encoder,
            id,
            coding,
            fields,
            get,
        } = self;
        let levels = encoder.options.levels;
        let outcome = match catch_unwind(AssertUnwindSafe(|| done(get, coding, &levels))) {
            Ok(Done::Made(content, from)) => {
                let numbers = &encoder.numbers;
                numbers.made.fetch_add(1, Ordering::Relaxed);
                numbers.bytes_in.fetch_add(from, Ordering::Relaxed);
                let bytes = content.len() as u64;
                numbers.bytes_out.fetch_add(bytes, Ordering::Relaxed);
                let mark = Mark::of(&content);
                Outcome::Made(content, mark)
            }
            Ok(Done::NotWorth) => {
                encoder.numbers.not_worth.fetch_add(1, Ordering::Relaxed);
                Outcome::NotWorth
            }
            Ok(Done::Gone) => {
                encoder.numbers.failed.fetch_add(1, Ordering::Relaxed);
                Outcome::Failed
            }
            Ok(Done::Failed) | Err(_) => {
                encoder.numbers.failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!("content could not be compressed with {}", coding.name());
                Outcome::NotWorth
            }
        };
        Finished {
            encoder,
            id,
            fields,
            coding,
            outcome,
        }
    }
}

/// A job, and what became of it.
struct Finished {
    encoder: Arc<Encoder>,
    id: u128,
    fields: FieldBlock,
    coding: Coding,
    outcome: Outcome,
}

impl Finished {
    fn note(self) {
        let table = &self.encoder.table;
        table.finish(self.id, &self.fields, self.coding, self.outcome);
    }
}

/// What came of a job.
enum Done {
    /// It was made, from so many bytes.
    Made(Bytes, u64),
    NotWorth,
    /// The content could not be had.
    Gone,
    Failed,
}

fn done(get: Get, coding: Coding, levels: &super::Levels) -> Done {
    let Some(content) = get() else {
        return Done::Gone;
    };
    let Ok(coded) = codec::encode(coding, levels, &content) else {
        return Done::Failed;
    };
    let (from, to) = (content.len() as u64, coded.len() as u64);
    match to * WORTH.1 > from * WORTH.0 {
        true => Done::NotWorth,
        false => Done::Made(coded.into(), from),
    }
}
