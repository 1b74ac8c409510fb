//! The time in which an authority wants a certificate to be renewed (ARI, RFC 9773).

use instant_acme::{CertificateIdentifier, Error};

use super::authority::Authority;
use super::failure::Failure;
use super::record::Record;
use super::schedule::{self, Window};
use crate::tls::Certificate;

/// Returns the id by which an authority knows a certificate (RFC 9773 4.1); `None` if the certificate lacks what it is made
/// of.
pub fn id(certificate: &Certificate) -> Option<CertificateIdentifier<'static>> {
    let leaf = certificate.key.cert.first()?;
    let id = CertificateIdentifier::try_from(leaf).ok()?;
    Some(id.into_owned())
}

/// Asks the authority that has issued a certificate for the time of its renewal, and notes it in the record.
///
/// # Errors
///
/// The authority gave no answer. The record says when to ask again.
pub async fn ask(
    authorities: &[Authority],
    certificate: &Certificate,
    record: &mut Record,
    now_unix_s: i64,
) -> Result<(), Failure> {
    let issuer = record.issued_by.as_deref();
    let issuer = authorities.iter().find(|one| Some(one.url()) == issuer);
    record.window_asked_from_unix_s = now_unix_s + schedule::window_wait_s(None);
    let (Some(issuer), Some(id)) = (issuer, id(certificate)) else {
        // The directory is not configured any more, or the certificate is not one for this.
        record.window = None;
        return Ok(());
    };
    match issuer.account().await?.renewal_info(&id).await {
        Ok((info, wait)) => {
            let window = info.suggested_window;
            record.window = Some(Window {
                start_unix_s: window.start.unix_timestamp(),
                end_unix_s: window.end.unix_timestamp(),
            });
            let wait_s = schedule::window_wait_s(Some(wait.as_secs()));
            record.window_asked_from_unix_s = now_unix_s + wait_s;
            Ok(())
        }
        Err(Error::Unsupported(_)) => {
            record.window = None;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
