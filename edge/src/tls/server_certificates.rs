//! The verification of servers' certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::certificate::Facts;
use super::loading::{self, LoadError};
use super::options::Trust;

/// Environment variable with the file of the system's authorities, as OpenSSL has it.
const SYSTEM_VARIABLE: &str = "SSL_CERT_FILE";
/// Files of the system's authorities on Debian, Fedora, openSUSE and Alpine, and on systems derived from them.
const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Loads the certificates by which servers are verified.
pub(super) fn load(
    trust: &Trust,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, LoadError> {
    let trusted = match trust {
        Trust::System => {
            let file = system_file();
            let chain = loading::chain(&file).map_err(|error| LoadError {
                help: "install the system's certificates (package ca-certificates), or name the authorities yourself",
                ..error
            })?;
            let mut roots = RootCertStore::empty();
            // Some authorities of a system have certificates that rustls does not support.
            roots.add_parsable_certificates(chain);
            Trusted::Signed {
                by: by_authorities(roots, &file, provider)?,
                or: Vec::new(),
            }
        }
        Trust::Authorities(files) => {
            let (mut roots, mut or) = (RootCertStore::empty(), Vec::new());
            for file in files {
                or.extend(loading::authorities(file, HELP, &mut roots)?);
            }
            let file = files.first().map_or(Path::new(""), |file| file);
            Trusted::Signed {
                by: by_authorities(roots, file, provider)?,
                or,
            }
        }
        Trust::Exactly(files) => {
            let leaves = files.iter().map(|file| {
                let chain = loading::chain(file)?;
                Ok(chain.into_iter().next())
            });
            let leaves: Result<Vec<_>, LoadError> = leaves.collect();
            Trusted::Exactly(leaves?.into_iter().flatten().collect())
        }
        Trust::Anything => Trusted::Anything,
    };
    Ok(Arc::new(Verifier {
        trusted,
        algorithms: provider.signature_verification_algorithms,
    }))
}

const HELP: &str = "name the certificates of the authorities that sign the server's certificate, or that certificate itself";

fn by_authorities(
    roots: RootCertStore,
    file: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, LoadError> {
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    builder.build().map_err(|why| {
        let problem = format!("its authorities can't be used: {why}");
        loading::error(file, &problem, HELP)
    })
}

/// Returns the file of the authorities that this system trusts.
pub fn system_file() -> PathBuf {
    let named = std::env::var_os(SYSTEM_VARIABLE).filter(|file| !file.is_empty());
    if let Some(file) = named {
        return file.into();
    }
    let usual = SYSTEM_FILES.iter().map(Path::new);
    let found = usual.clone().find(|file| loading::read(file, HELP).is_ok());
    found.unwrap_or(Path::new(SYSTEM_FILES[0])).to_owned()
}

/// Verifies the certificates of servers.
#[derive(Debug)]
struct Verifier {
    trusted: Trusted,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The certificates that are trusted.
#[derive(Debug)]
enum Trusted {
    /// Those that an authority has signed, and those in `or`, if they are for the server's name and not expired.
    Signed {
        by: Arc<WebPkiServerVerifier>,
        or: Vec<CertificateDer<'static>>,
    },
    /// These, whatever their names and their validity.
    Exactly(Vec<CertificateDer<'static>>),
    /// All.
    Anything,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.trusted {
            Trusted::Signed { or, .. } if or.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                verify_validity(end_entity, now)?;
            }
            Trusted::Signed { by, .. } => {
                return by.verify_server_cert(
                    end_entity,
                    intermediates,
                    server_name,
                    ocsp_response,
                    now,
                );
            }
            Trusted::Exactly(certificates) if !certificates.contains(end_entity) => {
                return Err(CertificateError::ApplicationVerificationFailure.into());
            }
            Trusted::Exactly(_) | Trusted::Anything => {}
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.trusted {
            // Without a verified certificate, the signature proves nothing.
            Trusted::Anything => Ok(HandshakeSignatureValid::assertion()),
            _ => verify_tls12_signature(message, cert, dss, &self.algorithms),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.trusted {
            Trusted::Anything => Ok(HandshakeSignatureValid::assertion()),
            _ => verify_tls13_signature(message, cert, dss, &self.algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn verify_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let facts = Facts::of(std::slice::from_ref(certificate));
    let facts = facts.ok_or(CertificateError::BadEncoding)?;
    let now_unix_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now_unix_s < facts.not_before_unix_s {
        return Err(CertificateError::NotValidYet.into());
    }
    match now_unix_s > facts.not_after_unix_s {
        true => Err(CertificateError::Expired.into()),
        false => Ok(()),
    }
}
