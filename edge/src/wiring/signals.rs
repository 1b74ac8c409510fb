//! Signal handling. The handlers are installed before anything slow begins, so that no signal ends
//! the process by default.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::certificates::{self, CertificateWatch, POLL_EVERY};
use super::edge::Edge;
use super::running::{Running, finish_messages};
use crate::admin::{Change, Inspect};

/// The handlers of SIGHUP and SIGUSR1. Once they are installed, these signals are queued and don't
/// end the process.
pub struct Signals {
    runtime: Runtime,
    /// Receives SIGHUP, which reloads the configuration.
    hangup: Signal,
    /// Receives SIGUSR1, which reopens the logs.
    reopen: Signal,
}

/// The handlers of all signals.
pub struct AllSignals {
    others: Signals,
    end: EndSignals,
}

impl Signals {
    /// Installs the handlers. Signals that end the process keep their default effect until
    /// `catch_all` is called. No thread is started.
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

    /// Installs the handlers of the signals that end the process, too. This must happen before
    /// the process says that it is ready: from then on, these signals let requests finish.
    ///
    /// # Errors
    ///
    /// The handlers can't be installed.
    pub fn catch_all(self) -> std::io::Result<AllSignals> {
        let within = self.runtime.enter();
        let end = EndSignals::new()?;
        drop(within);
        Ok(AllSignals { others: self, end })
    }

    /// Reloads at each SIGHUP and reopens the logs at each SIGUSR1, until the edge stops.
    async fn serve(
        hangup: &mut Signal,
        reopen: &mut Signal,
        edge: &Arc<Edge>,
        end: &mut EndSignals,
    ) {
        let watch = Arc::new(Mutex::new(CertificateWatch::default()));
        loop {
            tokio::select! {
                () = end.next() => return,
                _ = hangup.recv() => {
                    let edge = edge.clone();
                    edge.note_change(&Change {
                        action: "reload".to_owned(),
                        what: "read the configuration again".to_owned(),
                        who: "SIGHUP".to_owned(),
                        client: "signal".to_owned(),
                        status: None,
                    });
                    // The reload logs its result itself. Waiting for it here would delay further
                    // signals.
                    let reload = tokio::task::spawn_blocking(move || edge.reload());
                    tokio::select! {
                        _ = reload => {}
                        () = end.next() => return,
                    }
                }
                _ = reopen.recv() => edge.reopen_logs(),
                () = tokio::time::sleep(POLL_EVERY), if certificates::are_watched(edge) => {
                    let (edge, watch) = (edge.clone(), watch.clone());
                    let poll = tokio::task::spawn_blocking(move || watch.lock().poll(&edge));
                    tokio::select! {
                        _ = poll => {}
                        () = end.next() => return,
                    }
                }
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
    /// The edge can't be stopped in order.
    pub fn wait_for_signals(self, signals: AllSignals) -> anyhow::Result<()> {
        let edge = self.edge.clone();
        let AllSignals { others, mut end } = signals;
        let Signals {
            runtime,
            mut hangup,
            mut reopen,
        } = others;
        let ended = runtime.block_on(async {
            // The handlers stay installed until the end, so that a second signal is never lost
            // between two steps.
            Signals::serve(&mut hangup, &mut reopen, &edge, &mut end).await;
            tracing::info!(target: "sluice::event::process::stopping", "stopping: requests in progress may finish");
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
