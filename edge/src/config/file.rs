//! What was typed: the configuration file as it stands, each value with its place in the text.
//!
//! Every key is optional here; `plan` knows the defaults and the bounds. A key that nothing reads does
//! not exist. `docs/configuration.md` describes each one, and a test compares the two.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::value::{Ahead, Parallel, ServerFile, Size, Statuses, Time, statuses, word};
use crate::telemetry::AccessFormat;
use crate::{balance, evict, fill};

/// A value that may be missing, with its place.
pub type Key<T> = Option<Spanned<T>>;

/// Named sections: `[cache.NAME]`.
pub type Named<T> = BTreeMap<Spanned<String>, T>;

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct File {
    pub server: ServerSection,
    pub limits: LimitsFile,
    pub listener: Vec<Spanned<ListenerFile>>,
    pub admin: AdminFile,
    pub log: LogFile,
    pub cache: Named<CacheFile>,
    pub upstream: Named<UpstreamFile>,
    pub site: Vec<Spanned<SiteFile>>,
}

/// `[server]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct ServerSection {
    pub workers: Key<u64>,
}

/// `[limits]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct LimitsFile {
    pub request_line: Key<Size>,
    pub headers: Key<Size>,
    pub body: Key<Size>,
    pub header_timeout: Key<Time>,
    pub body_timeout: Key<Time>,
    pub send_timeout: Key<Time>,
    pub keepalive_timeout: Key<Time>,
    pub keepalive_header: Option<bool>,
    pub keepalive_requests: Key<u64>,
    pub connections: Key<u64>,
    pub min_rate: Key<Size>,
    pub min_rate_grace: Key<Time>,
    pub drain: Key<Time>,
}

/// `[[listener]]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct ListenerFile {
    pub address: Key<String>,
}

/// `[admin]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct AdminFile {
    pub address: Key<String>,
}

/// `[log]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct LogFile {
    pub access: Key<String>,
    #[serde(deserialize_with = "word")]
    pub format: Option<AccessFormat>,
    pub buffer: Key<Size>,
    pub flush: Key<Time>,
    #[serde(deserialize_with = "word")]
    pub level: Option<super::Level>,
}

/// `[cache.NAME]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct CacheFile {
    pub memory: Key<Size>,
    #[serde(deserialize_with = "word")]
    pub evict: Option<evict::Kind>,
    #[serde(deserialize_with = "word")]
    pub fill: Option<fill::Kind>,
    pub slice: Key<Size>,
    pub parallel: Key<Parallel>,
    pub read_ahead: Key<Ahead>,
    pub lock_timeout: Key<Time>,
    pub lock_age: Key<Time>,
    pub client_budget: Key<Size>,
    #[serde(deserialize_with = "statuses")]
    pub valid: Statuses,
    pub object: Key<Size>,
}

/// `[upstream.NAME]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct UpstreamFile {
    pub servers: Key<Vec<Spanned<ServerFile>>>,
    #[serde(deserialize_with = "word")]
    pub balance: Option<balance::Kind>,
    pub keepalive: Key<u64>,
    pub keepalive_requests: Key<u64>,
    pub keepalive_timeout: Key<Time>,
    pub connect_timeout: Key<Time>,
    pub read_timeout: Key<Time>,
    pub send_timeout: Key<Time>,
    pub connections: Key<u64>,
    pub queue: Key<u64>,
    pub retries: Key<u64>,
    pub head: Key<Size>,
    pub host: Key<String>,
}

/// `[[site]]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct SiteFile {
    pub hosts: Vec<Spanned<String>>,
    pub route: Vec<Spanned<RouteFile>>,
}

/// `[[site.route]]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct RouteFile {
    pub path: Key<String>,
    pub r#match: Key<String>,
    pub proxy: Key<String>,
    pub cache: Key<String>,
}
