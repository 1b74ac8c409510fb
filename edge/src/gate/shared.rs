//! The state of a route's gate that all workers share.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use super::bucket::BucketRate;
use super::networks::Networks;
use super::options::Options;
use super::signed::{self, KEY_BYTES_MAX, Key, Secret};
use super::table::Table;
use crate::http::Methods;
use crate::sys::disk;

/// A route's gate as all workers share it: options, signing keys, networks, and the table of
/// clients.
pub struct Shared {
    options: Options,
    allow: Option<Networks>,
    deny: Networks,
    purge: Networks,
    keys: Vec<Key>,
    secrets: Vec<Secret>,
    table: Option<Arc<Table>>,
}

impl Shared {
    /// Creates the gate and reads its signing keys from files. If a gate in `others` has the same
    /// limit, the new gate uses that gate's table of clients, so that clients' buckets survive a
    /// reload.
    pub fn open<'a>(
        options: Options,
        mut others: impl Iterator<Item = &'a Arc<Shared>>,
    ) -> io::Result<Shared> {
        let table = options.limit.as_ref().map(|limit| {
            let same = |other: &&Arc<Shared>| {
                let its = other.options.limit.as_ref();
                its.is_some_and(|its| (&its.scope, its.clients) == (&limit.scope, limit.clients))
            };
            let known = others.find(same).and_then(|other| other.table.clone());
            known.unwrap_or_else(|| Arc::new(Table::new(limit.clients)))
        });
        let secrets = options.signed_urls.as_ref().map(secrets).transpose()?;
        let secrets = secrets.unwrap_or_default();
        Ok(Shared {
            allow: options.allow.as_deref().map(Networks::new),
            deny: Networks::new(&options.deny),
            purge: Networks::new(&options.purge_from),
            keys: secrets.iter().filter_map(Key::new).collect(),
            secrets,
            table,
            options,
        })
    }

    /// Returns the configured options of the gate.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether both gates have the same signing keys, including those read from files.
    pub fn has_keys_of(&self, other: &Shared) -> bool {
        self.secrets == other.secrets
    }

    /// Whether a client with this address is admitted.
    #[inline]
    pub(super) fn admits(&self, client: IpAddr) -> bool {
        let allowed = self.allow.as_ref();
        allowed.is_none_or(|allow| allow.contains(client)) && !self.deny.contains(client)
    }

    /// Whether a PURGE from this address skips the gate's checks.
    #[inline]
    pub(super) fn may_purge(&self, client: IpAddr) -> bool {
        self.purge.contains(client)
    }

    #[inline]
    pub(super) fn requests(&self) -> Option<(&Arc<Table>, BucketRate)> {
        let filling = self.options.limit.as_ref()?.requests?;
        Some((self.table.as_ref()?, filling))
    }

    #[inline]
    pub(super) fn bytes(&self) -> Option<(&Arc<Table>, BucketRate)> {
        let filling = self.options.limit.as_ref()?.bytes?;
        Some((self.table.as_ref()?, filling))
    }

    #[inline]
    pub(super) fn allow_methods(&self) -> Option<&Methods> {
        self.options.allow_methods.as_ref()
    }

    #[inline]
    pub(super) fn signed(&self) -> Option<(&signed::Options, &[Key])> {
        Some((self.options.signed_urls.as_ref()?, &self.keys))
    }
}

fn secrets(options: &signed::Options) -> io::Result<Vec<Secret>> {
    let mut secrets = options.keys.clone();
    for path in &options.key_files {
        let secret = disk::read_text(path, KEY_BYTES_MAX as u64 + 2)
            .and_then(|text| Secret::from_file(text.as_bytes()).map_err(io::Error::other))
            .map_err(|error| {
                let what = format!("can't read a key from {}: {error}", path.display());
                io::Error::new(error.kind(), what)
            })?;
        secrets.push(secret);
    }
    Ok(secrets)
}
