//! The certificates and their states, which the manager's thread and its users share.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::sync::watch;

use super::challenges::Challenges;
use super::http_client::DirectoryClient;
use super::on_demand;
use super::options::{OnDemand, Options};
use super::record::{self, Record};
use super::revocation::Revocation;
use super::state::{State, state_of};
use super::storage::Storage;
use crate::sys::Clock;
use crate::tls::{self, Certificate, Managed};

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
    certificate: Option<Certificate>,
}

/// A task that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// To obtain the certificate.
    Obtain,
    /// To ask the authority when the certificate is to be renewed.
    AskWindow,
}

impl Shared {
    /// Uses the stored certificates of names that were not wanted before, and forgets those that are not wanted now.
    ///
    /// # Errors
    ///
    /// The storage failed.
    pub fn take_up(&self, wanted: &Wanted) -> io::Result<()> {
        let ids: BTreeSet<String> = wanted
            .certificates
            .iter()
            .map(|names| Record::id(names))
            .collect();
        let allow = wanted.options.on_demand.allow.as_deref();
        self.managed.demands.allow(allow);
        let on_demand = match wanted.has_on_demand {
            true => Record::on_demand(&*self.storage, on_demand::CERTIFICATES_MAX)?,
            false => Vec::new(),
        };
        let mut entries = self.entries.lock();
        entries.retain(|id, entry| {
            let is_wanted = ids.contains(id) || (entry.state.is_on_demand && wanted.has_on_demand);
            if !is_wanted {
                self.stop_using(entry);
            }
            is_wanted
        });
        for names in &wanted.certificates {
            let id = Record::id(names);
            match entries.get_mut(&id) {
                Some(entry) => entry.state.is_on_demand = false,
                None => {
                    let record = Record {
                        on_demand: false,
                        ..Record::read(&*self.storage, names)?
                    };
                    entries.insert(id, self.load(&record)?);
                }
            }
        }
        for record in on_demand {
            if let btree_map::Entry::Vacant(vacant) = entries.entry(Record::id(&record.names)) {
                vacant.insert(self.load(&record)?);
            }
        }
        Ok(())
    }

    /// Begins to use the stored certificate of a record.
    fn load(&self, record: &Record) -> io::Result<Entry> {
        let stored = record::read_pem(&*self.storage, &record.names)?;
        let certificate = stored.and_then(|text| match tls::parse(&text) {
            Ok(certificate) => Some(certificate),
            Err(problem) => {
                let certificate = Record::id(&record.names);
                tracing::error!(certificate, problem, "a stored certificate can't be used");
                None
            }
        });
        if let Some(certificate) = &certificate {
            self.managed.put(&record.names, certificate);
        }
        Ok(Entry {
            state: state_of(record, certificate.as_ref(), self.clock.unix_s()),
            certificate,
        })
    }

    fn stop_using(&self, entry: &Entry) {
        entry
            .state
            .names
            .iter()
            .for_each(|name| self.managed.remove(name));
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
        if let Some(certificate) = &certificate {
            self.managed.put(&record.names, certificate);
        }
        let state = state_of(record, certificate.as_ref(), now_unix_s);
        entry.state = State {
            is_busy: entry.state.is_busy,
            is_on_demand: entry.state.is_on_demand,
            ..state
        };
        entry.certificate = certificate;
    }

