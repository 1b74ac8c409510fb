//! The stored state of a certificate: its names, the order in progress, and the last attempts.

use std::io::{self, ErrorKind};

use serde::{Deserialize, Serialize};

use super::schedule::Window;
use super::storage::Storage;

/// Folder of the records and certificates in the storage.
pub const FOLDER: &str = "certificates";
/// Ends of the names of a record and of a certificate with its key.
const RECORD: &str = ".json";
const PEM: &str = ".pem";
/// Longest part of an id that is taken from a name, in bytes. The names of files may have 255.
const ID_BYTES_MAX: usize = 200;
/// Longest error text that is stored, in bytes.
const ERROR_BYTES_MAX: usize = 1000;

/// The record of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The names of the certificate.
    pub names: Vec<String>,
    /// URL of the directory whose authority has issued the certificate.
    pub issued_by: Option<String>,
    /// The time at which the certificate was obtained, as Unix time in seconds.
    pub obtained_unix_s: i64,
    /// Whether it was a handshake that asked for the certificate, and not the configuration.
    pub on_demand: bool,
    /// The order that is in progress.
    pub order: Option<PendingOrder>,
    /// Number of failures since the last success.
    pub failures: u32,
    /// Time of the last attempt, as Unix time in seconds.
    pub last_attempt_unix_s: Option<i64>,
    /// The error of the last attempt, if it failed.
    pub last_error: Option<String>,
    /// The settings of the last attempt, if it failed, as `Options::settings` names them.
    pub failed_with: Option<String>,
    /// The time before which no attempt is made, as Unix time in seconds.
    pub not_before_unix_s: i64,
    /// The time in which the authority wants the certificate to be renewed.
    pub window: Option<Window>,
    /// The time from which the authority is asked for this time again, as Unix time in seconds.
    pub window_asked_from_unix_s: i64,
}

/// An order in progress (RFC 8555 7.1.3). A restart continues it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingOrder {
    /// URL of the directory.
    pub directory: String,
    /// URL of the order.
    pub url: String,
    /// The private key of the certificate in PEM, from before the certificate is requested.
    pub key: Option<String>,
}

impl Record {
    /// Returns the id of the certificate for these names: that of its files.
    pub fn id(names: &[String]) -> String {
        let first = names.first().map_or("", String::as_str);
        let first = first.replace("*.", "wildcard_.");
        match names {
            [_] if first.len() <= ID_BYTES_MAX => first,
            _ => {
                let hash = blake3::hash(names.join("\n").as_bytes()).to_hex();
                let end = first.floor_char_boundary(ID_BYTES_MAX);
                format!("{}_{}", &first[..end], &hash[..16])
            }
        }
    }

    /// Reads the record of a certificate. One that is missing or damaged is an empty one.
    ///
    /// # Errors
    ///
    /// The storage failed.
    pub fn read(storage: &dyn Storage, names: &[String]) -> io::Result<Record> {
        let record = Record::read_id(storage, &Record::id(names))?;
        Ok(Record {
            names: names.to_vec(),
            ..record
        })
    }

    fn read_id(storage: &dyn Storage, id: &str) -> io::Result<Record> {
        let text = read_usable(storage, &format!("{FOLDER}/{id}{RECORD}"))?;
        let record = text.and_then(|text| serde_json::from_str(&text).ok());
        Ok(record.unwrap_or_default())
    }

    /// Returns the stored records of certificates that handshakes have asked for, at most `most`.
    ///
    /// # Errors
    ///
    /// The storage failed.
    pub fn on_demand(storage: &dyn Storage, most: usize) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        for file in storage.list(FOLDER)? {
            let Some(id) = file.strip_suffix(RECORD) else {
                continue;
            };
            let record = Record::read_id(storage, id)?;
            // A record in a file of another name is not ours.
            if record.on_demand && Record::id(&record.names) == id && records.len() < most {
                records.push(record);
            }
        }
        Ok(records)
    }

    /// Removes the record and its certificate.
    ///
    /// # Errors
    ///
    /// The storage failed.
    pub fn remove(&self, storage: &dyn Storage) -> io::Result<()> {
        let id = Record::id(&self.names);
        storage.remove(&format!("{FOLDER}/{id}{PEM}"))?;
        storage.remove(&format!("{FOLDER}/{id}{RECORD}"))
    }

    /// Stores the record.
    ///
    /// # Errors
    ///
    /// The storage failed.
    pub fn write(&self, storage: &dyn Storage) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        storage.write(
            &format!("{FOLDER}/{}{RECORD}", Record::id(&self.names)),
            &text,
        )
    }

    /// Notes a failure with these settings, after which no attempt is made until `not_before_unix_s`.
    pub fn fail(&mut self, error: &str, settings: &str, not_before_unix_s: i64) {
        self.failures = self.failures.saturating_add(1);
        self.failed_with = Some(settings.to_owned());
        let end = error.floor_char_boundary(ERROR_BYTES_MAX);
        self.last_error = Some(error[..end].to_owned());
        self.not_before_unix_s = not_before_unix_s;
    }
}

