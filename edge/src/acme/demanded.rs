//! The certificates for which handshakes ask: how they come, and how they are forgotten.

use std::collections::BTreeMap;

use super::http_client::DirectoryClient;
use super::on_demand::{self, Denied};
use super::options::{OnDemand, Options};
use super::record::Record;
use super::shared::{Entry, Shared};
use crate::tls::Allowed;

impl Shared {
    /// Adds the names that handshakes have asked for, and decides those for which no attempt is to be made now.
    pub fn add_demanded(&self) {
        let now_unix_s = self.clock.unix_s();
        let Some(wanted) = self.wanted.borrow().clone() else {
            return;
        };
        let mut entries = self.entries.lock();
        for name in self.managed.demands.waiting() {
            let id = Record::id(std::slice::from_ref(&name));
            if !entries.contains_key(&id) {
                match self.demanded(&name, &wanted.options, &mut entries) {
                    Some(entry) => drop(entries.insert(id.clone(), entry)),
                    None => self.managed.demands.refuse(&name),
                }
            }
            let Some(entry) = entries.get_mut(&id) else {
                continue;
            };
            entry.state.is_demanded = true;
            let is_waiting = entry.state.next_unix_s > now_unix_s && !entry.state.is_busy;
            if entry.certificate.is_some() || is_waiting {
                entry.state.is_demanded = false;
                self.managed.demands.decide(&name);
            }
        }
    }

    /// Returns the entry of a name for which a handshake asks for the first time: with a stored certificate, or with an
    /// earlier failure that still forbids an attempt. Returns `None` if there is no room, or the storage failed.
    fn demanded(
        &self,
        name: &str,
        options: &Options,
        entries: &mut BTreeMap<String, Entry>,
    ) -> Option<Entry> {
        let on_demand = entries.values().filter(|entry| entry.state.is_on_demand);
        if on_demand.count() >= on_demand::CERTIFICATES_MAX {
            // The oldest one without a certificate makes room.
            let left = entries.iter().filter(|(_, entry)| entry.is_left());
            let oldest = left.min_by_key(|(_, entry)| entry.state.last_attempt_unix_s);
            let oldest = oldest.map(|(id, _)| id.clone())?;
            let record = Record {
                names: entries.remove(&oldest)?.state.names,
                ..Record::default()
            };
            record.remove(&*self.storage).ok()?;
        }
        let record = Record {
            on_demand: true,
            ..Record::read(&*self.storage, &[name.to_owned()]).ok()?
        };
        let entry = self.load(&record, options).ok()?;
        if let Some(certificate) = &entry.certificate {
            self.managed.put(&record.names, certificate);
        }
        Some(entry)
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
    /// name that may have none, since clients decide about the number of such names. The renewal of a certificate is tried
    /// again on the next day, or soon if there was no answer.
    pub async fn permits(&self, options: &OnDemand, id: &str, names: &[String]) -> bool {
        let client = DirectoryClient::new(self.client.clone(), self.clock.clone());
        let allowed = Allowed::new(options.allow.as_deref());
        for name in names {
            let permitted = match allowed.has(name) {
                true => on_demand::permit(options, &client, name).await,
                false => Err(Denied::by_list(name)),
            };
            let Err(denied) = permitted else {
                continue;
            };
            tracing::warn!(name, cause = denied.cause, "a certificate is not permitted");
            let again_unix_s = self.clock.unix_s() + denied.again_after_s;
            let mut entries = self.entries.lock();
            if let Some(entry) = entries.get_mut(id) {
                entry.state.next_unix_s = again_unix_s;
                entry.state.is_demanded = false;
                if entry.state.is_on_demand && entry.certificate.is_none() {
                    entries.remove(id);
                }
            }
            drop(entries);
            self.managed.demands.refuse(name);
            return false;
        }
        true
    }

    /// Forgets names for which handshakes asked and that have had no valid certificate for a week.
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
}
