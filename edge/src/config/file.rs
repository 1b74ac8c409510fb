//! What was typed: the configuration file as it stands, each value with its place in the text.
//!
//! Every key is optional here; `plan` knows the defaults and the bounds. A key that nothing reads does
//! not exist. `docs/configuration.md` describes each one, and a test compares the two.

mod tables;

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::compress::{CompressFile, ListOrTable};
use super::gate::OrOff;
use super::privileges::Confine;
use super::value::{
    Ahead, Cookies, Ignorable, OrTable, Parallel, ServerFile, Size, Statuses, Table, Time, Usable,
    Word, word,
};
use crate::store::disk_tier::{Admit, PlacementKind};
use crate::{balance, evict, fill};

pub use tables::*;

/// A value that may be missing, with its place.
pub type Key<T> = Option<Spanned<T>>;

/// Named sections: `[cache.NAME]`.
pub type Named<T> = BTreeMap<Spanned<String>, T>;

/// Names, each with its place.
pub type Names = Vec<Spanned<String>>;

/// Words of a kind, each with its place.
pub type Words<T> = Vec<Spanned<Word<T>>>;

/// The keys of the caching rules, which `[cache.NAME]` and `[[site.route]]` share. They are listed
/// here alone: `$make` gets them after `$own`. (serde's `flatten` would lose their places in the
/// text, and let unknown keys pass.)
macro_rules! rule_keys {
    ($make:ident $own:tt) => {
        $make! { $own {
            valid: Statuses,
            heuristic: Time,
            lifetime_min: Time,
            lifetime_max: Time,
            stale_while_revalidate: Time,
            stale_if_error: Time,
            stale_while_updating: Time,
            ignore: Words<Ignorable>,
            set_cookie: Word<Cookies>,
            targets: Names,
            tags: Names,
            client_directives: bool,
            key: String,
            query_sort: bool,
            query_ignore: Names,
            query_only: Names,
            languages: Names,
            bypass: Table<BypassFile>,
            methods: Words<Usable>,
            forward: Names,
            pass_for: Time,
        } }
    };
}

/// What holds the caching rules of a section.
macro_rules! rules_file {
    (() { $($key:ident: $kind:ty,)* }) => {
        /// The caching rules that a section typed.
        #[derive(Clone, Debug, Default)]
        #[allow(missing_docs, reason = "docs/configuration.md describes each key")]
        pub struct RulesFile {
            $(pub $key: Key<$kind>,)*
        }

        impl RulesFile {
            /// The keys that were typed, each with its place.
            pub fn typed(&self) -> Vec<(&'static str, Range<usize>)> {
                let keys = [$((stringify!($key), self.$key.as_ref().map(Spanned::span)),)*];
                keys.into_iter()
                    .filter_map(|(key, at)| Some((key, at?)))
                    .collect()
            }
        }
    };
}

