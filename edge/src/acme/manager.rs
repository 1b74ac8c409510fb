//! The thread that obtains and renews certificates.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::runtime;
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};

use super::authority::{Authority, BudgetError};
use super::challenges::Challenges;
use super::http_client::DirectoryClient;
use super::options::Options;
use super::order::{Failure, Ordering};
use super::record::{self, Record};
use super::revocation::Revocation;
use super::schedule::{self, Validity};
use super::storage::Storage;
use crate::sys::Clock;
use crate::tls::{self, Certificate, Managed};

/// Most orders in progress at a time.
const PARALLEL: usize = 8;
/// Longest time until the next look at what is due: the clock may have been set meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The certificates that a configuration wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// The options of all of them.
    pub options: Options,
    /// The names of each certificate.
    pub certificates: Vec<Vec<String>>,
}

/// The state of one certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The names that are wanted.
    pub names: Vec<String>,
    /// The issuer of the certificate in use; `None` if there is none.
    pub issuer: Option<String>,
    /// The begin of its validity, as Unix time in seconds.
    pub not_before_unix_s: Option<i64>,
    /// The end of its validity, as Unix time in seconds.
    pub not_after_unix_s: Option<i64>,
    /// The time of the next attempt, as Unix time in seconds.
    pub next_unix_s: i64,
    /// Time of the last attempt, as Unix time in seconds.
    pub last_attempt_unix_s: Option<i64>,
    /// Number of failures since the last success.
    pub failures: u32,
    /// The error of the last attempt, if it failed.
    pub last_error: Option<String>,
    /// Whether an attempt is in progress.
    pub is_busy: bool,
}

/// Obtains and renews certificates in a thread of its own, until it is dropped.
pub struct Manager {
    pub(super) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The state that the thread shares with those that use it.
pub(super) struct Shared {
    /// `None`: the thread ends.
    pub(super) wanted: watch::Sender<Option<Arc<Wanted>>>,
    clock: Clock,
    managed: Arc<Managed>,
    challenges: Arc<Challenges>,
    storage: Arc<dyn Storage>,
    /// Verifies the certificates of directories.
    client: Arc<ClientConfig>,
    /// The states by the id of the certificate.
    pub(super) states: Mutex<BTreeMap<String, State>>,
    /// The certificates to revoke that the thread has not taken yet.
    pub(super) revocations: Mutex<Vec<Revocation>>,
}

impl Manager {
    /// Loads the stored certificates of `wanted`, and starts the thread.
    ///
    /// # Errors
    ///
    /// The storage or the thread failed.
    pub fn start(
        wanted: Wanted,
        managed: Arc<Managed>,
        challenges: Arc<Challenges>,
        storage: Arc<dyn Storage>,
        client: Arc<ClientConfig>,
        clock: Clock,
    ) -> io::Result<Manager> {
        let shared = Arc::new(Shared {
            wanted: watch::Sender::new(Some(Arc::new(wanted.clone()))),
            clock,
            managed,
            challenges,
            storage,
            client,
            states: Mutex::default(),
            revocations: Mutex::default(),
        });
        shared.take_up(&wanted)?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let its = shared.clone();
        let thread = thread::Builder::new()
            .name("certificates".to_owned())
            .spawn(move || runtime.block_on(LocalSet::new().run_until(run(its))))?;
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
        self.shared.take_up(&wanted)?;
        self.shared.wanted.send_replace(Some(Arc::new(wanted)));
        Ok(())
    }

