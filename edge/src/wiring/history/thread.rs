//! A thread that works in intervals until it is ended.

use std::convert::Infallible;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// A running thread. Dropping this asks the thread to end, without waiting for it.
pub(super) struct Thread {
    stop: Sender<Infallible>,
    ended: Receiver<Infallible>,
}

/// The side of the thread.
pub(super) struct Stop(Receiver<Infallible>);

impl Thread {
    /// Starts a thread.
    ///
    /// # Errors
    ///
    /// The system has no thread left.
    pub(super) fn start(
        name: &str,
        work: impl FnOnce(&Stop) + Send + 'static,
    ) -> io::Result<Thread> {
        let (stop, stopped) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || {
            // Dropped at the end of the thread, also after a panic.
            let _end = end;
            work(&Stop(stopped));
        })?;
        Ok(Thread { stop, ended })
    }

    /// Asks the thread to end. Returns whether it ended within this time.
    pub(super) fn end(self, within: Duration) -> bool {
        drop(self.stop);
        matches!(
            self.ended.recv_timeout(within),
            Err(RecvTimeoutError::Disconnected)
        )
    }
}

impl Stop {
    /// Waits for this time. Returns `false` at once if the thread has to end.
    pub(super) fn wait(&self, time: Duration) -> bool {
        matches!(self.0.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_ends_when_it_is_asked_to() {
        let thread = Thread::start("test", |stop| while stop.wait(Duration::from_secs(3600)) {});
        assert!(thread.expect("a thread").end(Duration::from_secs(60)));
        let (go, wait) = mpsc::channel::<()>();
        let thread = Thread::start("test", move |_| _ = wait.recv());
        assert!(!thread.expect("a thread").end(Duration::from_millis(1)));
        drop(go);
    }

    #[test]
    fn a_thread_that_panics_has_ended() {
        let thread = Thread::start("test", |_| panic!("as the test wants"));
        assert!(thread.expect("a thread").end(Duration::from_secs(60)));
    }
}
