//! The certificates and their states, which the manager's thread and its users share.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::sync::watch;

use super::challenges::Challenges;
use super::failure::Failure;
use super::on_demand;
use super::options::Options;
use super::record::{self, Record};
use super::revocation::Revocation;
use super::schedule;
use super::state::{State, state_of};
use super::storage::Storage;
use crate::sys::Clock;
use crate::tls::{self, Allowed, Certificate, Managed};

/// Most stored certificates that are read to find one for a name without its own.
const OTHERS_MAX: usize = 1000;

/// The certificates that a configuration wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// The options of all of them.
    pub options: Options,
    /// The names of each certificate.
    pub certificates: Vec<Vec<String>>,
    /// Whether handshakes may ask for certificates of other names.
    pub has_on_demand: bool,
}

impl Wanted {
    /// Whether no certificate is wanted.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty() && !self.has_on_demand
    }
}

/// The state that the manager's thread and its users share.
pub struct Shared {
    /// The certificates that are wanted; `None`: the thread ends.
    pub wanted: watch::Sender<Option<Arc<Wanted>>>,
    /// The clock.
    pub clock: Clock,
    /// The certificates that handshakes use.
    pub managed: Arc<Managed>,
    /// The answers to challenges.
    pub challenges: Arc<Challenges>,
    /// The place of certificates, keys and records.
    pub storage: Arc<dyn Storage>,
    /// Verifies the certificates of directories.
    pub client: Arc<ClientConfig>,
    /// The certificates by their ids.
    pub entries: Mutex<BTreeMap<String, Entry>>,
    /// The certificates to revoke that the thread has not taken yet.
    pub revocations: Mutex<Vec<Revocation>>,
}

/// One wanted certificate.
pub struct Entry {
    /// Its state.
    pub state: State,
    /// The certificate, if there is one.
    pub(super) certificate: Option<Certificate>,
}

impl Entry {
    /// Whether a handshake asked for the certificate, none came, and no handshake waits for it any more.
    pub(super) fn is_left(&self) -> bool {
        let State {
            is_on_demand,
            is_demanded,
            is_busy,
            ..
        } = self.state;
        is_on_demand && !is_demanded && !is_busy && self.certificate.is_none()
    }
}

/// A task that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// To obtain the certificate.
    Obtain,
    /// To ask the authority when the certificate is to be renewed.
    AskWindow,
}

/// The tasks that are due.
pub struct Due {
    /// The configuration that they belong to.
    pub wanted: Arc<Wanted>,
    /// The certificates and what is to be done, the most urgent first.
    pub tasks: Vec<(State, Task)>,
    /// The time of the next task after them, as Unix time in seconds.
    pub later_unix_s: i64,
}

impl Shared {
    /// Uses the stored certificates of names that were not wanted before, and forgets those that are not wanted now. A
    /// failure changes nothing.
    ///
    /// # Errors
    ///
    /// The storage failed.
    pub fn take_up(&self, wanted: Wanted) -> io::Result<()> {
        let mut entries = self.entries.lock();
        let mut loaded: BTreeMap<String, Entry> = BTreeMap::new();
        for names in &wanted.certificates {
            let id = Record::id(names);
            let record = Record {
                on_demand: false,
                ..Record::read(&*self.storage, names)?
            };
            loaded.insert(id, self.load(&record, &wanted.options)?);
        }
        let on_demand = match wanted.has_on_demand {
            true => Record::on_demand(&*self.storage, on_demand::CERTIFICATES_MAX)?,
            false => Vec::new(),
        };
        let allowed = Allowed::new(wanted.options.on_demand.allow.as_deref());
        for record in on_demand.iter().filter(|record| allowed.all(&record.names)) {
            if let btree_map::Entry::Vacant(vacant) = loaded.entry(Record::id(&record.names)) {
                vacant.insert(self.load(record, &wanted.options)?);
            }
        }
        let stored = self.in_place_of_missing(&loaded)?;
        let is_permitted = |entry: &Entry| {
            let State {
                is_on_demand,
                is_busy,
                ..
            } = entry.state;
            let is_first = is_on_demand && is_busy && entry.certificate.is_none();
            is_first && wanted.has_on_demand && allowed.all(&entry.state.names)
        };
        let before = std::mem::take(&mut *entries);
        let mut unused: BTreeSet<String> = BTreeSet::new();
        for (id, entry) in before {
            match loaded.get_mut(&id) {
                Some(now) => now.state.is_busy = entry.state.is_busy,
                // Nothing is stored about the first attempt yet.
                None if is_permitted(&entry) => drop(loaded.insert(id, entry)),
                None => {
                    unused.extend(entry.state.names.iter().cloned());
                    if entry.state.is_busy {
                        // The task ends first, and removes the entry.
                        let state = State {
                            is_leaving: true,
                            ..entry.state
                        };
                        loaded.insert(id, Entry { state, ..entry });
                    }
                }
            }
        }
        // A name that stays in use has a certificate at every moment.
        for entry in loaded.values().filter(|entry| !entry.state.is_leaving) {
            if let Some(certificate) = &entry.certificate {
                self.managed.put(&entry.state.names, certificate);
                unused.retain(|name| !entry.state.names.contains(name));
            }
        }
        for (name, certificate) in stored {
            unused.remove(&name);
            self.managed.put(&[name], &certificate);
        }
        unused.iter().for_each(|name| self.managed.remove(name));
        *entries = loaded;
        self.managed.demands.allow(allowed);
        self.wanted.send_replace(Some(Arc::new(wanted)));
        Ok(())
    }

