//! The root of the local authority, which signs certificates for development.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use sha2::{Digest, Sha256};

use super::storage::Storage;
use crate::sys::{Clock, host_name};
use crate::tls::{self, Certificate};

/// File of the root's certificate in the storage.
const CERTIFICATE: &str = "internal/root.pem";
/// File of the root's private key in the storage.
const KEY: &str = "internal/root.key";
const DAY_S: i64 = 24 * 3600;
/// Time in seconds for which the root is valid: ten years.
const ROOT_VALID_S: i64 = 3652 * DAY_S;
/// Time in seconds before the end of the root's validity from which a start replaces the root.
const ROOT_REPLACED_S: i64 = 30 * DAY_S;
/// Time in seconds for which the other certificates are valid.
const VALID_S: i64 = 7 * DAY_S;
/// Time in seconds by which validity begins before now, for clients whose clocks are slow.
const BACKDATED_S: i64 = 3600;
/// Longest common name, in characters (RFC 5280, appendix A.1: ub-common-name).
const NAME_CHARS_MAX: usize = 64;
/// Name of the subject of self-signed certificates.
const SELF_SIGNED: &str = "Sluice self-signed certificate";

/// The root of the local authority.
pub struct Root {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
    pem: String,
}

impl Root {
    /// Reads the root. Returns `None` if there is none yet.
    ///
    /// # Errors
    ///
    /// The storage failed. `InvalidData`: the stored root can't be used.
    pub fn read(storage: &dyn Storage) -> io::Result<Option<Root>> {
        let Some(pem) = storage.read(CERTIFICATE)? else {
            return Ok(None);
        };
        let key = storage.read(KEY)?.unwrap_or_default();
        Root::of(pem, &key).map(Some).map_err(|why| {
            let message = format!(
                "{CERTIFICATE}: {why}; if it is removed, the next start makes a root that has to be trusted anew"
            );
            io::Error::new(io::ErrorKind::InvalidData, message)
        })
    }

    /// Reads the root, or makes one if there is none or its validity ends soon.
    ///
    /// # Errors
    ///
    /// The storage failed. `InvalidData`: the stored root can't be used.
    pub fn open(storage: &dyn Storage, clock: &Clock) -> io::Result<Root> {
        let now_unix_s = clock.unix_s();
        let stored = Root::read(storage)?;
        let has_expired = match stored {
            Some(root) if root.not_after_unix_s() > now_unix_s + ROOT_REPLACED_S => {
                return Ok(root);
            }
            stored => stored.is_some(),
        };
        let made = make(now_unix_s, host_name().as_deref());
        let (pem, key) = made.map_err(io::Error::other)?;
        // Without a certificate there is no root, so the certificate never belongs to another key.
        storage.remove(CERTIFICATE)?;
        storage.write(KEY, &key)?;
        storage.write(CERTIFICATE, &pem)?;
        let root = Root::of(pem, &key).map_err(io::Error::other)?;
        match has_expired {
            true => tracing::warn!(
                name = root.name(),
                "the local authority has a new root, since the old one expires (`sluice trust`)"
            ),
            false => tracing::info!(
                name = root.name(),
                "a local authority was created (`sluice trust` says how to trust it)"
            ),
        }
        Ok(root)
    }

    fn of(pem: String, key: &str) -> Result<Root, String> {
        let certificate = tls::parse(&format!("{key}\n{pem}"))?;
        let key = KeyPair::from_pem(key).map_err(|why| why.to_string())?;
        let issuer = Issuer::from_ca_cert_pem(&pem, key).map_err(|why| why.to_string())?;
        Ok(Root {
            issuer,
            certificate,
            pem,
        })
    }

    /// Returns the path of the certificate's file in the folder of the state.
    pub fn file(state: &Path) -> PathBuf {
        state.join(CERTIFICATE)
    }

    /// Returns the certificate in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the certificate in DER.
    pub fn der(&self) -> &[u8] {
        let chain = &self.certificate.key.cert;
        chain.first().map_or(&[], |first| first.as_ref())
    }

    /// Returns the SHA-256 of the certificate, as in `AB:CD:…`.
    pub fn fingerprint(&self) -> String {
        let digest = Sha256::digest(self.der());
        let bytes: Vec<String> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
        bytes.join(":")
    }

    /// Returns the name, as in `Sluice local authority 2026 (laptop)`.
    pub fn name(&self) -> &str {
        let subject = &self.certificate.facts.issuer;
        subject.strip_prefix("CN=").unwrap_or(subject)
    }

    /// Returns the last second of the validity, as Unix time.
    pub fn not_after_unix_s(&self) -> i64 {
        self.certificate.facts.not_after_unix_s
    }

    /// Signs a certificate for hosts, which may be `*.name` or addresses.
    ///
    /// # Errors
    ///
    /// A host has no form that certificates permit, or the crypto library failed.
    pub(super) fn sign(&self, hosts: &[String], now_unix_s: i64) -> Result<Certificate, String> {
        let mut params = server(hosts, now_unix_s)?;
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(|why| why.to_string())?;
        let certificate = params.signed_by(&key, &self.issuer);
        let certificate = certificate.map_err(|why| why.to_string())?;
        tls::parse(&format!("{}\n{}", key.serialize_pem(), certificate.pem()))
    }
}

/// Makes a certificate for hosts that is signed by its own key.
///
/// # Errors
///
/// A host has no form that certificates permit, or the crypto library failed.
pub(super) fn self_signed(hosts: &[String], now_unix_s: i64) -> Result<Certificate, String> {
    let mut params = server(hosts, now_unix_s)?;
    params
        .distinguished_name
        .push(DnType::CommonName, SELF_SIGNED);
    let key = KeyPair::generate().map_err(|why| why.to_string())?;
    let certificate = params.self_signed(&key);
    let certificate = certificate.map_err(|why| why.to_string())?;
    tls::parse(&format!("{}\n{}", key.serialize_pem(), certificate.pem()))
}

