//! The options of TLS, as the plan has them.

use std::path::PathBuf;

/// Options that apply to every listener with TLS (`[tls]`), unless the listener has its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Oldest version of TLS that is accepted.
    pub min_version: Version,
    /// Groups for the key exchange, the preferred one first.
    pub groups: Vec<Group>,
    /// Cipher suites that are accepted, the preferred one first. A client that prefers ChaCha20 or
    /// X25519MLKEM768 gets its own first one.
    pub ciphers: Vec<CipherSuite>,
    /// The response to a client that names an unknown host.
    pub unknown_name: UnknownName,
    /// Session tickets.
    pub tickets: TicketOptions,
    /// Whether the keys of all connections are written to the file in SSLKEYLOGFILE.
    pub key_log: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            min_version: Version::Tls12,
            groups: Group::ALL.to_vec(),
            ciphers: CipherSuite::ALL.to_vec(),
            unknown_name: UnknownName::default(),
            tickets: TicketOptions::default(),
            key_log: false,
        }
    }
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

/// The response to a client that names a host for which there is no certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownName {
    /// The default certificate is used.
    #[default]
    Default,
    /// The handshake is refused with the alert `unrecognized_name` (RFC 6066 3).
    Refuse,
}

/// Options of session tickets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TicketOptions {
    /// No tickets: every handshake is a full one.
    Off,
    /// Tickets with random keys, which end with the process.
    #[default]
    Random,
    /// Tickets with keys derived from the secrets in these files. The first one makes tickets, all of them read
    /// tickets. Several edges with the same files read one another's tickets.
    Shared(Vec<PathBuf>),
}

/// The files of a certificate: the chain, and its private key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CertificateFiles {
    /// File of the certificate and the intermediate certificates, in PEM.
    pub certificate: PathBuf,
    /// File of the private key, in PEM.
    pub key: PathBuf,
}

/// The request for certificates of clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientCertificates {
    /// File of the authorities that sign clients' certificates, in PEM.
    pub authorities: PathBuf,
    /// Whether a handshake without a certificate fails.
    pub required: bool,
}

/// Options of TLS to servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// The certificates that a server may have.
    pub trust: Trust,
    /// Name that is sent to the server (SNI), and for which its certificate has to be valid, in place of the host that
    /// the connection is opened to.
    pub server_name: Option<String>,
    /// Certificate that the client sends if the server requests one.
    pub certificate: Option<CertificateFiles>,
    /// Names of the protocols that the client speaks (ALPN), the preferred one first.
    pub protocols: Vec<String>,
    /// Oldest version of TLS that is accepted.
    pub min_version: Version,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            trust: Trust::default(),
            server_name: None,
            certificate: None,
            protocols: Vec::new(),
            min_version: Version::Tls12,
        }
    }
}

/// The certificates that a server may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those that an authority has signed which the system trusts, if they are for the server's name and not expired.
    #[default]
    System,
    /// Those that an authority in these files (PEM) has signed, and those in the files themselves, if they are for the
    /// server's name and not expired.
    Authorities(Vec<PathBuf>),
    /// Only the first certificates in these files (PEM), whatever their names and their validity.
    Exactly(Vec<PathBuf>),
    /// All: servers are not verified.
    Anything,
}

/// TLS of one listener.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListenerTls {
    /// The listener's own certificates. The first one is the default certificate.
    pub certificates: Vec<CertificateFiles>,
    /// Oldest version of TLS, if it differs from `Options::min_version`.
    pub min_version: Option<Version>,
    /// Certificates that clients have to send, for all names of the listener.
    pub clients: Option<ClientCertificates>,
}

/// TLS of one site.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteTls {
    /// The site's certificates, usually one, or one for each type of key.
    pub certificates: Vec<CertificateFiles>,
    /// Where the site's certificates come from while Sluice runs, in place of files.
    pub managed: Option<Management>,
    /// Whether one certificate is obtained for all hosts of the site, and not one for each.
    pub is_shared: bool,
    /// Certificates that clients have to send for this site, in place of the listener's setting.
    pub clients: Option<ClientCertificates>,
    /// The response to requests for this site in clear text.
    pub redirect: HttpsRedirect,
}

/// Where certificates come from while Sluice runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Management {
    /// From an authority, by ACME (RFC 8555).
    Acme,
    /// From an authority, by ACME, when the first handshake with a name asks for it.
    OnDemand,
    /// From Sluice's own authority, for development.
    Internal,
}

