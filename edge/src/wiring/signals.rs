//! Signals: taken before anything slow begins, so that none ends the process that should not.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Edge, Running, finish_messages};

/// Signals that ask a running edge for something. From when this is made on they are kept for it, and
/// none of them ends the process.
pub struct Signals {
    runtime: Runtime,
    /// Reload.
    hangup: Signal,
    /// Open the logs anew.
    reopen: Signal,
}

impl Signals {
    /// Takes them. Those that end the process still do, until it waits for them. No thread is started.
    ///
    /// # Errors
    /// When signals can't be waited for.
    pub fn take() -> std::io::Result<Signals> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let within = runtime.enter();
        let hangup = signal(SignalKind::hangup())?;
        let reopen = signal(SignalKind::user_defined1())?;
        drop(within);
        Ok(Signals {
            runtime,
            hangup,
            reopen,
        })
    }

    /// Until the edge is told to stop: reloads it, and opens its logs anew.
    async fn serve(
        hangup: &mut Signal,
        reopen: &mut Signal,
        edge: &Arc<Edge>,
        end: &mut EndSignals,
    ) {
        loop {
            tokio::select! {
                () = end.next() => return,
                _ = hangup.recv() => {
                    let edge = edge.clone();
                    // Its outcome is logged; it must not make the edge deaf.
                    let reload = tokio::task::spawn_blocking(move || edge.reload());
                    tokio::select! {
                        _ = reload => {}
                        () = end.next() => return,
                    }
                }
                _ = reopen.recv() => edge.reopen_logs(),
            }
        }
    }
}

impl Running {
    /// Runs until SIGTERM, SIGQUIT or SIGINT, then lets requests finish. SIGHUP reloads, SIGUSR1
    /// opens the log anew. A second signal to end cuts what is left.
    ///
    /// # Errors
    /// When signals can't be waited for.
    pub fn wait_for_signals(self, signals: Signals) -> anyhow::Result<()> {
        let edge = self.edge.clone();
        let Signals {
            runtime,
            mut hangup,
            mut reopen,
        } = signals;
        let ended = runtime.block_on(async {
            // Listened for from here to the end, so that no second signal falls between two steps.
            let mut end = EndSignals::new()?;
            Signals::serve(&mut hangup, &mut reopen, &edge, &mut end).await;
            tracing::info!("stopping: requests in progress may finish");
            let stopped = tokio::task::spawn_blocking(move || self.stop());
            tokio::select! {
                stopped = stopped => Ok(stopped?),
                () = end.next() => {
                    tracing::warn!("told to stop again: what is left is cut");
                    finish_messages();
                    std::process::exit(1);
                }
            }
        });
        // A reload may hang in a disk: nothing waits for it.
        runtime.shutdown_background();
        ended
    }
}

struct EndSignals {
    term: Signal,
    quit: Signal,
    int: Signal,
}

impl EndSignals {
    fn new() -> std::io::Result<EndSignals> {
        Ok(EndSignals {
            term: signal(SignalKind::terminate())?,
            quit: signal(SignalKind::quit())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.quit.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}