/// Returns the parameters of a server's certificate. The hosts are only in the extension for them, since a subject has
/// room for one name of at most 64 characters. The serial number is the hash of the new, random key.
fn server(hosts: &[String], now_unix_s: i64) -> Result<CertificateParams, String> {
    let names: Vec<String> = hosts
        .iter()
        .map(|host| host.trim_matches(['[', ']']).to_owned())
        .collect();
    let mut params = CertificateParams::new(names).map_err(|why| why.to_string())?;
    params.distinguished_name = DistinguishedName::new();
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    set_validity(&mut params, now_unix_s, VALID_S);
    Ok(params)
}

fn set_validity(params: &mut CertificateParams, now_unix_s: i64, valid_s: i64) {
    let at = |unix_s: i64| UNIX_EPOCH + Duration::from_secs(unix_s.max(0).unsigned_abs());
    params.not_before = at(now_unix_s - BACKDATED_S).into();
    params.not_after = at(now_unix_s + valid_s).into();
}

/// Makes a root, and returns its certificate and its key in PEM.
///
/// The root has no name constraints: it signs for all hosts that a configuration names, which may be any. No authority
/// may be below the root.
fn make(now_unix_s: i64, machine: Option<&str>) -> Result<(String, String), String> {
    let mut params = CertificateParams::default();
    set_validity(&mut params, now_unix_s, ROOT_VALID_S);
    let year = params.not_before.year();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, root_name(year, machine));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().map_err(|why| why.to_string())?;
    let certificate = params.self_signed(&key).map_err(|why| why.to_string())?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Returns the name of a root. `machine` is the name of the machine, shortened if necessary.
fn root_name(year: i32, machine: Option<&str>) -> String {
    let name = format!("Sluice local authority {year}");
    let Some(machine) = machine else {
        return name;
    };
    let room = NAME_CHARS_MAX.saturating_sub(name.len() + " ()".len());
    let allowed = |c: &char| c.is_ascii_alphanumeric() || ['-', '.', '_'].contains(c);
    let machine: String = machine.chars().filter(allowed).take(room).collect();
    match machine.is_empty() {
        true => name,
        false => format!("{name} ({machine})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acme::storage;

    fn hosts(hosts: &[&str]) -> Vec<String> {
        hosts.iter().map(|host| (*host).to_owned()).collect()
    }

    #[test]
    fn a_root_is_made_once_and_replaced_before_it_expires() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let storage = storage::in_folder(folder.path())?;
        assert!(Root::read(&*storage)?.is_none());
        let clock = Clock::manual(1_800_000_000);
        let first = Root::open(&*storage, &clock)?;
        assert!(first.name().starts_with("Sluice local authority 2027"));
        assert_eq!(first.fingerprint().len(), 32 * 3 - 1);
        let valid_s = first.not_after_unix_s() - clock.unix_s();
        assert_eq!(valid_s, ROOT_VALID_S);
        clock.advance_us((ROOT_VALID_S - ROOT_REPLACED_S - 1).unsigned_abs() * 1_000_000);
        assert_eq!(Root::open(&*storage, &clock)?.pem(), first.pem());
        clock.advance_us(1_000_000);
        let second = Root::open(&*storage, &clock)?;
        assert_ne!(second.pem(), first.pem());
        let read = Root::read(&*storage)?.expect("a root");
        assert_eq!(read.pem(), second.pem());
        Ok(())
    }

    #[test]
    fn a_root_with_another_key_can_not_be_used_and_is_not_replaced() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let storage = storage::in_folder(folder.path())?;
        let clock = Clock::manual(1_800_000_000);
        Root::open(&*storage, &clock)?;
        let (_, key) = make(0, None).expect("a root");
        storage.write(KEY, &key)?;
        let error = Root::open(&*storage, &clock).err().expect("an error");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("trusted anew"), "{error}");
        // A crash before the certificate was written leaves a key alone.
        storage.remove(CERTIFICATE)?;
        Root::open(&*storage, &clock).map(drop)
    }

    #[test]
    fn certificates_are_for_names_wildcards_and_addresses() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let storage = storage::in_folder(folder.path())?;
        let clock = Clock::manual(1_800_000_000);
        let root = Root::open(&*storage, &clock)?;
        let hosts = hosts(&["localhost", "*.dev.example", "127.0.0.1", "[::1]"]);
        let now_unix_s = clock.unix_s();
        let signed = root.sign(&hosts, now_unix_s).expect("a certificate");
        assert_eq!(signed.facts.names, hosts);
        assert!(signed.facts.issuer.contains(root.name()));
        assert_eq!(signed.facts.not_before_unix_s, now_unix_s - BACKDATED_S);
        assert_eq!(signed.facts.not_after_unix_s, now_unix_s + VALID_S);
        let own = self_signed(&hosts, now_unix_s).expect("a certificate");
        assert_eq!(own.facts.names, hosts);
        assert!(own.facts.issuer.contains(SELF_SIGNED));
        assert!(root.sign(&[String::from("ä")], now_unix_s).is_err());
        Ok(())
    }

    #[test]
    fn the_name_of_a_root_has_the_machine_and_at_most_64_characters() {
        assert_eq!(root_name(2026, None), "Sluice local authority 2026");
        assert_eq!(
            root_name(2026, Some("lap\u{1b}top")),
            "Sluice local authority 2026 (laptop)"
        );
        let long = root_name(2026, Some(&"a".repeat(100)));
        assert_eq!(long.len(), NAME_CHARS_MAX);
        assert_eq!(root_name(2026, Some("\u{1b}")), root_name(2026, None));
    }
}
