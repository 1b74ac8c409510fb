//! The thread that obtains and renews certificates.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::runtime;
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};

use super::attempt::{self, Attempt};
use super::authority::Authority;
use super::challenges::Challenges;
use super::http_client::DirectoryClient;
use super::options::Options;
use super::record::Record;
use super::shared::{Shared, Task, Wanted};
use super::state::State;
use super::storage::Storage;
use crate::sys::Clock;
use crate::tls::Managed;

/// Most tasks at a time.
const PARALLEL: usize = 16;
/// Most of them for names that handshakes have asked for.
const PARALLEL_ON_DEMAND: usize = 8;
/// Longest time until the next look at what is due: the clock may have been set meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Time between messages about the progress of many certificates.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Obtains and renews certificates in a thread of its own, until it is dropped.
pub struct Manager {
    pub(super) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Manager {
    /// Loads the stored certificates of `wanted`, and starts the thread. `client` verifies the certificates of directories.
    ///
    /// # Errors
    ///
    /// The storage or the thread failed.
    pub fn start(
        wanted: Wanted,
        (managed, challenges): (Arc<Managed>, Arc<Challenges>),
        storage: Arc<dyn Storage>,
        client: Arc<ClientConfig>,
        clock: Clock,
    ) -> io::Result<Manager> {
        let shared = Arc::new(Shared {
            wanted: watch::Sender::new(None),
            clock,
            managed,
            challenges,
            storage,
            client,
            entries: Mutex::default(),
            revocations: Mutex::default(),
        });
        shared.take_up(wanted)?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let its = shared.clone();
        let thread = thread::Builder::new()
            .name("certificates".to_owned())
            .spawn(move || {
                runtime.block_on(LocalSet::new().run_until(Tasks::new(its).run()));
                // A name whose address is being looked up keeps nobody waiting.
                runtime.shutdown_background();
            })?;
        Ok(Manager {
            shared,
            thread: Some(thread),
        })
    }

    /// Obtains and renews these certificates from now on.
    ///
    /// # Errors
    ///
    /// The storage failed.
    pub fn want(&self, wanted: Wanted) -> io::Result<()> {
        self.shared.take_up(wanted)
    }

    /// Returns the state of each certificate.
    pub fn states(&self) -> Vec<State> {
        let entries = self.shared.entries.lock();
        entries.values().map(|entry| entry.state.clone()).collect()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.shared.wanted.send_replace(None);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// The tasks of the thread.
struct Tasks {
    shared: Arc<Shared>,
    /// The running tasks, each of which returns whether it was one for a handshake's name.
    running: JoinSet<bool>,
    running_on_demand: usize,
    /// The tools for the options at the moment.
    attempt: Option<Arc<Attempt>>,
    /// The time of the last message about the progress, and that at which refused names were forgotten, on the
    /// monotonic clock in microseconds.
    reported_us: u64,
    aged_us: u64,
}

impl Tasks {
    fn new(shared: Arc<Shared>) -> Tasks {
        let now_us = shared.clock.monotonic_us();
        Tasks {
            shared,
            running: JoinSet::new(),
            running_on_demand: 0,
            attempt: None,
            reported_us: now_us,
            aged_us: now_us,
        }
    }

    /// Runs what is due, until the thread is to end. Orders in progress are stored, and continue at the next start.
    async fn run(mut self) {
        let shared = self.shared.clone();
        let mut wanted = shared.wanted.subscribe();
        loop {
            if wanted.borrow_and_update().is_none() {
                return;
            }
            if is_over(&mut self.aged_us, LOOK_EVERY, &shared.clock) {
                shared.managed.demands.age_refused();
            }
            shared.add_demanded();
            shared.forget();
            let Some(wait) = self.begin_due() else {
                return;
            };
            self.report_progress();
            tokio::select! {
                _ = wanted.changed() => {}
                () = shared.managed.demands.changed() => {}
                Some(ended) = self.running.join_next(), if !self.running.is_empty() => {
                    self.end(ended);
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Begins what is due and for which there is room. Returns the time until the next look; `None`: the
    /// thread is to end.
    fn begin_due(&mut self) -> Option<Duration> {
        let now_unix_s = self.shared.clock.unix_s();
        let due = self.shared.due(now_unix_s)?;
        let attempt = self.attempt(&due.wanted.options);
        for revocation in std::mem::take(&mut *self.shared.revocations.lock()) {
            let (shared, attempt) = (self.shared.clone(), attempt.clone());
            self.running.spawn_local(async move {
                attempt::revoke(&shared, &attempt, revocation).await;
                false
            });
        }
        for (state, task) in due.tasks {
            let is_full = state.is_on_demand && self.running_on_demand >= PARALLEL_ON_DEMAND;
            if is_full || self.running.len() >= PARALLEL {
                continue;
            }
            self.running_on_demand += usize::from(state.is_on_demand);
            let id = Record::id(&state.names);
            self.shared.note(&id, |state| state.is_busy = true);
            let (shared, attempt) = (self.shared.clone(), attempt.clone());
            self.running.spawn_local(async move {
                let is_on_demand = state.is_on_demand;
                match task {
                    Task::Obtain => attempt::obtain(&shared, &attempt, state).await,
                    Task::AskWindow => attempt::ask_window(&shared, &attempt, state).await,
                }
                is_on_demand
            });
        }
        let wait_s = due
            .later_unix_s
            .saturating_sub(now_unix_s)
            .max(1)
            .unsigned_abs();
        let wait = Duration::from_secs(wait_s).min(LOOK_EVERY);
        Some(match self.running.is_empty() {
            true => wait,
            false => wait.min(PROGRESS_EVERY),
        })
    }

    fn end(&mut self, ended: Result<bool, tokio::task::JoinError>) {
        match ended {
            Ok(is_on_demand) => self.running_on_demand -= usize::from(is_on_demand),
            // A panic was reported when it happened. To count too many costs less than to stop.
            Err(_) => self.running_on_demand = self.running_on_demand.min(self.running.len()),
        }
    }

    /// Returns the tools for these options, which keep their accounts as long as the options stay the same.
    fn attempt(&mut self, options: &Options) -> Arc<Attempt> {
        let in_use = self
            .attempt
            .take()
            .filter(|attempt| attempt.options == *options);
        let attempt = in_use.unwrap_or_else(|| {
            let shared = &self.shared;
            let authorities = options.directories.iter().map(|directory| {
                let client = DirectoryClient::new(shared.client.clone(), shared.clock.clone());
                Authority::new(directory, options, client, shared.storage.clone())
            });
            Arc::new(Attempt {
                authorities: authorities.collect(),
                options: options.clone(),
            })
        });
        self.attempt = Some(attempt.clone());
        attempt
    }

    /// Logs how many certificates are there, while many are still missing.
    fn report_progress(&mut self) {
        if !is_over(&mut self.reported_us, PROGRESS_EVERY, &self.shared.clock) {
            return;
        }
        let (there, all) = self.shared.progress();
        if there < all && all > PARALLEL {
            let in_progress = self.running.len();
            tracing::info!(
                "{there} of {all} certificates are there, {in_progress} orders are in progress"
            );
        }
    }
}

/// Whether a time span is over since `last_us`, which then becomes the current time.
fn is_over(last_us: &mut u64, span: Duration, clock: &Clock) -> bool {
    let now_us = clock.monotonic_us();
    let is_over = u128::from(now_us.saturating_sub(*last_us)) >= span.as_micros();
    if is_over {
        *last_us = now_us;
    }
    is_over
}
