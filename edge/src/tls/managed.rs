//! Certificates that come and go while the configuration stays, by name, and the answers to an authority's challenges in
//! TLS.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ClientHello;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::certificate::Certificate;
use super::demand::Demands;
use super::loading;
use crate::http::target::host_of;

/// Name of the protocol in which an authority verifies the control of a name (RFC 8737 6.2).
pub const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";

/// Length of the digest in an answer to a challenge: SHA-256.
const DIGEST_BYTES: usize = 32;

/// The certificates that all listeners use for the sites whose certificates are obtained while Sluice runs.
#[derive(Default)]
pub struct Managed {
    /// The certificates by name, which may be `*.name`.
    certificates: RwLock<HashMap<Box<str>, Certificate>>,
    /// The certificates that Sluice has signed itself, by name. Only hosts without another certificate use them.
    own: RwLock<HashMap<Box<str>, Certificate>>,
    /// The settings of handshakes that answer a challenge, by the name that is verified.
    challenges: RwLock<HashMap<Box<str>, Arc<ServerConfig>>>,
    /// The names for which handshakes demand a certificate.
    pub demands: Demands,
    /// Number of entries in `challenges`, so that handshakes need no lock while there is none.
    challenge_count: AtomicUsize,
}

impl Managed {
    /// Uses a certificate for these names from now on.
    pub fn put(&self, names: &[String], certificate: &Certificate) {
        let mut certificates = self.certificates.write();
        for name in names {
            certificates.insert(name.as_str().into(), certificate.clone());
        }
    }

    /// Stops using certificates for this name.
    pub fn remove(&self, name: &str) {
        self.certificates.write().remove(name);
    }

    /// Replaces all certificates that Sluice has signed itself by these, each for a host.
    pub fn replace_own<'a>(&self, by_host: impl Iterator<Item = (&'a String, &'a Certificate)>) {
        let by_host = by_host.map(|(host, one)| (host.as_str().into(), one.clone()));
        *self.own.write() = by_host.collect();
    }

    /// Returns the certificate of an authority for a host: the one with this name, else the one with the `*.name` above
    /// it.
    pub fn find(&self, host: &str) -> Option<Certificate> {
        find_in(&self.certificates.read(), host)
    }

    /// Returns the certificate for clients of a host: that of an authority, else the one that Sluice has signed itself.
    pub fn in_use(&self, host: &str) -> Option<Certificate> {
        let of_authority = self.find(host);
        of_authority.or_else(|| find_in(&self.own.read(), host))
    }

    /// Answers handshakes that verify the control of this name (RFC 8737 3). `digest` is the SHA-256 of the challenge's
    /// key authorization.
    ///
    /// # Errors
    ///
    /// The certificate of the answer can't be made.
    pub fn answer_challenge(&self, name: &str, digest: &[u8]) -> Result<(), String> {
        let config = challenge_config(name, digest)?;
        let mut challenges = self.challenges.write();
        challenges.insert(name.into(), Arc::new(config));
        self.challenge_count
            .store(challenges.len(), Ordering::Release);
        Ok(())
    }

    /// Ends the answer to the challenge for this name.
    pub fn end_challenge(&self, name: &str) {
        let mut challenges = self.challenges.write();
        challenges.remove(name);
        self.challenge_count
            .store(challenges.len(), Ordering::Release);
    }

    /// Returns the settings of a handshake that verifies the control of a name: such a client offers only the protocol
    /// for that (RFC 8737 3). `None`: it is none, or no challenge is open for the name.
    pub(super) fn challenge(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        if self.challenge_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut protocols = hello.alpn()?;
        let only = protocols.next()? == CHALLENGE_PROTOCOL && protocols.next().is_none();
        let name = hello.server_name().filter(|_| only)?;
        self.challenges.read().get(host_of(name)).cloned()
    }
}

fn find_in(certificates: &HashMap<Box<str>, Certificate>, host: &str) -> Option<Certificate> {
    if let Some(found) = certificates.get(host) {
        return Some(found.clone());
    }
    let (_, above) = host.split_once('.')?;
    certificates.get(format!("*.{above}").as_str()).cloned()
}

/// Returns the settings of handshakes with a self-signed certificate that has the digest (RFC 8737 3).
fn challenge_config(name: &str, digest: &[u8]) -> Result<ServerConfig, String> {
    if digest.len() != DIGEST_BYTES {
        return Err("the digest of a challenge has the wrong length".to_owned());
    }
    let wrong = |why: &dyn fmt::Display| format!("the answer to a challenge can't be made: {why}");
    let key = KeyPair::generate().map_err(|why| wrong(&why))?;
    let mut params = CertificateParams::new([name.to_owned()]).map_err(|why| wrong(&why))?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key).map_err(|why| wrong(&why))?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(loading::provider());
    let key = provider.key_provider.load_private_key(key);
    let key = key.map_err(|why| wrong(&why))?;
    // The usual way of making these verifies the certificate, and fails because of the extension, which is critical.
    let certified = CertifiedKey::new(vec![certificate.der().clone()], key);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| wrong(&why))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![CHALLENGE_PROTOCOL.to_vec()];
    Ok(config)
}

impl fmt::Debug for Managed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Managed").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use sluice_lab::certificates::Authority;

    use super::*;

    fn certificate(names: &[&str]) -> Certificate {
        let pair = Authority::new("Test authority").server(names);
        let text = format!("{}\n{}", pair.key, pair.certificate);
        loading::parse(&text).expect("a certificate")
    }

    #[test]
    fn the_certificate_of_a_name_is_found_before_that_of_a_wildcard() {
        let managed = Managed::default();
        assert!(managed.find("a.example.com").is_none());
        let put = |names: &[&str]| {
            let owned: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            managed.put(&owned, &certificate(names));
        };
        put(&["a.example.com", "b.example.com"]);
        put(&["*.example.com"]);
        let names = |host: &str| managed.find(host).map(|one| one.facts.names.clone());
        assert_eq!(
            names("a.example.com"),
            Some(vec!["a.example.com".to_owned(), "b.example.com".to_owned()])
        );
        assert_eq!(
            names("c.example.com"),
            Some(vec!["*.example.com".to_owned()])
        );
        assert_eq!(names("example.com"), None);
        assert_eq!(names("d.c.example.com"), None);
        managed.remove("a.example.com");
        assert_eq!(
            names("a.example.com"),
            Some(vec!["*.example.com".to_owned()])
        );
    }

    #[test]
    fn a_challenge_needs_a_digest() {
        let managed = Managed::default();
        assert!(managed.answer_challenge("a.example", &[0; 31]).is_err());
        managed
            .answer_challenge("a.example", &[0; 32])
            .expect("an answer");
    }
}
