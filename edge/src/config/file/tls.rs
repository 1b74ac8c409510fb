//! The section `[tls]`, and `tls` of listeners, sites and the admin address.

use serde::Deserialize;
use toml::Spanned;

use crate::config::value::{
    ACME, DNS, EXTERNAL_ACCOUNT, Key, Names, ON_DEMAND, OrFalse, SERVER_TLS, Shaped, SwitchOrPort,
    TLS, Table, Time, Word,
};

/// The section `[tls]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct TlsFile {
    pub min_version: Key<Word<TlsVersion>>,
    pub groups: Option<Names>,
    pub ciphers: Option<Names>,
    pub unknown_name: Key<Word<UnknownNameFile>>,
    pub tickets: Option<Names>,
    pub key_log: Key<bool>,
    pub acme: Key<Table<AcmeFile>>,
}

/// Value of `acme` in `[tls]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct AcmeFile {
    pub directory: Option<Names>,
    pub email: Key<String>,
    pub challenge: Option<Names>,
    pub dns: Key<Table<DnsFile>>,
    pub profile: Key<String>,
    pub key_type: Key<Word<KeyTypeFile>>,
    pub state: Key<String>,
    pub ca: Option<Names>,
    pub orders: Key<u64>,
    pub self_signed: Key<bool>,
    pub external_account: Key<Table<ExternalAccountFile>>,
    pub on_demand: Key<Table<OnDemandFile>>,
}

impl Shaped for AcmeFile {
    const SHAPE: &str = ACME;
}

/// Value of `dns` in `acme`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct DnsFile {
    pub program: Option<Names>,
    pub timeout: Key<Time>,
    pub server: Key<String>,
    pub key_name: Key<String>,
    pub key: Key<String>,
    pub algorithm: Key<Word<AlgorithmFile>>,
    pub zone: Key<String>,
    pub ttl: Key<Time>,
    pub propagation: Key<OrFalse<Time>>,
    pub name_servers: Option<Names>,
}

impl Shaped for DnsFile {
    const SHAPE: &str = DNS;
}

/// Value of `algorithm` in `dns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "each is the algorithm of its name")]
pub enum AlgorithmFile {
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
    #[serde(rename = "hmac-sha384")]
    HmacSha384,
    #[serde(rename = "hmac-sha512")]
    HmacSha512,
}

/// Value of `external_account` in `acme`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct ExternalAccountFile {
    pub id: Key<String>,
    pub key: Key<String>,
}

impl Shaped for ExternalAccountFile {
    const SHAPE: &str = EXTERNAL_ACCOUNT;
}

/// Value of `on_demand` in `acme`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct OnDemandFile {
    pub allow: Option<Names>,
    pub ask: Key<String>,
}

impl Shaped for OnDemandFile {
    const SHAPE: &str = ON_DEMAND;
}

/// Value of `key_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "docs/configuration.md describes each word")]
pub enum KeyTypeFile {
    P256,
    P384,
    Rsa2048,
}

/// Value of `tls` of a listener, if it is a table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct ListenerTlsFile {
    pub certificate: Option<Names>,
    pub key: Option<Names>,
    pub min_version: Key<Word<TlsVersion>>,
    pub client_ca: Key<String>,
    pub client_certificate: Key<Word<ClientCertificateFile>>,
}

/// Value of `tls` of a site.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct SiteTlsFile {
    pub certificate: Option<Names>,
    pub key: Option<Names>,
    pub client_ca: Key<String>,
    pub client_certificate: Key<Word<ClientCertificateFile>>,
    pub shared: Key<bool>,
    pub redirect: Key<SwitchOrPort>,
}

impl Shaped for SiteTlsFile {
    const SHAPE: &str = TLS;
}

/// The short form: `"auto"` or `"internal"`, which are also values of `certificate`.
impl From<Spanned<String>> for SiteTlsFile {
    fn from(word: Spanned<String>) -> SiteTlsFile {
        let span = word.span();
        SiteTlsFile {
            certificate: Some(Names::of(vec![word], span)),
            ..SiteTlsFile::default()
        }
    }
}

/// Value of `tls` of the admin address.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct AdminTlsFile {
    pub certificate: Option<Names>,
    pub key: Option<Names>,
    pub min_version: Key<Word<TlsVersion>>,
    pub client_ca: Key<String>,
}

impl Shaped for AdminTlsFile {
    const SHAPE: &str = TLS;
}

/// Value of `tls` of an upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct ServerTlsFile {
    pub ca: Option<Names>,
    pub server_name: Key<String>,
    pub certificate: Key<String>,
    pub key: Key<String>,
    pub verify: Key<bool>,
}

impl Shaped for ServerTlsFile {
    const SHAPE: &str = SERVER_TLS;
}

/// Value of `min_version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "each is the version of its name")]
pub enum TlsVersion {
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}

/// Value of `unknown_name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "docs/configuration.md describes each word")]
pub enum UnknownNameFile {
    Default,
    Refuse,
}

/// Value of `client_certificate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "docs/configuration.md describes each word")]
pub enum ClientCertificateFile {
    #[default]
    Require,
    Request,
}
