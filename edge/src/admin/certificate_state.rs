//! The state of certificates, and the operator's orders about those from authorities.

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::telemetry::{CertificateNumbers, CertificateTotals};

/// Most certificates in the status and the metrics.
const LISTED_MAX: usize = 1000;

/// The state of all certificates.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Certificates {
    /// The time to which the other times relate, as Unix time in seconds.
    pub now_unix_s: i64,
    /// Numbers of certificates.
    #[serde(flatten)]
    pub totals: CertificateTotals,
    /// The certificates: those with warnings first, then those that expire first.
    pub list: Vec<CertificateState>,
}

impl Certificates {
    /// Puts the certificates into their order, and counts them.
    pub fn new(mut list: Vec<CertificateState>, now_unix_s: i64) -> Certificates {
        list.sort_by_cached_key(|one| {
            let has_no_warning = one.warning.is_none();
            (has_no_warning, one.not_after_unix_s, one.names.clone())
        });
        let count = |is_one: fn(&CertificateState) -> bool| {
            list.iter().filter(|one| is_one(one)).count() as u64
        };
        let totals = CertificateTotals {
            configured: list.len() as u64,
            in_use: count(|one| one.in_use),
            warned: count(|one| one.warning.is_some()),
            failing: count(|one| one.failures > 0),
        };
        Certificates {
            now_unix_s,
            totals,
            list,
        }
    }

    /// Leaves out certificates that the status and the metrics have no room for.
    pub fn shortened(mut self) -> Certificates {
        self.list.truncate(LISTED_MAX);
        self
    }
}

/// The source of a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CertificateSource {
    /// A file that the configuration names.
    #[default]
    File,
    /// An authority, by ACME.
    Acme,
    /// Sluice's own authority.
    Internal,
}

/// The state of one certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CertificateState {
    /// The names for which the certificate is valid, or for which one is wanted.
    pub names: Vec<String>,
    /// The source of the certificate.
    pub source: CertificateSource,
    /// Path of the certificate's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Whether the certificate is in use. Otherwise it is still to be obtained.
    pub in_use: bool,
    /// Name of the issuer.
    pub issuer: Option<String>,
    /// Begin of the validity, as Unix time in seconds.
    pub not_before_unix_s: Option<i64>,
    /// End of the validity, as Unix time in seconds.
    pub not_after_unix_s: Option<i64>,
    /// Seconds until the end of the validity, negative after it.
    pub left_s: Option<i64>,
    /// Time of the renewal, or of the next attempt after a failure, as Unix time in seconds. `None` for files.
    pub renewal_unix_s: Option<i64>,
    /// Time of the last attempt to obtain the certificate, as Unix time in seconds.
    pub last_attempt_unix_s: Option<i64>,
    /// Number of failed attempts since the last success.
    pub failures: u32,
    /// The error of the last attempt, if it failed. May contain text of the authority.
    pub last_error: Option<String>,
    /// Whether an attempt is in progress.
    pub in_progress: bool,
    /// The problem with the certificate, if it has one.
    pub warning: Option<String>,
}

impl CertificateState {
    /// Returns the values of the labels of the certificate's metrics: the source, and the file or the names.
    pub(super) fn labels(&self) -> [String; 2] {
        let source = match self.source {
            CertificateSource::File => "file",
            CertificateSource::Acme => "acme",
            CertificateSource::Internal => "internal",
        };
        let name = self.file.clone().unwrap_or_else(|| self.names.join(","));
        [source.to_owned(), name]
    }

    /// Returns the numbers of the certificate.
    pub(super) fn numbers(&self) -> CertificateNumbers {
        let time = |unix_s: Option<i64>| unix_s.and_then(|s| u64::try_from(s).ok()).unwrap_or(0);
        CertificateNumbers {
            not_after_seconds: time(self.not_after_unix_s),
            in_use: u64::from(self.in_use),
            failures: u64::from(self.failures),
            renewal_seconds: time(self.renewal_unix_s),
        }
    }
}

/// Query of `POST /certificates`: an order about a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateOrder {
    /// One of the names of the certificate.
    pub name: String,
    /// The order.
    pub order: CertificateAction,
    /// The reason of a revocation, as RFC 5280 names it.
    pub reason: Option<String>,
}

impl CertificateOrder {
    /// Describes the order for the log.
    pub(super) fn describe(&self) -> String {
        let action = match self.order {
            CertificateAction::Renew => "renew",
            CertificateAction::Revoke => "revoke",
        };
        match &self.reason {
            None => format!("{action} {}", self.name),
            Some(reason) => format!("{action} {}, {reason}", self.name),
        }
    }
}

/// An order about a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CertificateAction {
    /// A new certificate is obtained now.
    Renew,
    /// The certificate is revoked, and a new one is obtained.
    Revoke,
}

/// An order that is being carried out.
pub struct Ordered {
    /// Text for the operator.
    pub text: String,
    /// The result, if the order has one to wait for.
    pub result: Option<oneshot::Receiver<Result<(), String>>>,
}