    /// Adds the names that handshakes have asked for, and decides those for which no attempt is to be made now.
    pub fn add_demanded(&self) {
        let now_unix_s = self.clock.unix_s();
        let mut entries = self.entries.lock();
        let mut on_demand = entries
            .values()
            .filter(|entry| entry.state.is_on_demand)
            .count();
        for name in self.managed.demands.waiting() {
            let names = vec![name];
            let id = Record::id(&names);
            if let Some(entry) = entries.get_mut(&id) {
                entry.state.is_demanded = true;
                let is_waiting = entry.state.next_unix_s > now_unix_s && !entry.state.is_busy;
                if entry.certificate.is_some() || is_waiting {
                    self.managed.demands.decide(&names[0]);
                }
                continue;
            }
            if on_demand >= on_demand::CERTIFICATES_MAX {
                self.managed.demands.refuse(&names[0]);
                continue;
            }
            // An earlier failure, from before a restart, may still forbid an attempt.
            let record = Record::read(&*self.storage, &names).unwrap_or_default();
            let record = Record {
                names,
                on_demand: true,
                ..record
            };
            on_demand += 1;
            let mut state = state_of(&record, None, now_unix_s);
            state.is_demanded = true;
            let entry = Entry {
                state,
                certificate: None,
            };
            entries.insert(id, entry);
        }
    }

    /// Ends the waits of handshakes for these names.
    pub fn decide(&self, record: &Record) {
        self.note(&Record::id(&record.names), |state| {
            state.is_demanded = false
        });
        for name in &record.names {
            self.managed.demands.decide(name);
        }
    }

    /// Asks whether the certificate with this id, for which a handshake asked, may be obtained. Nothing is stored about a
    /// name that may have none, since clients decide about the number of such names; the renewal of a certificate is tried
    /// again on the next day.
    pub async fn permits(&self, options: &OnDemand, id: &str, names: &[String]) -> bool {
        let client = DirectoryClient::new(self.client.clone(), self.clock.clone());
        for name in names {
            let permitted = on_demand::permit(options, &client, name).await;
            let Err(failure) = permitted else {
                continue;
            };
            tracing::warn!(
                name,
                cause = failure.message,
                "a certificate is not permitted"
            );
            let again_unix_s = self.clock.unix_s() + on_demand::ASK_AGAIN_AFTER_S;
            let mut entries = self.entries.lock();
            match entries.get_mut(id) {
                Some(entry) if entry.certificate.is_some() => {
                    entry.state.next_unix_s = again_unix_s;
                    entry.state.is_demanded = false;
                }
                _ => drop(entries.remove(id)),
            }
            drop(entries);
            self.managed.demands.refuse(name);
            return false;
        }
        true
    }

    /// Forgets names for which handshakes asked and for which no certificate came, or which nobody uses any more.
    pub fn forget(&self) {
        let now_unix_s = self.clock.unix_s();
        let mut entries = self.entries.lock();
        let old = entries.extract_if(.., |_, entry| {
            on_demand::is_forgotten(&entry.state, now_unix_s)
        });
        let old: Vec<Entry> = old.map(|(_, entry)| entry).collect();
        drop(entries);
        for entry in old {
            self.stop_using(&entry);
            let record = Record {
                names: entry.state.names,
                ..Record::default()
            };
            if let Err(error) = record.remove(&*self.storage) {
                let certificate = Record::id(&record.names);
                tracing::error!(%error, certificate, "an old certificate can't be removed");
            }
        }
    }

    /// Returns the tasks that are due, the most urgent first, and the time of the next one after them. Names of the
    /// configuration that have no certificate come first, then those that handshakes wait for.
    pub fn due(&self, now_unix_s: i64) -> (Vec<(State, Task)>, i64) {
        let entries = self.entries.lock();
        let (mut due, mut later_unix_s) = (Vec::new(), i64::MAX);
        for entry in entries.values().filter(|entry| !entry.state.is_busy) {
            let state = &entry.state;
            let is_left = state.is_on_demand && !state.has_certificate() && !state.is_demanded;
            let obtain_unix_s = if is_left { i64::MAX } else { state.next_unix_s };
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
        (due, later_unix_s)
    }

    /// Returns the number of certificates of the configuration that are there, and of all of them.
    pub fn progress(&self) -> (usize, usize) {
        let entries = self.entries.lock();
        let wanted = entries.values().filter(|entry| !entry.state.is_on_demand);
        let there = wanted.clone().filter(|entry| entry.state.has_certificate());
        (there.count(), wanted.count())
    }
}