    /// Returns the stored certificates for names whose own certificate is missing, such as those from before a change of
    /// the names that share one.
    fn in_place_of_missing(
        &self,
        entries: &BTreeMap<String, Entry>,
    ) -> io::Result<Vec<(String, Certificate)>> {
        let without = entries.values().filter(|entry| entry.certificate.is_none());
        let names: Vec<&String> = without.flat_map(|entry| &entry.state.names).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let now_unix_s = self.clock.unix_s();
        let stored = record::all_pem(&*self.storage, OTHERS_MAX)?;
        let stored = stored.iter().filter_map(|text| tls::parse(text).ok());
        let valid: Vec<Certificate> = stored
            .filter(|one| now_unix_s <= one.facts.not_after_unix_s)
            .collect();
        let covering = names.into_iter().filter_map(|name| {
            let of_name = valid.iter().find(|one| one.facts.covers(name))?;
            Some((name.clone(), of_name.clone()))
        });
        Ok(covering.collect())
    }

    /// Reads the stored certificate of a record.
    pub(super) fn load(&self, record: &Record, options: &Options) -> io::Result<Entry> {
        let stored = record::read_pem(&*self.storage, &record.names)?;
        let certificate = stored.and_then(|text| match tls::parse(&text) {
            Ok(certificate)
                if record
                    .names
                    .iter()
                    .all(|name| certificate.facts.covers(name)) =>
            {
                Some(certificate)
            }
            Ok(certificate) => {
                let names = certificate.facts.names.join(", ");
                let certificate = Record::id(&record.names);
                tracing::error!(
                    certificate,
                    names,
                    "a stored certificate is for other names"
                );
                None
            }
            Err(problem) => {
                let certificate = Record::id(&record.names);
                tracing::error!(target: "sluice::event::certificate::unusable", certificate, problem, "a stored certificate can't be used");
                None
            }
        });
        let now_unix_s = self.clock.unix_s();
        Ok(Entry {
            state: state_of(record, certificate.as_ref(), Some(options), now_unix_s),
            certificate,
        })
    }

    pub(super) fn stop_using(&self, entry: &Entry) {
        for name in &entry.state.names {
            self.managed.remove(name);
        }
    }

    /// Ends the task for a certificate, which may have panicked.
    pub fn end_task(&self, id: &str, panicked: Option<Task>) {
        let now_unix_s = self.clock.unix_s();
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(id) else {
            return;
        };
        let state = &mut entry.state;
        state.is_busy = false;
        match panicked {
            None => {}
            Some(Task::AskWindow) => {
                state.ask_window_unix_s = now_unix_s + schedule::window_wait_s(None);
            }
            Some(Task::Obtain) => {
                state.failures = state.failures.saturating_add(1);
                state.last_attempt_unix_s = Some(now_unix_s);
                state.last_error = Some("Sluice has a fault: see the log".to_owned());
                let spread = schedule::spread(&state.names);
                state.next_unix_s = now_unix_s + schedule::wait_s(state.failures, spread);
            }
        }
        if entry.state.is_leaving {
            entries.remove(id);
        }
    }

