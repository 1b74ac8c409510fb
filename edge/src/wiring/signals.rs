//! Signal handling. The handlers are installed before anything slow begins, so that no signal ends
//! the process by default.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Edge, Running, finish_messages};

/// The handlers of SIGHUP and SIGUSR1. Once they are installed, these signals are queued and don't
/// end the process.
pub struct Signals {
    runtime: Runtime,
    /// Receives SIGHUP, which reloads the configuration.
    hangup: Signal,
    /// Receives SIGUSR1, which reopens the logs.
    reopen: Signal,
}

impl Signals {
    /// Installs the handlers. Signals that end the process keep their default effect until
    /// `wait_for_signals` is called. No thread is started.
    ///
    /// # Errors
    ///
    /// The handlers can't be installed.
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

    /// Reloads at each SIGHUP and reopens the logs at each SIGUSR1, until the edge stops.
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
                    // The reload logs its result itself. Waiting for it here would delay further
                    // signals.
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
    /// Runs until SIGTERM, SIGQUIT or SIGINT, and then lets requests finish. SIGHUP reloads,
    /// SIGUSR1 reopens the logs. A second terminating signal aborts the remaining requests.
    ///
    /// # Errors
    ///
    /// The signal handlers can't be installed.
    pub fn wait_for_signals(self, signals: Signals) -> anyhow::Result<()> {
        let edge = self.edge.clone();
        let Signals {
            runtime,
            mut hangup,
            mut reopen,
        } = signals;
        let ended = runtime.block_on(async {
            // These handlers stay installed until the end, so that a second signal is never lost
            // between two steps.
            let mut end = EndSignals::new()?;
            Signals::serve(&mut hangup, &mut reopen, &edge, &mut end).await;
            tracing::info!("stopping: requests in progress may finish");
            let stopped = tokio::task::spawn_blocking(move || self.stop());
            tokio::select! {
                stopped = stopped => Ok(stopped?),
                () = end.next() => {
                    tracing::warn!("second signal to stop: aborting the remaining requests");
                    finish_messages();
                    std::process::exit(1);
                }
            }
        });
        // A reload may be blocked by a disk, so the runtime does not wait for it.
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
