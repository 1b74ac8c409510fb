//! The certificates and authorities that were loaded from files, so that each file is read once.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;

use super::certificate::{Certificate, Facts};
use super::client_certificates::{self, Clients};
use super::loading::{self, LoadError};
use super::options::{CertificateFiles, ClientCertificates};

/// Certificates and authorities by their files.
#[derive(Default)]
pub struct LoadedFiles {
    certificates: BTreeMap<CertificateFiles, Certificate>,
    clients: BTreeMap<ClientCertificates, Clients>,
}

impl LoadedFiles {
    /// Returns the files of all certificates, with the facts about each.
    pub fn certificates(&self) -> impl Iterator<Item = (&CertificateFiles, &Facts)> {
        let all = self.certificates.iter();
        all.map(|(files, one)| (files, &*one.facts))
    }
}

/// Loads certificates and authorities.
#[derive(Default)]
pub struct Loader<'a> {
    /// The earlier contents of files, which stay in use if the current ones can't be used.
    before: Option<&'a LoadedFiles>,
    loaded: LoadedFiles,
    refused: Vec<LoadError>,
    has_changed: bool,
}

/// The result of a `Loader`.
pub struct LoadResult {
    /// The files that were loaded, and the earlier contents of those that could not be loaded.
    pub files: LoadedFiles,
    /// The errors of files whose earlier contents stay in use.
    pub refused: Vec<LoadError>,
    /// Whether the contents of a file differ from the earlier ones.
    pub has_changed: bool,
}

impl<'a> Loader<'a> {
    /// Creates a loader that keeps the earlier contents of files that can't be used now. Without this, such files are
    /// errors.
    pub fn renewing(before: &'a LoadedFiles) -> Loader<'a> {
        Loader {
            before: Some(before),
            ..Loader::default()
        }
    }

    /// Ends the loading.
    pub fn finish(self) -> LoadResult {
        LoadResult {
            files: self.loaded,
            refused: self.refused,
            has_changed: self.has_changed,
        }
    }

    /// Loads certificates with their keys.
    pub(super) fn certificates(
        &mut self,
        files: &[CertificateFiles],
    ) -> Result<Vec<Certificate>, LoadError> {
        files.iter().map(|files| self.certificate(files)).collect()
    }

    fn certificate(&mut self, files: &CertificateFiles) -> Result<Certificate, LoadError> {
        if let Some(known) = self.loaded.certificates.get(files) {
            return Ok(known.clone());
        }
        let earlier = self
            .before
            .and_then(|before| before.certificates.get(files));
        let loaded = match (loading::load(files), earlier) {
            (Ok(new), earlier) => {
                self.has_changed |= earlier.is_none_or(|earlier| earlier.key.cert != new.key.cert);
                new
            }
            (Err(error), Some(earlier)) => {
                self.refused.push(error);
                earlier.clone()
            }
            (Err(error), None) => return Err(error),
        };
        let certificates = &mut self.loaded.certificates;
        certificates.insert(files.clone(), loaded.clone());
        Ok(loaded)
    }

    /// Loads the authorities that sign the certificates of clients.
    pub(super) fn clients(
        &mut self,
        options: &ClientCertificates,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Clients, LoadError> {
        if let Some(known) = self.loaded.clients.get(options) {
            return Ok(known.clone());
        }
        let earlier = self.before.and_then(|before| before.clients.get(options));
        let loaded = match (client_certificates::load(options, provider), earlier) {
            (Ok(new), earlier) => {
                self.has_changed |= earlier.is_none_or(|earlier| earlier.hash != new.hash);
                new
            }
            (Err(error), Some(earlier)) => {
                self.refused.push(error);
                earlier.clone()
            }
            (Err(error), None) => return Err(error),
        };
        self.loaded.clients.insert(options.clone(), loaded.clone());
        Ok(loaded)
    }
}
