//! Loads certificates and private keys from files in PEM.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, RootCertStore};

use super::certificate::{self, Certificate, Facts};
use super::options::CertificateFiles;
use crate::sys::disk;

/// Longest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The reason why a certificate can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The file that is wrong.
    pub file: PathBuf,
    /// Description of the problem, to be read after the name of the file.
    pub problem: String,
    /// Advice on how to solve the problem.
    pub help: &'static str,
    /// Whether this user has no permission to read the file.
    pub is_denied: bool,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.problem)
    }
}

impl std::error::Error for LoadError {}

/// Loads a certificate and its key, and checks that they belong together.
///
/// # Errors
///
/// A file can't be read, has no certificate or key, or the key belongs to another certificate.
pub fn load(files: &CertificateFiles) -> Result<Certificate, LoadError> {
    let chain = chain(&files.certificate)?;
    let facts = Facts::of(&chain).ok_or_else(|| {
        error(
            &files.certificate,
            "a certificate in it is malformed",
            "export the chain again, in PEM",
        )
    })?;
    let key = key(&files.key)?;
    let defect = certificate::defect_of_leaf(&chain);
    let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|why| match why {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => error(
            &files.key,
            &format!(
                "the key does not belong to the certificate in {}",
                files.certificate.display()
            ),
            "name the key with which the certificate was requested; the certificate itself comes first in its file",
        ),
        why => match defect {
            Some((problem, help)) => error(&files.certificate, &problem, help),
            None => error(
                &files.key,
                &format!("the key can't be used: {why}"),
                "use a key of type ECDSA (P-256, P-384), Ed25519 or RSA (2048 bits or more)",
            ),
        },
    })?;
    Ok(Certificate {
        key: Arc::new(key),
        facts: Arc::new(facts),
    })
}

/// Reads a certificate with its chain and its key from a text in PEM.
///
/// # Errors
///
/// The text has no certificate or key, or they do not belong together.
pub fn parse(pem: &str) -> Result<Certificate, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let chain = chain.map_err(|why| pem_problem(&why))?;
    let facts = Facts::of(&chain).filter(|_| !chain.is_empty());
    let facts = facts.ok_or("has no certificate, or a malformed one")?;
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|why| pem_problem(&why))?;
    let key = CertifiedKey::from_der(chain, key, &provider());
    let key = key.map_err(|why| format!("the key can't be used: {why}"))?;
    Ok(Certificate {
        key: Arc::new(key),
        facts: Arc::new(facts),
    })
}

/// Returns the certificates in a file, at least one.
pub(super) fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let text = read(path, CONVERT)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let chain = chain.map_err(|why| {
        error(
            path,
            &pem_problem(&why),
            "export the certificate again, in PEM",
        )
    })?;
    if chain.is_empty() {
        let problem = match text.contains("PRIVATE KEY-----") {
            true => "has a private key and no certificate",
            false => "has no certificate in PEM",
        };
        return Err(error(
            path,
            problem,
            "`certificate` is the chain (-----BEGIN CERTIFICATE-----), `key` is the private key",
        ));
    }
    Ok(chain)
}

/// Describes an error of the reader of PEM.
fn pem_problem(why: &pem::Error) -> String {
    match why {
        pem::Error::MissingSectionEnd { end_marker } => format!(
            "the file ends before the line -----END {}-----",
            String::from_utf8_lossy(end_marker)
        ),
        why => format!("is not a PEM file: {why}"),
    }
}

/// Adds the certificates in a file to the authorities `roots`, and returns them.
pub(super) fn authorities(
    path: &Path,
    help: &'static str,
    roots: &mut RootCertStore,
) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let chain = chain(path)?;
    for authority in &chain {
        roots.add(authority.clone()).map_err(|why| {
            let problem = format!("its authorities can't be used: {why}");
            error(path, &problem, help)
        })?;
    }
    Ok(chain)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, LoadError> {
    let text = read(path, CONVERT)?;
    if text.contains("ENCRYPTED") {
        return Err(error(
            path,
            "the key is protected by a password",
            "store it without one: `openssl pkey -in KEY -out FILE`, readable by Sluice's user only",
        ));
    }
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|why| {
        let problem = match text.contains("BEGIN CERTIFICATE-----") {
            true => "has a certificate and no private key".to_owned(),
            false if matches!(why, pem::Error::NoItemsFound) => {
                "has no private key in PEM".to_owned()
            }
            false => pem_problem(&why),
        };
        error(
            path,
            &problem,
            "`key` is the private key (-----BEGIN PRIVATE KEY-----), `certificate` is the chain",
        )
    })
}