    /// Changes the state of a certificate, unless it is not wanted any more.
    pub fn note(&self, id: &str, change: impl FnOnce(&mut State)) {
        if let Some(entry) = self.entries.lock().get_mut(id) {
            change(&mut entry.state);
        }
    }

    /// Returns the certificate in use under this id.
    pub fn certificate(&self, id: &str) -> Option<Certificate> {
        self.entries.lock().get(id)?.certificate.clone()
    }

    /// Uses a certificate and its record from now on, unless it is not wanted any more.
    pub fn take(&self, record: &Record, certificate: Option<Certificate>) {
        let now_unix_s = self.clock.unix_s();
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&Record::id(&record.names)) else {
            return;
        };
        if let (Some(certificate), false) = (&certificate, entry.state.is_leaving) {
            self.managed.put(&record.names, certificate);
        }
        let wanted = self.wanted.borrow().clone();
        let options = wanted.as_ref().map(|wanted| &wanted.options);
        let state = state_of(record, certificate.as_ref(), options, now_unix_s);
        entry.state = State {
            is_busy: entry.state.is_busy,
            is_on_demand: entry.state.is_on_demand,
            is_leaving: entry.state.is_leaving,
            ..state
        };
        entry.certificate = certificate;
    }

    /// Notes that nothing was sent for a certificate, and when that will be possible. A name for which a handshake asked and
    /// that has no certificate is forgotten, since clients decide about the number of such names.
    pub fn postpone(&self, id: &str, record: &Record, failure: &Failure) {
        tracing::warn!(
            target: "sluice::event::certificate::postponed",
            names = record.names.join(", "),
            cause = failure.message,
            "a certificate is not requested yet"
        );
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(id) else {
            return;
        };
        // A moment later, should the time be over already.
        let soonest_unix_s = self.clock.unix_s() + 1;
        entry.state.next_unix_s = failure.not_before_unix_s.max(soonest_unix_s);
        entry.state.last_error = Some(failure.message.clone());
        if entry.state.is_on_demand && entry.certificate.is_none() {
            entries.remove(id);
            record
                .names
                .iter()
                .for_each(|name| self.managed.demands.refuse(name));
        }
    }

    /// Returns the tasks that are due; `None`: the thread is to end. Names of the configuration that have no certificate come
    /// first, then those that handshakes wait for.
    pub fn due(&self, now_unix_s: i64) -> Option<Due> {
        let entries = self.entries.lock();
        let wanted = self.wanted.borrow().clone()?;
        let (mut due, mut later_unix_s) = (Vec::new(), i64::MAX);
        for entry in entries.values().filter(|entry| !entry.state.is_busy) {
            let state = &entry.state;
            let obtain_unix_s = if entry.is_left() {
                i64::MAX
            } else {
                state.next_unix_s
            };
            let ask_unix_s = match state.has_certificate() {
                true => state.ask_window_unix_s,
                false => i64::MAX,
            };
            if obtain_unix_s <= now_unix_s {
                due.push((state.clone(), Task::Obtain));
            } else if ask_unix_s <= now_unix_s {
                due.push((state.clone(), Task::AskWindow));
            } else {
                later_unix_s = later_unix_s.min(obtain_unix_s).min(ask_unix_s);
            }
        }
        due.sort_by_key(|(state, task)| {
            let is_window = *task == Task::AskWindow;
            (
                is_window,
                state.has_certificate(),
                state.is_on_demand,
                state.next_unix_s,
            )
        });
        Some(Due {
            wanted,
            tasks: due,
            later_unix_s,
        })
    }

    /// Returns the number of certificates of the configuration that are there, and of all of them.
    pub fn progress(&self) -> (usize, usize) {
        let entries = self.entries.lock();
        let wanted = entries.values().filter(|entry| !entry.state.is_on_demand);
        let there = wanted.clone().filter(|entry| entry.state.has_certificate());
        (there.count(), wanted.count())
    }
}
