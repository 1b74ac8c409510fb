//! The worker pool that compresses content: threads of low priority, and their bounded queue of
//! jobs.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::codec;
use super::lines::Mark;
use super::options::Levels;
use super::table::{Outcome, Table, Urgency};
use crate::handler::Get;
use crate::http::FieldBlock;
use crate::http::coding::Coding;
use crate::sys::priority;

/// Largest number of queued jobs. A queued job takes little memory, since it does not hold the
/// content.
const JOBS_MAX: usize = 1024;

/// Largest number of queued jobs for content that was not requested again since it was stored. A
/// client that requests many different URLs thus leaves room for content that others request.
const FIRST_JOBS_MAX: usize = JOBS_MAX / 2;

/// Largest length of compressed content as a fraction (numerator, denominator) of the original
/// length. Longer compressed content is discarded: the client would spend time on decompression for
/// little gain.
const WORTH: (u64, u64) = (9, 10);

/// The threads that compress content. They end when this value is dropped.
pub struct WorkerPool(Arc<Queue>);

/// The bounded queue of compression jobs.
pub(super) struct Queue {
    state: Mutex<State>,
    more: Condvar,
}

struct State {
    /// Jobs of `Urgency::Again`, which are run before all others.
    again: VecDeque<Job>,
    /// Jobs of `Urgency::First`.
    first: VecDeque<Job>,
    /// Identities of queued and running jobs: encoder, content and encoding.
    names: HashSet<FormKey>,
    is_open: bool,
}

type FormKey = (usize, u128, Coding);

/// The owner of a job, which gets its result.
pub(super) trait JobOwner: Send + Sync {
    /// The compression levels of its jobs.
    fn levels(&self) -> Levels;

    /// The counters in which its jobs are counted.
    fn numbers(&self) -> &Numbers;

    /// The table that gets the results.
    fn table(&self) -> &Table;
}

/// Counters of compression results since the creation of an encoder.
#[derive(Default)]
pub(super) struct Numbers {
    pub made: AtomicU64,
    pub bytes_in: AtomicU64,
    pub bytes_out: AtomicU64,
    pub not_worth: AtomicU64,
    pub failed: AtomicU64,
    pub queue_full: AtomicU64,
}

/// A job: one content to compress with one content coding.
pub(super) struct Job {
    pub owner: Arc<dyn JobOwner>,
    pub id: u128,
    pub coding: Coding,
    /// Header lines of the uncompressed content.
    pub fields: FieldBlock,
    pub get: Get,
}

impl WorkerPool {
    /// Starts a pool of at most two threads, and at most one for two cores.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn start() -> io::Result<Arc<WorkerPool>> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        WorkerPool::of((cores / 2).clamp(1, 2))
    }

    /// Starts a pool of `threads` threads.
    ///
    /// # Errors
    /// A thread can't be started.
    pub(super) fn of(threads: usize) -> io::Result<Arc<WorkerPool>> {
        // If a thread can't be started, the `?` below drops the pool, which ends the threads
        // already started.
        let worker_pool = Arc::new(WorkerPool(Queue::new()));
        for index in 0..threads {
            let queue = worker_pool.queue();
            let name = format!("compress-{index}");
            thread::Builder::new().name(name).spawn(move || {
                if let Err(error) = priority::lower() {
                    tracing::warn!(%error, "can't lower the priority of compression threads");
                }
                queue.work();
            })?;
        }
        Ok(worker_pool)
    }

    pub(super) fn queue(&self) -> Arc<Queue> {
        self.0.clone()
    }
}

impl Drop for WorkerPool {
    /// Closes the queue. Each thread ends after its current job. The caller does not wait for that.
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Queue {
    pub(super) fn new() -> Arc<Queue> {
        Arc::new(Queue {
            state: Mutex::new(State {
                again: VecDeque::new(),
                first: VecDeque::new(),
                names: HashSet::new(),
                is_open: true,
            }),
            more: Condvar::new(),
        })
    }

    /// Adds a job, unless an equal job (encoder, content and encoding) is queued or running. A
    /// queued one may become more urgent. Returns `false` if the queue is full.
    pub fn put(&self, job: Job, urgency: Urgency) -> bool {
        let mut state = self.state.lock();
        if state.names.contains(&job.name()) {
            if urgency == Urgency::Again {
                state.hasten(job.name());
            }
            return true;
        }
        let is_full = state.again.len() + state.first.len() >= JOBS_MAX
            || urgency == Urgency::First && state.first.len() >= FIRST_JOBS_MAX;
        if is_full || !state.is_open {
            return false;
        }
        state.names.insert(job.name());
        match urgency {
            Urgency::Again => state.again.push_back(job),
            Urgency::First => state.first.push_back(job),
        }
        drop(state);
        self.more.notify_one();
        true
    }

    /// Returns the numbers of queued jobs of `Urgency::Again` and of `Urgency::First`.
    #[cfg(test)]
    pub fn lengths(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.again.len(), state.first.len())
    }

