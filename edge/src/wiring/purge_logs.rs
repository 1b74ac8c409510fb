//! The threads that write purges to the logs of volumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::sync::oneshot;

use crate::admin::PurgeLogged;
use crate::cache::purge::Enforced;

/// Most purges that may wait for volumes at the same time, each in its own thread.
const LOGGING_MAX: usize = 16;

/// A durable purge that still has to be logged, with the name of its cache.
pub(super) type ToLog = (String, Enforced);

/// Limits the threads in which purges are written to the logs of volumes, so that a slow volume
/// delays nothing else.
#[derive(Default)]
pub(super) struct Loggers(Arc<AtomicUsize>);

impl Loggers {
    /// Logs these purges in a thread of its own.
    pub(super) fn log(&self, rules: Vec<ToLog>) -> PurgeLogged {
        self.run(move || {
            let mut failed = Vec::new();
            for (cache, enforced) in rules {
                // A failure for one cache does not end the loop: the volumes of other caches may
                // still be available.
                if let Err(why) = enforced.log() {
                    failed.push(format!("cache {cache}: {}", why.reason()));
                }
            }
            failed.dedup();
            match failed.is_empty() {
                true => Ok(()),
                false => Err(failed.join("; ")),
            }
        })
    }

    fn run(&self, work: impl FnOnce() -> Result<(), String> + Send + 'static) -> PurgeLogged {
        let (result, logged) = oneshot::channel();
        let Some(permit) = LoggingPermit::take(&self.0) else {
            let why = "too many purges are already waiting for slow volumes";
            let _ = result.send(Err(why.to_owned()));
            return logged;
        };
        let log = move || {
            let done = work();
            drop(permit);
            // Sending fails if the admin client has stopped waiting, which is no error.
            let _ = result.send(done);
        };
        let started = thread::Builder::new()
            .name("purge-log".to_owned())
            .spawn(log);
        if let Err(error) = started {
            // `result` was dropped with the closure, so the receiver `logged` reports the failure to
            // the client.
            tracing::warn!(target: "sluice::event::purge::not-durable", %error, "a purge can't be written to volumes");
        }
        logged
    }
}

/// One of `LOGGING_MAX` permits. Dropping it releases the permit.
struct LoggingPermit(Arc<AtomicUsize>);

impl LoggingPermit {
    fn take(taken: &Arc<AtomicUsize>) -> Option<LoggingPermit> {
        let permit = LoggingPermit(taken.clone());
        let before = taken.fetch_add(1, Ordering::Relaxed);
        (before < LOGGING_MAX).then_some(permit)
    }
}

impl Drop for LoggingPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_purges_waiting_for_a_disk_is_bounded() {
        let loggers = Loggers::default();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(parking_lot::Mutex::new(held));
        let wait = || {
            let held = held.clone();
            loggers.run(move || {
                // Each thread waits until the test sends one message or ends.
                let _ = held.lock().recv();
                Err("slow".to_owned())
            })
        };
        let waiting: Vec<_> = (0..LOGGING_MAX).map(|_| wait()).collect();
        let refused = wait().blocking_recv().expect("an answer");
        assert!(refused.is_err_and(|why| why.contains("too many")));
        for _ in 0..LOGGING_MAX {
            release.send(()).expect("they wait");
        }
        for logged in waiting {
            assert_eq!(logged.blocking_recv(), Ok(Err("slow".to_owned())));
        }
        // All permits have been released, including that of the refused purge.
        assert_eq!(loggers.0.load(Ordering::Relaxed), 0);
        assert_eq!(loggers.run(|| Ok(())).blocking_recv(), Ok(Ok(())));
        assert!(loggers.run(|| panic!("a bug")).blocking_recv().is_err());
    }
}
