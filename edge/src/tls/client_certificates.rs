//! The certificates of clients: their verification, and the facts that logs and origins get.

use std::fmt::Write as _;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::{Digest, Sha256};
use x509_parser::asn1_rs::{Any, Oid, Tag};
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

use super::loading::{self, LoadError};
use super::options::ClientCertificates;

/// Longest subject that is kept, in bytes. A longer one counts as none, since its beginning may be that of another one.
const SUBJECT_BYTES_MAX: usize = 512;

/// The facts about the valid certificate of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject in the form of RFC 4514, as in `CN=alice,O=Example`. Empty if it is too long or has other values than
    /// text.
    pub subject: Box<str>,
    /// SHA-256 of the certificate in DER, in lower-case hexadecimal.
    pub fingerprint: Box<str>,
}

impl ClientCertificate {
    /// Returns the facts about a certificate that was verified.
    pub fn of(certificate: &CertificateDer<'_>) -> ClientCertificate {
        let parsed = X509Certificate::from_der(certificate).ok();
        let subject = parsed.and_then(|(_, parsed)| subject(parsed.subject()));
        let hash = Sha256::digest(certificate);
        let digits = hash.iter().map(|byte| format!("{byte:02x}"));
        ClientCertificate {
            subject: subject.unwrap_or_default().into(),
            fingerprint: digits.collect::<String>().into(),
        }
    }
}

/// Returns a name in the form of RFC 4514, which is different for different names.
fn subject(name: &X509Name<'_>) -> Option<String> {
    let mut text = String::new();
    let parts: Vec<_> = name.iter().collect();
    // The order is reversed (RFC 4514 2.1).
    for part in parts.iter().rev() {
        let mut separator = if text.is_empty() { "" } else { "," };
        for attribute in part.iter() {
            text += separator;
            text += &type_name(attribute.attr_type());
            text.push('=');
            escape(value(attribute.attr_value())?, &mut text);
            separator = "+";
        }
    }
    (text.len() <= SUBJECT_BYTES_MAX).then_some(text)
}

fn type_name(oid: &Oid<'_>) -> String {
    match oid2abbrev(oid, oid_registry()) {
        Ok(name) => name.to_owned(),
        Err(_) => oid.to_id_string(),
    }
}

/// Returns the text of an attribute. `None`: the value is no text, or in an encoding other than UTF-8.
fn value<'a>(value: &Any<'a>) -> Option<&'a str> {
    let text = std::str::from_utf8(value.data).ok()?;
    match value.tag() {
        Tag::Utf8String => Some(text),
        Tag::PrintableString
        | Tag::Ia5String
        | Tag::NumericString
        | Tag::VisibleString
        | Tag::T61String => text.is_ascii().then_some(text),
        _ => None,
    }
}

/// Appends a value with escapes (RFC 4514 2.4). Control characters are escaped, too.
fn escape(value: &str, text: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (at, c) in value.chars().enumerate() {
        match c {
            '"' | '+' | ',' | ';' | '<' | '>' | '=' | '\\' => text.extend(['\\', c]),
            '#' if at == 0 => text.push_str("\\#"),
            ' ' if at == 0 || at == last => text.push_str("\\ "),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(text, "\\{byte:02X}");
                }
            }
            c => text.push(c),
        }
    }
}

/// The verifier of clients' certificates, with a hash of all that decides which ones are valid.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    pub(super) hash: [u8; 32],
}

/// Checks the file of the authorities that sign clients' certificates.
///
/// # Errors
///
/// The file can't be read, or its certificates can't be used.
pub fn check_authorities(options: &ClientCertificates) -> Result<(), LoadError> {
    load(options, &Arc::new(loading::provider())).map(|_| ())
}

/// Loads the authorities that sign clients' certificates.
pub(super) fn load(
    options: &ClientCertificates,
    provider: &Arc<CryptoProvider>,
) -> Result<Clients, LoadError> {
    const HELP: &str =
        "name the certificates of the authorities that sign your clients' certificates";
    let mut roots = RootCertStore::empty();
    let mut hash = Sha256::new();
    for authority in loading::authorities(&options.authorities, HELP, &mut roots)? {
        hash.update(&authority);
    }
    hash.update([u8::from(options.required)]);
    let mut builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    if !options.required {
        builder = builder.allow_unauthenticated();
    }
    let verifier = builder.build().map_err(|why| {
        let problem = format!("its authorities can't be used: {why}");
        loading::error(&options.authorities, &problem, HELP)
    })?;
    Ok(Clients {
        verifier,
        hash: hash.finalize().into(),
    })
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject;
    use sluice_lab::certificates::Authority;

    use super::*;

    fn subject_of(name: &str) -> String {
        let pair = Authority::new("Clients").client(name);
        let der = CertificateDer::from_pem_slice(pair.certificate.as_bytes());
        ClientCertificate::of(&der.expect("a certificate"))
            .subject
            .into()
    }

    #[test]
    fn no_name_can_look_like_another_one() {
        for (name, expected) in [
            ("alice", "CN=alice"),
            ("bob,OU=Admins", "CN=bob\\,OU\\=Admins"),
            ("bob + OU=Admins", "CN=bob \\+ OU\\=Admins"),
            ("#1", "CN=\\#1"),
            (" a b ", "CN=\\ a b\\ "),
            ("a\\,b", "CN=a\\\\\\,b"),
            ("a\r\nb\u{85}", "CN=a\\0D\\0Ab\\C2\\85"),
            ("Zoë", "CN=Zoë"),
        ] {
            assert_eq!(subject_of(name), expected);
        }
    }

    #[test]
    fn a_subject_that_is_too_long_counts_as_none() {
        let longest = "a".repeat(SUBJECT_BYTES_MAX - 3);
        assert_eq!(subject_of(&longest).len(), SUBJECT_BYTES_MAX);
        assert_eq!(subject_of(&(longest + "a")), "");
    }
}
