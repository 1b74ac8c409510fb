//! The certificates of servers that a load trusts.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, NamedGroup, RootCertStore, SignatureScheme,
};

/// The beginning of a certificate in PEM.
const PEM: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// Returns the suites and groups of a load. As in browsers, the group that withstands quantum computers is preferred.
pub(super) fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider
        .kx_groups
        .sort_by_key(|group| group.name() != NamedGroup::X25519MLKEM768);
    provider
}

/// Returns the configuration of a client that trusts the authorities in this file, in DER or PEM. An empty path trusts
/// every certificate.
///
/// Errors: the file can't be read or has no certificate.
pub(super) fn config(file: &Path, provider: CryptoProvider) -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(provider);
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    if file.as_os_str().is_empty() {
        let verifier = Arc::new(Anything(provider));
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        return Ok(builder.with_no_client_auth());
    }
    let roots = roots(file).with_context(|| format!("authorities in {}", file.display()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn roots(file: &Path) -> anyhow::Result<RootCertStore> {
    let content = fs::read(file)?;
    let mut roots = RootCertStore::empty();
    let is_pem = content.windows(PEM.len()).any(|part| part == PEM);
    if !is_pem {
        roots.add(content.into())?;
        return Ok(roots);
    }
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    // Some authorities of a system have certificates that rustls does not support.
    let (added, _) = roots.add_parsable_certificates(chain?);
    anyhow::ensure!(added > 0, "no usable certificate");
    Ok(roots)
}

/// A verifier that accepts every certificate.
#[derive(Debug)]
struct Anything(Arc<CryptoProvider>);

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