/// A section that has caching rules beside its own keys.
macro_rules! section {
    (
        ($(#[$meta:meta])* $name:ident { $($(#[$of:meta])* $own:ident: $own_kind:ty,)* })
        { $($key:ident: $kind:ty,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        #[allow(missing_docs, reason = "docs/configuration.md describes each key")]
        pub struct $name {
            $($(#[$of])* pub $own: $own_kind,)*
            $(pub $key: Key<$kind>,)*
        }

        impl $name {
            /// Its caching rules.
            pub fn rules(&self) -> RulesFile {
                RulesFile { $($key: self.$key.clone(),)* }
            }
        }
    };
}

rule_keys!(rules_file());

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
    pub volume: Named<VolumeFile>,
    pub cache: Named<CacheFile>,
    pub upstream: Named<UpstreamFile>,
    pub site: Vec<Spanned<SiteFile>>,
}

/// `[server]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct ServerSection {
    pub user: Key<String>,
    pub confine: Key<Confine>,
    pub workers: Key<u64>,
    pub trusted_proxies: Key<Names>,
    pub client_field: Key<Word<ClientWord>>,
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
    pub connections_per_address: Key<u64>,
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
    pub backlog: Key<u64>,
    pub defer_accept: Option<bool>,
    pub receive_buffer: Key<Size>,
    pub send_buffer: Key<Size>,
    pub keepalive: Key<Time>,
    pub proxy_protocol: Key<Word<ProxyWord>>,
    pub trusted: Key<Names>,
}

/// `proxy_protocol = "…"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "docs/configuration.md describes each word")]
pub enum ProxyWord {
    #[default]
    Off,
    V1,
    V2,
    Any,
}

/// `client_field = "…"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "docs/configuration.md describes each word")]
pub enum ClientWord {
    #[default]
    XForwardedFor,
    Forwarded,
}

/// `[admin]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct AdminFile {
    pub address: Key<String>,
    pub purge: Key<Names>,
}

/// `[log]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct LogFile {
    pub access: Key<String>,
    pub format: Key<String>,
    pub buffer: Key<Size>,
    pub flush: Key<Time>,
    pub error: Key<String>,
    #[serde(deserialize_with = "word")]
    pub level: Option<super::Level>,
}

/// `[volume.NAME]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct VolumeFile {
    pub path: Key<String>,
    pub size: Key<Size>,
    pub segment: Key<Size>,
    pub queue: Key<Size>,
    pub readers: Key<u64>,
    pub read_timeout: Key<Time>,
    pub retry: Key<Time>,
    pub overwrite: Option<bool>,
}

rule_keys!(section(
    /// `[cache.NAME]`
    CacheFile {
        memory: Key<Size>,
        #[serde(deserialize_with = "word")]
        evict: Option<evict::Kind>,
        #[serde(deserialize_with = "word")]
        fill: Option<fill::Kind>,
        slice: Key<Size>,
        parallel: Key<Parallel>,
        read_ahead: Key<Ahead>,
        lock_timeout: Key<Time>,
        lock_age: Key<Time>,
        client_budget: Key<Size>,
        object: Key<Size>,
        volumes: Key<Names>,
        placement: Key<Word<PlacementKind>>,
        weights: Key<Vec<Spanned<u64>>>,
        inactive: Key<Time>,
        admit: Key<Word<Admit>>,
        admit_min: Key<Size>,
        admit_max: Key<Size>,
    }
));

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
    pub compress: Key<ListOrTable<CompressFile>>,
    pub allow: Key<Names>,
    pub deny: Key<Names>,
    pub limit: Key<OrOff<LimitFile>>,
    pub signed: Key<OrOff<SignedFile>>,
    pub cache_control: Key<String>,
    pub errors: Key<ErrorsFile>,
    pub expires: Key<OrTable<ExpiresFile>>,
    pub intercept: Key<bool>,
    pub request_fields: Key<Table<FieldsFile>>,
    pub response_fields: Key<Table<FieldsFile>>,
    pub security: Option<bool>,
    pub log: Key<OrTable<RouteLogFile>>,
    pub route: Vec<Spanned<RouteFile>>,
}

rule_keys!(section(
    /// `[[site.route]]`
    RouteFile {
        path: Key<String>,
        r#match: Key<String>,
        proxy: Key<String>,
        cache: Key<String>,
        files: Key<OrTable<FilesFile>>,
        compress: Key<ListOrTable<CompressFile>>,
        allow: Key<Names>,
        deny: Key<Names>,
        limit: Key<OrOff<LimitFile>>,
        signed: Key<OrOff<SignedFile>>,
        respond: Key<OrTable<RespondFile>>,
        redirect: Key<OrTable<RedirectFile>>,
        cache_control: Key<String>,
        errors: Key<ErrorsFile>,
        expires: Key<OrTable<ExpiresFile>>,
        intercept: Key<bool>,
        request_fields: Key<Table<FieldsFile>>,
        response_fields: Key<Table<FieldsFile>>,
        security: Option<bool>,
        log: Key<OrTable<RouteLogFile>>,
    }
));
