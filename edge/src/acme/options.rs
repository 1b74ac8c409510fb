//! The options of certificates from authorities with ACME (RFC 8555), as the plan has them.

use std::path::PathBuf;

use crate::tls::{ClientOptions, Trust};

use super::dns::DnsOptions;

/// Address of Let's Encrypt's directory.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// Address of the directory of Let's Encrypt's test environment, whose certificates nobody trusts.
pub const LETS_ENCRYPT_STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// Folder of the state of services by default.
pub const STATE: &str = "/var/lib/sluice/certificates";

/// Most orders to each authority in three hours by default. Let's Encrypt permits 300.
const ORDERS_MAX: usize = 250;

/// Options of all certificates (`acme` in `[tls]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The authorities' directories. Each is asked if those before it have failed.
    pub directories: Vec<Directory>,
    /// Address to which the authority sends messages.
    pub email: Option<String>,
    /// The ways to prove the control of a name, the preferred one first.
    pub challenges: Vec<Challenge>,
    /// How the records of DNS-01 are set.
    pub dns: Option<DnsOptions>,
    /// Name of the authority's profile, which decides the lifetime, among others.
    pub profile: Option<String>,
    /// Most orders to each authority in three hours.
    pub orders_max: usize,
    /// The names for which a handshake may ask.
    pub on_demand: OnDemand,
    /// Type of the certificates' keys.
    pub key_type: KeyType,
    /// Folder of accounts, certificates and keys.
    pub state: PathBuf,
    /// Files of the authorities (PEM) by which the directories' own certificates are verified, in place of the system's.
    pub trusted: Vec<PathBuf>,
    /// Whether a self-signed certificate is used for a name until an authority has issued one.
    pub self_signed: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            directories: vec![Directory {
                url: LETS_ENCRYPT.to_owned(),
                binding: None,
            }],
            email: None,
            challenges: vec![Challenge::Http01, Challenge::TlsAlpn01],
            dns: None,
            profile: None,
            orders_max: ORDERS_MAX,
            on_demand: OnDemand::default(),
            key_type: KeyType::default(),
            state: STATE.into(),
            trusted: Vec::new(),
            self_signed: false,
        }
    }
}

impl Options {
    /// Returns the TLS of connections to directories.
    pub fn client(&self) -> ClientOptions {
        ClientOptions {
            trust: match self.trusted.is_empty() {
                true => Trust::System,
                false => Trust::Authorities(self.trusted.clone()),
            },
            protocols: vec!["http/1.1".to_owned()],
            ..ClientOptions::default()
        }
    }

    /// Returns a short name of the settings on which the success of an attempt depends. After a change of one, a failed
    /// attempt is repeated at once.
    pub fn settings(&self) -> String {
        let settings = (
            &self.directories,
            &self.challenges,
            &self.profile,
            &self.dns,
        );
        let text = format!("{settings:?} {:?} {:?}", self.key_type, self.email);
        blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
    }
}

/// The names for which a handshake may ask. A name needs the permission of both, if both are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnDemand {
    /// The names, in lower case, or `*.name`; `None`: all.
    pub allow: Option<Vec<String>>,
    /// A URL that is asked about each name.
    pub ask: Option<String>,
}

/// The directory of an authority (RFC 8555 7.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Its URL, with `https`.
    pub url: String,
    /// The account with the authority to which the ACME account is bound, if the authority demands that.
    pub binding: Option<Binding>,
}

impl OnDemand {
    /// Whether a text is a URL that can be asked.
    pub fn is_url(text: &str) -> bool {
        let uri = text.parse::<http::Uri>();
        uri.is_ok_and(|uri| {
            let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
            is_http && uri.host().is_some() && !text.contains('#')
        })
    }
}

impl Directory {
    /// Whether a text is the URL of a directory: one with `https` and a host.
    pub fn is_url(text: &str) -> bool {
        let uri = text.parse::<http::Uri>();
        uri.is_ok_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some())
    }
}

/// External account binding (RFC 8555 7.3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Id of the key, from the authority.
    pub key_id: String,
    /// File of the key itself, in base64url.
    pub key: PathBuf,
}

/// A way to prove the control of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// A file at `http://NAME/.well-known/acme-challenge/` (RFC 8555 8.3).
    Http01,
    /// A certificate for the protocol `acme-tls/1` on port 443 (RFC 8737).
    TlsAlpn01,
    /// A TXT record of the name (RFC 8555 8.4), the only proof for a wildcard.
    Dns01,
}

impl Challenge {
    /// All challenges.
    pub const ALL: &[Challenge] = &[Challenge::Http01, Challenge::TlsAlpn01, Challenge::Dns01];

    /// Returns the name in the standards and in configuration files.
    pub fn name(self) -> &'static str {
        match self {
            Challenge::Http01 => "http-01",
            Challenge::TlsAlpn01 => "tls-alpn-01",
            Challenge::Dns01 => "dns-01",
        }
    }

    /// Returns the challenge with this name.
    pub fn named(name: &str) -> Option<Challenge> {
        let mut all = Self::ALL.iter().copied();
        all.find(|challenge| challenge.name() == name)
    }
}

/// The type of a certificate's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyType {
    /// ECDSA with P-256.
    #[default]
    P256,
    /// ECDSA with P-384.
    P384,
    /// RSA with 2048 bits.
    Rsa2048,
}
