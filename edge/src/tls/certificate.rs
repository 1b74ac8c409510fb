//! A certificate with its chain and private key, and the facts about it that operators need.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rustls::SignatureAlgorithm;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate, X509Version};
use x509_parser::public_key::PublicKey;

use super::options::names_match;

/// A certificate that can be used in handshakes.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The chain and the private key.
    pub key: Arc<CertifiedKey>,
    /// The facts about the certificate.
    pub facts: Arc<Facts>,
}

/// Facts about a certificate and its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The names for which the certificate is valid, in lower case, as in `*.example.com` or `[::1]`.
    pub names: Vec<String>,
    /// Name of the issuer, as in `CN=R11, O=Let's Encrypt, C=US`.
    pub issuer: String,
    /// First second of the validity, as Unix time.
    pub not_before_unix_s: i64,
    /// Last second of the validity, as Unix time.
    pub not_after_unix_s: i64,
    /// The defect of the chain, if it has one.
    pub chain: Option<ChainDefect>,
}

/// A defect of a chain of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainDefect {
    /// The chain has only the certificate itself, although another authority has signed it.
    NoIntermediate,
    /// The certificate at this position, from 0, is not the issuer of the one before it.
    Order(usize),
}

impl Certificate {
    /// Whether the certificate is preferred to others for the same name: the handshakes of ECDSA cost least.
    pub(super) fn rank(&self) -> u8 {
        match self.key.key.algorithm() {
            SignatureAlgorithm::ECDSA => 0,
            SignatureAlgorithm::ED25519 => 1,
            _ => 2,
        }
    }
}

impl Facts {
    /// Reads the facts of a chain. Returns `None` if a certificate in it is malformed.
    pub(super) fn of(chain: &[CertificateDer<'_>]) -> Option<Facts> {
        let parsed: Vec<X509Certificate<'_>> = chain
            .iter()
            .map(|der| X509Certificate::from_der(der).ok().map(|(_, one)| one))
            .collect::<Option<_>>()?;
        let leaf = parsed.first()?;
        let validity = leaf.validity();
        Some(Facts {
            names: names(leaf),
            issuer: leaf.issuer().to_string(),
            not_before_unix_s: validity.not_before.timestamp(),
            not_after_unix_s: validity.not_after.timestamp(),
            chain: defect(&parsed),
        })
    }

    /// Whether the certificate is valid for a host, or for each host of a `*.name`.
    pub fn covers(&self, name: &str) -> bool {
        match name.starts_with("*.") {
            true => self.names.iter().any(|one| one == name),
            false => self.is_for(name),
        }
    }

    /// Whether the certificate is valid for a host.
    pub fn is_for(&self, host: &str) -> bool {
        // An IPv6 address has several forms.
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let address: Option<Ipv6Addr> = bare.and_then(|bare| bare.parse().ok());
        let usual = address.map(in_brackets);
        let host = usual.as_deref().unwrap_or(host);
        self.names.iter().any(|name| names_match(name, host))
    }
}

/// Fewest bits of an RSA key.
const RSA_BITS_MIN: usize = 2048;

/// Returns a frequent reason for which the first certificate of a chain can't be used in TLS, with advice.
pub(super) fn defect_of_leaf(chain: &[CertificateDer<'_>]) -> Option<(String, &'static str)> {
    let (_, leaf) = X509Certificate::from_der(chain.first()?).ok()?;
    let version = leaf.version();
    if version != X509Version::V3 {
        return Some((
            format!(
                "the certificate has version {}, and TLS needs version 3",
                version.0 + 1
            ),
            "sign it again with its names as an extension: `openssl x509 -req … -extfile names.txt`, \
             where this file has the line `subjectAltName = DNS:NAME`",
        ));
    }
    match leaf.public_key().parsed() {
        Ok(PublicKey::RSA(key)) if key.key_size() < RSA_BITS_MIN => Some((
            format!("the certificate has an RSA key of {} bits", key.key_size()),
            "make a key of type ECDSA (P-256, P-384) or Ed25519, or of type RSA with 2048 bits or more",
        )),
        _ => None,
    }
}

fn names(leaf: &X509Certificate<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for extension in leaf.extensions() {
        let ParsedExtension::SubjectAlternativeName(alternatives) = extension.parsed_extension()
        else {
            continue;
        };
        for name in &alternatives.general_names {
            match name {
                GeneralName::DNSName(name) => names.push(name.to_ascii_lowercase()),
                GeneralName::IPAddress(bytes) => names.extend(address(bytes)),
                _ => {}
            }
        }
    }
    names
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).to_string());
    }
    let sixteen = <[u8; 16]>::try_from(bytes).ok()?;
    Some(in_brackets(sixteen.into()))
}

/// Returns an address as hosts have it.
fn in_brackets(address: Ipv6Addr) -> String {
    format!("[{address}]")
}

fn defect(chain: &[X509Certificate<'_>]) -> Option<ChainDefect> {
    let issues = |issuer: &X509Certificate<'_>, subject: &X509Certificate<'_>| {
        issuer.subject().as_raw() == subject.issuer().as_raw()
    };
    let wrong = chain
        .windows(2)
        .position(|pair| !issues(&pair[1], &pair[0]));
    if let Some(at) = wrong {
        return Some(ChainDefect::Order(at + 1));
    }
    match chain {
        [only] if !issues(only, only) => Some(ChainDefect::NoIntermediate),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_valid_in_each_of_its_forms() {
        let facts = Facts {
            names: [&[127, 0, 0, 1][..], &Ipv6Addr::LOCALHOST.octets()]
                .into_iter()
                .filter_map(address)
                .collect(),
            issuer: String::new(),
            not_before_unix_s: 0,
            not_after_unix_s: 0,
            chain: None,
        };
        assert_eq!(facts.names, ["127.0.0.1", "[::1]"]);
        for host in ["127.0.0.1", "[::1]", "[0:0::1]"] {
            assert!(facts.is_for(host), "{host}");
        }
        for host in ["::1", "[::2]", "[::1", "[a]"] {
            assert!(!facts.is_for(host), "{host}");
        }
    }
}