/// The response to a request in clear text for a site with TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpsRedirect {
    /// The request is answered as one over TLS.
    Off,
    /// A redirect to the same URL with `https`, at the port of a listener with TLS.
    #[default]
    On,
    /// A redirect to the same URL with `https` at this port.
    To(u16),
}

/// Defines an enumeration whose values have names in the configuration file.
macro_rules! named {
    ($(#[$meta:meta])* $type:ident { $($(#[$doc:meta])* $value:ident = $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type { $($(#[$doc])* $value,)* }

        impl $type {
            /// All values, in the order of preference.
            pub const ALL: &[$type] = &[$($type::$value,)*];

            /// Returns the name as standards and configuration files write it.
            pub fn name(self) -> &'static str {
                match self { $($type::$value => $name,)* }
            }

            /// Returns the value with this name, in upper or lower case.
            pub fn named(name: &str) -> Option<$type> {
                let all = Self::ALL.iter().copied();
                all.into_iter().find(|value| value.name().eq_ignore_ascii_case(name))
            }
        }
    };
}

named! {
    /// A group for the key exchange.
    Group {
        /// X25519 with ML-KEM-768, which also withstands quantum computers.
        X25519MlKem768 = "X25519MLKEM768",
        /// X25519 (RFC 7748).
        X25519 = "X25519",
        /// NIST P-256.
        Secp256r1 = "P-256",
        /// NIST P-384.
        Secp384r1 = "P-384",
    }
}

named! {
    /// A cipher suite. Those that begin with `TLS_ECDHE` belong to TLS 1.2.
    CipherSuite {
        /// TLS 1.3.
        Aes128Gcm = "TLS_AES_128_GCM_SHA256",
        /// TLS 1.3.
        Aes256Gcm = "TLS_AES_256_GCM_SHA384",
        /// TLS 1.3.
        ChaCha20 = "TLS_CHACHA20_POLY1305_SHA256",
        /// TLS 1.2.
        EcdsaAes128Gcm = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        /// TLS 1.2.
        EcdsaAes256Gcm = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        /// TLS 1.2.
        EcdsaChaCha20 = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        /// TLS 1.2.
        RsaAes128Gcm = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        /// TLS 1.2.
        RsaAes256Gcm = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        /// TLS 1.2.
        RsaChaCha20 = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    }
}

impl CipherSuite {
    /// Whether the suite encrypts with ChaCha20.
    pub fn is_chacha20(self) -> bool {
        matches!(
            self,
            CipherSuite::ChaCha20 | CipherSuite::EcdsaChaCha20 | CipherSuite::RsaChaCha20
        )
    }

    /// Returns the version of TLS to which the suite belongs.
    pub fn version(self) -> Version {
        match self {
            CipherSuite::Aes128Gcm | CipherSuite::Aes256Gcm | CipherSuite::ChaCha20 => {
                Version::Tls13
            }
            _ => Version::Tls12,
        }
    }
}

/// Whether a certificate for `pattern` is valid for `host`. A `*` matches exactly one label (RFC 9525 6.3). Both
/// are in lower case. A host that is a pattern itself needs the same pattern.
pub fn names_match(pattern: &str, host: &str) -> bool {
    if pattern == host {
        return true;
    }
    let (Some(rest), Some((label, parent))) = (pattern.strip_prefix("*."), host.split_once('.'))
    else {
        return false;
    };
    label != "*" && !label.is_empty() && rest == parent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_matches_one_label() {
        assert!(names_match("*.example.com", "a.example.com"));
        assert!(names_match("*.example.com", "*.example.com"));
        assert!(!names_match("*.example.com", "a.b.example.com"));
        assert!(!names_match("*.example.com", "example.com"));
        assert!(!names_match("a.example.com", "*.example.com"));
        assert!(names_match("example.com", "example.com"));
    }

    #[test]
    fn names_of_groups_and_suites_are_found_in_any_case() {
        assert_eq!(Group::named("x25519mlkem768"), Some(Group::X25519MlKem768));
        assert_eq!(Group::named("P-521"), None);
        for suite in CipherSuite::ALL {
            assert_eq!(CipherSuite::named(suite.name()), Some(*suite));
            let is_old = suite.name().starts_with("TLS_ECDHE");
            assert_eq!(suite.version() == Version::Tls12, is_old);
        }
    }
}
