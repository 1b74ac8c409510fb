//! Revocation of a certificate (RFC 8555 7.6), after which it is not used any more and a new one is obtained.

use instant_acme::{RevocationReason, RevocationRequest};
use tokio::sync::oneshot;

use super::authority::Authority;
use super::failure::{self, Failure};
use super::record::{self, Record};
use super::storage::Storage;
use crate::tls::{self, Managed};

/// The reason of a revocation (RFC 5280 5.3.1). The other reasons are those of authorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// No reason is given.
    #[default]
    Unspecified,
    /// Somebody else may have the private key.
    KeyCompromise,
    /// Another certificate replaces it.
    Superseded,
    /// The names are not in use any more.
    CessationOfOperation,
}

impl Reason {
    /// All reasons.
    pub const ALL: &[Reason] = &[
        Reason::Unspecified,
        Reason::KeyCompromise,
        Reason::Superseded,
        Reason::CessationOfOperation,
    ];

    /// Returns the name in the standard.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Unspecified => "unspecified",
            Reason::KeyCompromise => "keyCompromise",
            Reason::Superseded => "superseded",
            Reason::CessationOfOperation => "cessationOfOperation",
        }
    }

    /// Returns the reason with this name, in upper or lower case.
    pub fn named(name: &str) -> Option<Reason> {
        let mut all = Self::ALL.iter().copied();
        all.find(|reason| reason.name().eq_ignore_ascii_case(name))
    }

    fn code(self) -> RevocationReason {
        match self {
            Reason::Unspecified => RevocationReason::Unspecified,
            Reason::KeyCompromise => RevocationReason::KeyCompromise,
            Reason::Superseded => RevocationReason::Superseded,
            Reason::CessationOfOperation => RevocationReason::CessationOfOperation,
        }
    }
}

/// The order to revoke a certificate.
pub(super) struct Revocation {
    /// The names of the certificate, whose state is busy until the end.
    pub(super) names: Vec<String>,
    /// The reason that the authority is given.
    pub(super) reason: Reason,
    /// Receives the result.
    pub(super) done: oneshot::Sender<Result<(), String>>,
}

impl Revocation {
    /// Has the certificate revoked by its authority, and stops using it. Returns the record without the certificate.
    ///
    /// # Errors
    ///
    /// The authority can't be reached or refuses, or the storage can't be read. The certificate stays in use.
    pub(super) async fn carry_out(
        &self,
        authorities: &[Authority],
        storage: &dyn Storage,
        managed: &Managed,
    ) -> Result<Record, Failure> {
        let mut record = Record::read(storage, &self.names)?;
        let none = || Failure::new("there is no certificate");
        let text = record::read_pem(storage, &self.names)?.ok_or_else(none)?;
        let certificate = tls::parse(&text).map_err(Failure::new)?;
        let leaf = certificate.key.cert.first().ok_or_else(none)?;
        let url = record.issued_by.clone().unwrap_or_default();
        let authority = authorities.iter().find(|one| one.url() == url);
        let authority = authority.ok_or_else(|| {
            Failure::new(format!(
                "the directory of its authority, {url:?}, is not configured any more"
            ))
        })?;
        let request = RevocationRequest {
            certificate: leaf,
            reason: Some(self.reason.code()),
        };
        match authority.account().await?.revoke(&request).await {
            Err(error) if !failure::is_problem(&error, "alreadyRevoked") => {
                return Err(error.into());
            }
            _ => {}
        }
        for name in &self.names {
            managed.remove(name);
        }
        record.issued_by = None;
        // The key of an order in progress may be known to others, too.
        record.order = None;
        record.not_before_unix_s = 0;
        record.window = None;
        record.window_asked_from_unix_s = 0;
        let forgotten = record::remove_pem(storage, &self.names);
        if let Err(error) = forgotten.and_then(|()| record.write(storage)) {
            tracing::error!(%error, names = self.names.join(", "), "a revoked certificate can't be removed from the storage");
        }
        Ok(record)
    }

    /// Reports the result to the log and to the operator.
    pub(super) fn end(self, failure: Option<Failure>) {
        let names = self.names.join(", ");
        match &failure {
            None => tracing::warn!(
                target: "sluice::event::certificate::revoked",
                names,
                reason = self.reason.name(),
                "a certificate was revoked, and a new one is obtained"
            ),
            Some(failure) => tracing::error!(
                target: "sluice::event::certificate::revocation-failed",
                names,
                cause = failure.message,
                "a certificate could not be revoked, and stays in use"
            ),
        }
        // The operator may have stopped waiting.
        let _ = self.done.send(match failure {
            None => Ok(()),
            Some(failure) => Err(failure.message),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_the_names_and_codes_of_the_standard() {
        for (name, code) in [
            ("unspecified", 0),
            ("keyCompromise", 1),
            ("superseded", 4),
            ("cessationOfOperation", 5),
        ] {
            let reason = Reason::named(name).expect("a reason");
            assert_eq!(reason.name(), name);
            assert_eq!(reason.code() as u8, code);
        }
        assert_eq!(Reason::named("keycompromise"), Some(Reason::KeyCompromise));
        assert_eq!(Reason::named("certificateHold"), None);
    }
}