    /// Returns the state of each wanted certificate.
    pub fn states(&self) -> Vec<State> {
        self.shared.states.lock().values().cloned().collect()
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

impl Shared {
    fn now_unix_s(&self) -> i64 {
        (self.clock.unix_ms() / 1000).cast_signed()
    }

    /// Uses the stored certificates of names that were not wanted before, and forgets those that are not wanted now.
    fn take_up(&self, wanted: &Wanted) -> io::Result<()> {
        let mut states = self.states.lock();
        let ids: BTreeSet<String> = wanted
            .certificates
            .iter()
            .map(|names| Record::id(names))
            .collect();
        states.retain(|id, state| {
            let stays = ids.contains(id);
            if !stays {
                state
                    .names
                    .iter()
                    .for_each(|name| self.managed.remove(name));
            }
            stays
        });
        for names in &wanted.certificates {
            let id = Record::id(names);
            if states.contains_key(&id) {
                continue;
            }
            let record = Record::read(&*self.storage, names)?;
            let stored = record::read_pem(&*self.storage, names)?;
            let certificate = stored.and_then(|text| match tls::parse(&text) {
                Ok(certificate) => Some(certificate),
                Err(problem) => {
                    tracing::error!(
                        certificate = id,
                        problem,
                        "a stored certificate can't be used"
                    );
                    None
                }
            });
            if let Some(certificate) = &certificate {
                self.managed.put(certificate);
            }
            states.insert(id, state_of(&record, certificate.as_ref()));
        }
        Ok(())
    }

    /// Notes that an attempt has begun or ended.
    fn note(&self, id: &str, change: impl FnOnce(&mut State)) {
        if let Some(state) = self.states.lock().get_mut(id) {
            change(state);
        }
    }

    /// Returns the certificates whose time has come, and the time of the next one after them.
    fn due(&self, now_unix_s: i64) -> (Vec<Vec<String>>, i64) {
        let states = self.states.lock();
        let waiting = || states.values().filter(|state| !state.is_busy);
        let due = waiting().filter(|state| state.next_unix_s <= now_unix_s);
        let due = due.map(|state| state.names.clone()).collect();
        let later = waiting().map(|state| state.next_unix_s);
        let later = later.filter(|next| *next > now_unix_s).min();
        (due, later.unwrap_or(i64::MAX))
    }
}

/// Returns the state that follows from a record and the certificate in use.
pub(super) fn state_of(record: &Record, certificate: Option<&Certificate>) -> State {
    let facts = certificate.map(|one| &one.facts);
    let renewal = facts.map_or(0, |facts| {
        let validity = Validity {
            from_unix_s: facts.not_before_unix_s,
            until_unix_s: facts.not_after_unix_s,
        };
        schedule::renewal_unix_s(validity, record.window, schedule::spread(&record.names))
    });
    State {
        names: record.names.clone(),
        issuer: facts.map(|facts| facts.issuer.clone()),
        not_before_unix_s: facts.map(|facts| facts.not_before_unix_s),
        not_after_unix_s: facts.map(|facts| facts.not_after_unix_s),
        next_unix_s: renewal.max(record.not_before_unix_s),
        last_attempt_unix_s: record.last_attempt_unix_s,
        failures: record.failures,
        last_error: record.last_error.clone(),
        is_busy: false,
    }
}

/// Obtains what is due, until the thread is to end.
async fn run(shared: Arc<Shared>) {
    let mut wanted = shared.wanted.subscribe();
    let mut orders: JoinSet<()> = JoinSet::new();
    let mut authorities: Option<(Options, Arc<[Authority]>)> = None;
    loop {
        let Some(now_wanted) = wanted.borrow_and_update().clone() else {
            // The orders in progress are stored, and continue at the next start.
            return;
        };
        let options = &now_wanted.options;
        let in_use = match authorities.take() {
            Some((before, in_use)) if before == *options => in_use,
            _ => all(&shared, options),
        };
        authorities = Some((options.clone(), in_use.clone()));
        for revocation in std::mem::take(&mut *shared.revocations.lock()) {
            let (shared, authorities) = (shared.clone(), in_use.clone());
            orders.spawn_local(async move { revoke(&shared, &authorities, revocation).await });
        }
        let now_unix_s = shared.now_unix_s();
        let (due, next_unix_s) = shared.due(now_unix_s);
        let room = PARALLEL.saturating_sub(orders.len());
        for names in due.into_iter().take(room) {
            shared.note(&Record::id(&names), |state| state.is_busy = true);
            let (shared, options, authorities) = (shared.clone(), options.clone(), in_use.clone());
            orders.spawn_local(async move { obtain(&shared, &options, &authorities, names).await });
        }
        let wait_s = next_unix_s.saturating_sub(now_unix_s).max(1).unsigned_abs();
        let wait = Duration::from_secs(wait_s).min(LOOK_EVERY);
        tokio::select! {
            _ = wanted.changed() => {}
            Some(_) = orders.join_next(), if !orders.is_empty() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn all(shared: &Arc<Shared>, options: &Options) -> Arc<[Authority]> {
    let directories = options.directories.iter();
    directories
        .map(|directory| {
            let client = DirectoryClient::new(shared.client.clone(), shared.clock.clone());
            Authority::new(directory, options, client, shared.storage.clone())
        })
        .collect()
}

/// Guard of an attempt, which ends it also after a panic.
struct Attempt<'a> {
    shared: &'a Shared,
    id: &'a str,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.shared.note(self.id, |state| state.is_busy = false);
    }
}

/// Revokes a certificate, after which a new one is due.
async fn revoke(shared: &Shared, authorities: &[Authority], revocation: Revocation) {
    let id = Record::id(&revocation.names);
    let attempt = Attempt { shared, id: &id };
    let (storage, managed) = (&*shared.storage, &*shared.managed);
    let revoked = revocation.carry_out(authorities, storage, managed).await;
    if let Ok(record) = &revoked {
        shared.note(&id, |state| *state = state_of(record, None));
    }
    drop(attempt);
    revocation.end(revoked.err());
}

/// Makes one attempt to obtain a certificate: of each authority in turn, until one has issued it.
async fn obtain(shared: &Shared, options: &Options, authorities: &[Authority], names: Vec<String>) {
    let id = Record::id(&names);
    let _attempt = Attempt { shared, id: &id };
    let now_unix_s = shared.now_unix_s();
    let mut record = match Record::read(&*shared.storage, &names) {
        Ok(record) => record,
        Err(error) => {
            tracing::error!(%error, certificate = id, "the state of a certificate can't be read");
            let next_unix_s = now_unix_s + schedule::wait_s(1, 0.0, 0);
            shared.note(&id, |state| state.next_unix_s = next_unix_s);
            return;
        }
    };
    record.last_attempt_unix_s = Some(now_unix_s);
    let attempt = attempt(shared, options, authorities, &mut record).await;
    let state = match attempt {
        Ok(certificate) => {
            shared.managed.put(&certificate);
            tracing::info!(
                names = names.join(", "),
                issuer = certificate.facts.issuer,
                "a certificate was obtained"
            );
            state_of(&record, Some(&certificate))
        }
        Err(failure) => {
            let asked_s = authorities
                .iter()
                .map(Authority::asked_s)
                .max()
                .unwrap_or(0);
            let wait_s = schedule::wait_s(record.failures + 1, schedule::spread(&names), asked_s);
            let again_unix_s = failure.not_before_unix_s.max(now_unix_s + wait_s);
            record.fail(&failure.message, again_unix_s);
            tracing::error!(
                names = names.join(", "),
                cause = failure.message,
                again_in_s = again_unix_s - now_unix_s,
                "a certificate could not be obtained"
            );
            if let Err(error) = record.write(&*shared.storage) {
                tracing::error!(%error, certificate = id, "the state of a certificate can't be stored");
            }
            let in_use = names.first().and_then(|name| shared.managed.find(name));
            state_of(&record, in_use.as_ref())
        }
    };
    shared.note(&id, |old| *old = state);
}

/// Asks each authority in turn, the one with an order in progress first.
async fn attempt(
    shared: &Shared,
    options: &Options,
    authorities: &[Authority],
    record: &mut Record,
) -> Result<Certificate, Failure> {
    let pending = record.order.as_ref().map(|order| order.directory.clone());
    let has_order = |one: &&Authority| pending.as_deref() == Some(one.url());
    let first = authorities.iter().filter(has_order);
    let others = authorities.iter().filter(|one| !has_order(one));
    let mut failures: Vec<String> = Vec::new();
    let mut last = Failure::new("no directory is configured");
    for authority in first.chain(others) {
        match ask(shared, options, authority, record).await {
            Ok(certificate) => return Ok(certificate),
            Err(failure) => {
                failures.push(format!("{}: {}", authority.url(), failure.message));
                last = failure;
            }
        }
    }
    if !failures.is_empty() {
        last.message = failures.join("; ");
    }
    Err(last)
}

async fn ask(
    shared: &Shared,
    options: &Options,
    authority: &Authority,
    record: &mut Record,
) -> Result<Certificate, Failure> {
    let account = authority.account().await?;
    let is_new = record
        .order
        .as_ref()
        .is_none_or(|order| order.directory != authority.url());
    if is_new {
        authority
            .take_order(shared.now_unix_s())
            .map_err(|error| match error {
                BudgetError::Storage(error) => error.into(),
                BudgetError::UsedUp(again_unix_s) => Failure {
                    not_before_unix_s: again_unix_s,
                    ..Failure::new("as many orders were sent as `orders` permits")
                },
            })?;
    }
    let ordering = Ordering {
        account,
        directory: authority.url(),
        options,
        challenges: &shared.challenges,
        storage: &*shared.storage,
    };
    let pem = ordering.obtain(record).await?;
    tls::parse(&pem).map_err(|why| Failure::new(format!("the certificate can't be used: {why}")))
}
