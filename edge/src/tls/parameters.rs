//! The versions, cipher suites and groups of rustls that belong to the options.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs as provider};
use rustls::{NamedGroup, SupportedCipherSuite, SupportedProtocolVersion};

use super::loading;
use super::options::{CipherSuite, Group, Version};

/// Returns the crypto provider with these cipher suites and groups only.
pub(super) fn provider(ciphers: &[CipherSuite], groups: &[Group]) -> Arc<CryptoProvider> {
    let suites = ciphers.iter().map(|suite| suite.supported());
    let groups = groups.iter().map(|group| group.supported());
    Arc::new(CryptoProvider {
        cipher_suites: suites.collect(),
        kx_groups: groups.collect(),
        ..loading::provider()
    })
}

/// Returns the versions from this one on.
pub(super) fn versions(min: Version) -> &'static [&'static SupportedProtocolVersion] {
    static BOTH: [&SupportedProtocolVersion; 2] =
        [&rustls::version::TLS13, &rustls::version::TLS12];
    match min {
        Version::Tls12 => &BOTH,
        Version::Tls13 => &BOTH[..1],
    }
}

impl Group {
    fn supported(self) -> &'static dyn SupportedKxGroup {
        match self {
            Group::X25519MlKem768 => provider::kx_group::X25519MLKEM768,
            Group::X25519 => provider::kx_group::X25519,
            Group::Secp256r1 => provider::kx_group::SECP256R1,
            Group::Secp384r1 => provider::kx_group::SECP384R1,
        }
    }

    /// Returns the group with this number.
    pub(super) fn of(number: NamedGroup) -> Option<Group> {
        let all = Group::ALL.iter().copied();
        all.into_iter()
            .find(|group| group.supported().name() == number)
    }
}

impl CipherSuite {
    fn supported(self) -> SupportedCipherSuite {
        use provider::cipher_suite as suites;
        match self {
            CipherSuite::Aes128Gcm => suites::TLS13_AES_128_GCM_SHA256,
            CipherSuite::Aes256Gcm => suites::TLS13_AES_256_GCM_SHA384,
            CipherSuite::ChaCha20 => suites::TLS13_CHACHA20_POLY1305_SHA256,
            CipherSuite::EcdsaAes128Gcm => suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            CipherSuite::EcdsaAes256Gcm => suites::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            CipherSuite::EcdsaChaCha20 => suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            CipherSuite::RsaAes128Gcm => suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            CipherSuite::RsaAes256Gcm => suites::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            CipherSuite::RsaChaCha20 => suites::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        }
    }

    /// Returns the suite with this number.
    pub(super) fn of(number: rustls::CipherSuite) -> Option<CipherSuite> {
        let all = CipherSuite::ALL.iter().copied();
        all.into_iter()
            .find(|suite| suite.supported().suite() == number)
    }
}