    /// Whether a job for this content is queued or running.
    #[cfg(test)]
    pub fn has(&self, id: u128) -> bool {
        let state = self.state.lock();
        state.names.iter().any(|(_, of, _)| *of == id)
    }

    /// Runs jobs until the queue is closed.
    fn work(&self) {
        while let Some(job) = self.next() {
            let name = job.name();
            job.owner.table().mark_running(job.id, job.coding);
            let finished = job.run();
            // Once the job's name is removed, another request can queue an equal job.
            self.state.lock().names.remove(&name);
            finished.note();
        }
    }

    /// Waits for the next job. Returns `None` if the queue is closed.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        while state.is_open {
            let next = state.again.pop_front();
            if let Some(job) = next.or_else(|| state.first.pop_front()) {
                return Some(job);
            }
            self.more.wait(&mut state);
        }
        None
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.is_open = false;
        let jobs = [
            std::mem::take(&mut state.again),
            std::mem::take(&mut state.first),
        ];
        drop(state);
        // The jobs are dropped after the lock is released: a job may hold the last reference to an
        // encoder, whose memory is then freed.
        drop(jobs);
        self.more.notify_all();
    }
}

impl State {
    /// Makes a queued job run before those of content that was not requested again.
    fn hasten(&mut self, name: FormKey) {
        let at = self.first.iter().position(|job| job.name() == name);
        let job = at.and_then(|at| self.first.remove(at));
        self.again.extend(job);
    }
}

impl Job {
    fn name(&self) -> FormKey {
        (
            Arc::as_ptr(&self.owner).cast::<()>() as usize,
            self.id,
            self.coding,
        )
    }

    /// Runs the job. Whatever happens, the content is no longer marked as queued afterwards. A
    /// panic makes only this job fail.
    fn run(self) -> Finished {
        let Job {
            owner,
            id,
            coding,
            fields,
            get,
        } = self;
        let levels = owner.levels();
        let outcome = match catch_unwind(AssertUnwindSafe(|| done(get, coding, &levels))) {
            Ok(JobResult::Made(content, from)) => {
                let numbers = owner.numbers();
                numbers.made.fetch_add(1, Ordering::Relaxed);
                numbers.bytes_in.fetch_add(from, Ordering::Relaxed);
                let bytes = content.len() as u64;
                numbers.bytes_out.fetch_add(bytes, Ordering::Relaxed);
                let mark = Mark::of(&content);
                Outcome::Made(content, mark)
            }
            Ok(JobResult::NotWorth) => {
                owner.numbers().not_worth.fetch_add(1, Ordering::Relaxed);
                Outcome::NotWorth
            }
            Ok(JobResult::Gone) => {
                owner.numbers().failed.fetch_add(1, Ordering::Relaxed);
                Outcome::Failed
            }
            Ok(JobResult::Failed) | Err(_) => {
                owner.numbers().failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!("content could not be compressed with {}", coding.name());
                Outcome::NotWorth
            }
        };
        Finished {
            owner,
            id,
            fields,
            coding,
            outcome,
        }
    }
}

/// A finished job with its result, before the result is stored in the table.
struct Finished {
    owner: Arc<dyn JobOwner>,
    id: u128,
    fields: FieldBlock,
    coding: Coding,
    outcome: Outcome,
}

impl Finished {
    fn note(self) {
        let table = self.owner.table();
        table.finish(self.id, &self.fields, self.coding, self.outcome);
    }
}

/// Result of running a job.
enum JobResult {
    /// The compressed content, and the number of bytes that the original has.
    Made(Bytes, u64),
    NotWorth,
    /// The content to compress was not available any more.
    Gone,
    Failed,
}

fn done(get: Get, coding: Coding, levels: &Levels) -> JobResult {
    let Some(content) = get() else {
        return JobResult::Gone;
    };
    let Ok(coded) = codec::encode(coding, levels, &content) else {
        return JobResult::Failed;
    };
    let (from, to) = (content.len() as u64, coded.len() as u64);
    match to * WORTH.1 > from * WORTH.0 {
        true => JobResult::NotWorth,
        false => JobResult::Made(coded.into(), from),
    }
}