/// Advice on a certificate or key that is not text.
const CONVERT: &str =
    "convert it to PEM: `openssl x509 -inform DER -in FILE -out FILE.pem` (a key: `openssl pkey`)";

/// Reads a file with certificates or secrets. `not_text` is the advice on a file that is not text.
pub(super) fn read(path: &Path, not_text: &'static str) -> Result<String, LoadError> {
    disk::read_text(path, FILE_BYTES_MAX).map_err(|why| {
        let help = match why.kind() {
            io::ErrorKind::NotFound => {
                "relative paths begin at the folder in which Sluice is started"
            }
            io::ErrorKind::PermissionDenied => "let Sluice's user read it",
            io::ErrorKind::InvalidData => not_text,
            _ => "check the file",
        };
        LoadError {
            is_denied: why.kind() == io::ErrorKind::PermissionDenied,
            ..error(path, &format!("can't be read: {why}"), help)
        }
    })
}

pub(super) fn error(path: &Path, problem: &str, help: &'static str) -> LoadError {
    LoadError {
        file: path.to_owned(),
        problem: problem.to_owned(),
        help,
        is_denied: false,
    }
}

/// Returns the crypto provider. No other provider is ever used, so none is installed for the whole process.
pub(super) fn provider() -> CryptoProvider {
    rustls::crypto::aws_lc_rs::default_provider()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made by OpenSSL 3.0: `x509 -req` without extensions, and `req -x509 -newkey rsa:1024`.
    const VERSION_1: (&str, &str) = (
        "\
-----BEGIN CERTIFICATE-----
MIIBKjCB0QIUGJU9srkZksJ0NAp8+6aucPInpR0wCgYIKoZIzj0EAwIwGDEWMBQG
A1UEAwwNYS5leGFtcGxlLmNvbTAeFw0yNjExMjMwMjQyMDlaFw0zNjExMjAwMjQy
MDlaMBgxFjAUBgNVBAMMDWEuZXhhbXBsZS5jb20wWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQ+0aI6dsBPPUuCj9a/12Cxmq8gDTTeki9ALYubVbYXZxNtYpeuHxWA
vs1ITNfUYHhIyv/HAB7n/d+jAAWsNSGKMAoGCCqGSM49BAMCA0gAMEUCIQDJ0Tn/
nd/p9lwmz4kJNgAzxFImp410YrEyod5NiJ/wPAIgWbd2zJ5pbFHOm7z1DFpAA8rX
yCdHPwcAsw6fDBz5EnQ=
-----END CERTIFICATE-----",
        "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg+8brrrsUfTP7G1/S
GRx1jKgFBnBc52FhMvdFiIDuJ8mhRANCAAQ+0aI6dsBPPUuCj9a/12Cxmq8gDTTe
ki9ALYubVbYXZxNtYpeuHxWAvs1ITNfUYHhIyv/HAB7n/d+jAAWsNSGK
-----END PRIVATE KEY-----",
    );
    const RSA_1024: (&str, &str) = (
        "\
-----BEGIN CERTIFICATE-----
MIICJjCCAY+gAwIBAgIUeJLfbxd/gNVPjYlocbtTEeFLEjQwDQYJKoZIhvcNAQEL
BQAwGDEWMBQGA1UEAwwNYS5leGFtcGxlLmNvbTAeFw0yNjExMjMwMjQxNDdaFw0z
NjExMjAwMjQxNDdaMBgxFjAUBgNVBAMMDWEuZXhhbXBsZS5jb20wgZ8wDQYJKoZI
hvcNAQEBBQADgY0AMIGJAoGBAL51xN3ovuQTQuDKkgUlCMbwE4e4UFMU1mvFuev2
HgeBVbKYkDNg1aMFwVBeC/Xexvup4ElJgr+LBSpFpcLoUHP1+YPo8muF/rVl1e/L
hyM9zRsd8DmG+YNqenvKtGBucscAZCr+bhlHB669JjByUC+4FI9BMwyQc0LPJ5KT
+cilAgMBAAGjbTBrMB0GA1UdDgQWBBTWbcnjdv4/p0j6b7wUAVN+KAI5lzAfBgNV
HSMEGDAWgBTWbcnjdv4/p0j6b7wUAVN+KAI5lzAPBgNVHRMBAf8EBTADAQH/MBgG
A1UdEQQRMA+CDWEuZXhhbXBsZS5jb20wDQYJKoZIhvcNAQELBQADgYEAskIAZy/M
nOob+XQEG9iwzs9Wwj6Ml4F1hkNJsSVqAOj2xdfePdbU0SWjve1Oowycy4pU39G5
A/Dkk0F53lgXt5lIYeumgP6u/PU5DE+8sHUM8XQ+g3qVzVJxejUQX3kYnkBexYT/
WkE2XciNEUGWNjwtgs55UUQ3CGHr6a/oxHY=
-----END CERTIFICATE-----",
        "\
-----BEGIN PRIVATE KEY-----
MIICeAIBADANBgkqhkiG9w0BAQEFAASCAmIwggJeAgEAAoGBAL51xN3ovuQTQuDK
kgUlCMbwE4e4UFMU1mvFuev2HgeBVbKYkDNg1aMFwVBeC/Xexvup4ElJgr+LBSpF
pcLoUHP1+YPo8muF/rVl1e/LhyM9zRsd8DmG+YNqenvKtGBucscAZCr+bhlHB669
JjByUC+4FI9BMwyQc0LPJ5KT+cilAgMBAAECgYBqBaD7bs6ko9w8ykcSuhTyuT4F
9SIxvY3HHKBsq+r3fpW3/5l2IFeMkm2UUWYTDlpySZRi95rjCX5sk6y8nRn7HFsC
geRTSIEVVc+1r6LawnWJp+/x4vY3QG9P1rxeZaJbj5WKHhTCnYW3gSO/rx8uNz5e
dQThwSozh4VjdOJPWQJBAPM6jwpm4ukS+fxteiewgCYGBPm6Mm+rOH/cE6NCyKG2
WohnyGmesI43Zteg7cFHrShGCb7yID5ZSR0QUfHt7scCQQDIdebe6wsAACOcO6bH
WwGI3TfB4BjILfvw2JdZ5UiwMu9lL6snyRMf6ElO2nUDMrdB9Eo7bVKBFrNUXPtt
iBEzAkEAoCDrTwPRW3S8060XgM24cFACMo6c6dulhLfUzeUHxT8Sdz8sOCzbO6XJ
tSgjnt2baCpD/EvXYnTRp6q46DemvQJBAIa+WZV1wEsbzNPzdMOD9KAesp/rFj1Y
S4U00Wdnq1hkpG4LgKyZh/VmmgAa75RavrvijRMtBMwoihom9gpF7+kCQQDhppF8
WuLnlBAmKrbFs8ZiWIsH56abmyupEs99K6PCGTLetyC0ZJgQzmelER3cqM8dRECF
4BTikfihWL3KZI5L
-----END PRIVATE KEY-----",
    );

    fn refused(certificate: &str, key: &str) -> LoadError {
        let folder = tempfile::tempdir().expect("a folder");
        let files = CertificateFiles {
            certificate: folder.path().join("a.pem"),
            key: folder.path().join("a.key"),
        };
        std::fs::write(&files.certificate, certificate).expect("written");
        std::fs::write(&files.key, key).expect("written");
        load(&files).expect_err("an error")
    }

    #[test]
    fn the_reason_why_a_certificate_is_unusable_is_named() {
        let (certificate, key) = VERSION_1;
        let error = refused(certificate, key);
        assert!(error.file.ends_with("a.pem"), "{error}");
        assert!(error.problem.contains("has version 1"), "{error}");
        assert!(error.help.contains("-extfile"), "{}", error.help);
        let (certificate, key) = RSA_1024;
        let error = refused(certificate, key);
        assert!(error.problem.contains("RSA key of 1024 bits"), "{error}");
    }

    #[test]
    fn a_truncated_file_is_reported_with_the_missing_line() {
        let (certificate, key) = RSA_1024;
        let error = refused(&certificate[..300], key);
        let end = "ends before the line -----END CERTIFICATE-----";
        assert!(error.problem.contains(end), "{error}");
        let issued = sluice_lab::certificates::Authority::new("Test authority").server(&["a"]);
        let error = refused(&issued.certificate, &issued.key[..100]);
        assert!(error.file.ends_with("a.key"), "{error}");
        let end = "ends before the line -----END PRIVATE KEY-----";
        assert!(error.problem.contains(end), "{error}");
    }
}