/// Returns the stored certificate and key of these names, in PEM.
///
/// # Errors
///
/// The storage failed.
pub fn read_pem(storage: &dyn Storage, names: &[String]) -> io::Result<Option<String>> {
    read_usable(storage, &format!("{FOLDER}/{}{PEM}", Record::id(names)))
}

/// Returns the texts of at most `most` stored certificates.
///
/// # Errors
///
/// The storage failed.
pub fn all_pem(storage: &dyn Storage, most: usize) -> io::Result<Vec<String>> {
    let files = storage.list(FOLDER)?.into_iter();
    let files = files.filter(|file| file.ends_with(PEM)).take(most);
    let texts = files.map(|file| read_usable(storage, &format!("{FOLDER}/{file}")));
    texts.filter_map(Result::transpose).collect()
}

/// Returns a text. One that can't be read is missing, unless the permission is: one damaged file keeps nobody from starting.
fn read_usable(storage: &dyn Storage, name: &str) -> io::Result<Option<String>> {
    match storage.read(name) {
        Err(error) if error.kind() != ErrorKind::PermissionDenied => {
            tracing::error!(%error, name, "a file of certificates that can't be read is ignored");
            Ok(None)
        }
        read => read,
    }
}

/// Stores a certificate and its key in one text, so that they always belong together.
///
/// # Errors
///
/// The storage failed.
pub fn write_pem(
    storage: &dyn Storage,
    names: &[String],
    key: &str,
    chain: &str,
) -> io::Result<()> {
    let text = format!("{}\n{}\n", key.trim_end(), chain.trim_end());
    storage.write(&format!("{FOLDER}/{}{PEM}", Record::id(names)), &text)
}

/// Removes the stored certificate and key of these names.
///
/// # Errors
///
/// The storage failed.
pub fn remove_pem(storage: &dyn Storage, names: &[String]) -> io::Result<()> {
    storage.remove(&format!("{FOLDER}/{}{PEM}", Record::id(names)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acme::storage;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn each_list_of_names_has_its_own_files() {
        assert_eq!(Record::id(&names(&["a.example"])), "a.example");
        assert_eq!(Record::id(&names(&["*.a.example"])), "wildcard_.a.example");
        let two = Record::id(&names(&["a.example", "b.example"]));
        assert!(two.starts_with("a.example_"), "{two}");
        assert_ne!(two, Record::id(&names(&["a.example", "c.example"])));
        let long = "a".repeat(253);
        let ids = [long.clone(), format!("{}b", &long[1..])].map(|name| Record::id(&[name]));
        assert!(ids[0] != ids[1] && ids.iter().all(|id| id.len() < 230));
    }

    #[test]
    fn a_record_outlives_a_restart_and_a_damaged_one_is_empty() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let storage = storage::in_folder(folder.path())?;
        let names = names(&["a.example"]);
        let mut record = Record::read(&*storage, &names)?;
        assert_eq!((record.failures, &record.names), (0, &names));
        record.order = Some(PendingOrder {
            url: "https://ca.example/order/1".to_owned(),
            ..PendingOrder::default()
        });
        record.fail(&"é".repeat(ERROR_BYTES_MAX), "", 7);
        record.write(&*storage)?;
        assert_eq!(Record::read(&*storage, &names)?, record);
        storage.write("certificates/a.example.json", "{")?;
        assert_eq!(Record::read(&*storage, &names)?.failures, 0);
        Ok(())
    }
}
