//! A pool of threads that wait for the disk, so that workers need not.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads with a job queue. The threads end when the pool is dropped.
pub struct Pool {
    queue: Arc<Queue>,
}

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    waiting_max: usize,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

impl Pool {
    /// Creates a pool with this many threads of this name, at least one, and a queue of at most `waiting_max` jobs.
    ///
    /// # Errors
    ///
    /// The system can't create a thread.
    pub fn start(name: &str, threads: usize, waiting_max: usize) -> io::Result<Pool> {
        let pool = Pool {
            queue: Arc::new(Queue {
                state: Mutex::default(),
                changed: Condvar::new(),
                waiting_max,
            }),
        };
        for _ in 0..threads.max(1) {
            let queue = pool.queue.clone();
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || queue.work())?;
        }
        Ok(pool)
    }

    /// Queues a job. Returns false if the queue is full.
    pub fn submit(&self, job: Job) -> bool {
        let mut state = self.queue.state.lock();
        if state.jobs.len() >= self.queue.waiting_max {
            return false;
        }
        state.jobs.push_back(job);
        drop(state);
        self.queue.changed.notify_one();
        true
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Dropping the pool does not wait for its threads: a thread that waits for the disk ends when its read returns.
        let jobs = {
            let mut state = self.queue.state.lock();
            state.is_closed = true;
            std::mem::take(&mut state.jobs)
        };
        self.queue.changed.notify_all();
        drop(jobs);
    }
}

impl Queue {
    fn work(&self) {
        while let Some(job) = self.next() {
            // After a panic in the job, its channel is dropped, which notifies the caller.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            self.changed.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const WAITING: usize = 64;

    /// Makes the only thread of a pool run a job that ends with the returned value.
    fn occupy(pool: &Pool) -> mpsc::Sender<()> {
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        pool.submit(Box::new(move || {
            begin.send(()).expect("the test waits");
            let _ = ended.recv();
        }));
        begun.recv().expect("it runs");
        end
    }

    #[test]
    fn the_queue_is_bounded_and_a_panic_does_not_stop_the_pool() {
        let pool = Pool::start("test", 1, WAITING).expect("a thread");
        assert!(pool.submit(Box::new(|| panic!("a bug in a job"))));
        let end = occupy(&pool);
        let (done, results) = mpsc::channel();
        let mut taken = 0;
        let submit = |n: usize| {
            let done = done.clone();
            pool.submit(Box::new(move || done.send(n).expect("the test waits")))
        };
        while submit(taken) {
            taken += 1;
        }
        assert_eq!(taken, WAITING);
        end.send(()).expect("it waits");
        let order: Vec<usize> = results.iter().take(taken).collect();
        assert_eq!(order, (0..taken).collect::<Vec<_>>());
    }

    #[test]
    fn queued_jobs_are_dropped_with_the_pool() {
        let pool = Pool::start("test", 1, WAITING).expect("a thread");
        let end = occupy(&pool);
        let (done, results) = mpsc::channel::<()>();
        pool.submit(Box::new(move || drop(done)));
        drop(pool);
        assert!(results.recv().is_err(), "its job was dropped");
        drop(end);
    }
}
