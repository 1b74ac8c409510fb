//! The sections of the configuration file as they were written. Each value has its position in the
//! file.
//!
//! Every key is optional here; `planner` adds defaults and checks bounds. `docs/configuration.md`
//! describes each key, and a test compares that page with these types.

mod balance;
mod compress;
mod eject;
mod health;
mod redirects;
mod server;
mod sticky;
mod tables;
mod tls;
mod tokens;
mod words;

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::value::{
    Ahead, AllowList, Key, Level, List, Named, Names, OrFalse, OrTable, Pairs, Parallel, Sandbox,
    Size, Statuses, Switch, SwitchOrFolder, Table, Time, Word, Words, word,
};
use crate::store::disk_tier::PlacementKind;
use crate::{evict, fill};

pub use balance::{BalanceFile, BalanceTable};
pub use compress::{CompressFile, CompressForm};
pub use eject::EjectFile;
pub use health::HealthFile;
pub use redirects::FollowForm;
pub use server::{HttpVersion, ServerFile, TcpFile};
pub use sticky::StickyFile;
pub use tables::*;
pub use tls::*;
pub use tokens::TokensFile;
pub use words::*;

/// Passes the keys of the caching rules, which `[cache.NAME]` and `[[site.route]]` share, to the
/// macro `$make`, after the section's other keys `$own`. The keys are listed only here. (serde's
/// `flatten` would lose their positions in the file, and accept unknown keys.)
macro_rules! rule_keys {
    ($make:ident $own:tt) => {
        $make! { $own {
            valid: Key<OrFalse<Statuses>>,
            heuristic: Key<Time>,
            lifetime_min: Key<Time>,
            lifetime_max: Key<Time>,
            stale_while_revalidate: Key<Time>,
            stale_if_error: Key<Time>,
            stale_while_updating: Key<Time>,
            ignore_headers: Option<Words<Ignorable>>,
            set_cookie: Key<Word<Cookies>>,
            target_list: Option<Names>,
            tag_headers: Option<Names>,
            client_cache_control: Key<bool>,
            key: Key<String>,
            query_sort: Key<bool>,
            query_ignore: Option<Names>,
            query_only: Option<Names>,
            languages: Option<Names>,
            bypass: Key<OrFalse<Table<BypassFile>>>,
            methods: Option<Words<Usable>>,
            invalidate_on: Option<Names>,
            forward_headers: Option<Names>,
            trusted_headers: Option<Names>,
            hit_for_pass: Key<Time>,
        } }
    };
}

/// Defines the type of a section's caching rules.
macro_rules! rules_file {
    (() { $($key:ident: $kind:ty,)* }) => {
        /// The caching rules of a section.
        #[derive(Clone, Debug, Default)]
        #[allow(missing_docs, reason = "docs/configuration.md describes each key")]
        pub struct RulesFile {
            $(pub $key: $kind,)*
        }

        impl RulesFile {
            /// Returns the keys that were written, each with its position in the file.
            pub fn typed(&self) -> Vec<(&'static str, Range<usize>)> {
                let keys = [$((stringify!($key), self.$key.as_ref().map(|typed| typed.span())),)*];
                keys.into_iter()
                    .filter_map(|(key, at)| Some((key, at?)))
                    .collect()
            }
        }
    };
}

/// Defines the type of a section that has caching rules in addition to other keys.
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
            $(pub $key: $kind,)*
        }

        impl $name {
            /// Returns the section's caching rules.
            pub fn rules(&self) -> RulesFile {
                RulesFile { $($key: self.$key.clone(),)* }
            }
        }
    };
}

rule_keys!(rules_file());

/// The whole configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct File {
    pub server: ServerSection,
    pub limits: LimitsFile,
    pub buffers: BuffersFile,
    pub listen: Option<Names>,
    pub listener: Vec<Spanned<ListenerFile>>,
    pub tls: TlsFile,
    pub admin: AdminFile,
    pub log: LogFile,
    pub volume: Named<VolumeFile>,
    pub cache: Named<CacheFile>,
    pub upstream: Named<UpstreamFile>,
    pub site: Vec<Spanned<SiteFile>>,
    pub route: Vec<Spanned<RouteFile>>,
}

/// The section `[server]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct ServerSection {
    pub user: Key<String>,
    pub sandbox: Key<Sandbox>,
    pub workers: Key<u64>,
    pub trusted_proxies: Option<Names>,
    pub client_ip_header: Key<Word<ClientHeader>>,
    pub resolver: Option<Names>,
    pub request_id: Option<bool>,
    pub trace: Option<bool>,
}

/// The section `[buffers]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct BuffersFile {
    pub memory: Key<Size>,
    pub folder: Key<String>,
    pub memory_per_body: Key<Size>,
    pub disk: Key<Size>,
    pub disk_per_body: Key<Size>,
    pub disk_timeout: Key<Time>,
}

/// The section `[limits]`.
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
    pub max_streams: Key<u64>,
    pub connections: Key<u64>,
    pub connections_per_ip: Key<u64>,
    pub handshake_timeout: Key<Time>,
    pub handshakes: Key<u64>,
    pub handshakes_per_ip: Key<u64>,
    pub request_memory: Key<Size>,
    pub min_rate: Key<Size>,
    pub min_rate_grace: Key<Time>,
    pub tunnel_timeout: Key<Time>,
    pub shutdown_timeout: Key<Time>,
}

/// The section `[[listener]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct ListenerFile {
    pub address: Key<String>,
    pub backlog: Key<u64>,
    pub defer_accept: Option<bool>,
    pub receive_buffer: Key<Size>,
    pub send_buffer: Key<Size>,
    pub tcp_keepalive: Key<Time>,
    pub ipv6_only: Key<bool>,
    pub proxy_protocol: Key<OrFalse<Word<ProxyVersion>>>,
    pub trusted: Option<Names>,
    pub half_close: Option<bool>,
    pub protocols: Option<List<Word<ProtocolName>, true>>,
    pub tls: Key<Switch<ListenerTlsFile>>,
}

/// The section `[admin]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct AdminFile {
    pub address: Key<OrFalse<String>>,
    pub hosts: Option<Names>,
    pub purge_from: Option<Names>,
    pub price_per_gb: Key<f64>,
    pub price_currency: Key<String>,
    pub events: Key<OrFalse<String>>,
    pub tls: Key<OrFalse<Table<AdminTlsFile>>>,
    pub history: Key<SwitchOrFolder>,
    pub token: Key<OrFalse<Table<TokensFile>>>,
    pub operators: Key<OrFalse<Table<TokensFile>>>,
    pub readers: Key<OrFalse<Table<TokensFile>>>,
}

/// The section `[log]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct LogFile {
    pub access: Key<OrFalse<String>>,
    pub format: Key<String>,
    pub buffer: Key<Size>,
    pub flush: Key<Time>,
    pub error: Key<String>,
    pub level: Option<OrFalse<Word<Level>>>,
}

/// The section `[volume.NAME]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct VolumeFile {
    pub path: Key<String>,
    pub size: Key<Size>,
    pub segment: Key<Size>,
    pub queue: Key<Size>,
    pub write_delay: Key<Time>,
    pub readers: Key<u64>,
    pub read_timeout: Key<Time>,
    pub retry: Key<Time>,
    pub overwrite: Option<bool>,
}

rule_keys!(section(
    /// The section `[cache.NAME]`.
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
        max_object_size: Key<Size>,
        volumes: Option<Names>,
        placement: Key<Word<PlacementKind>>,
        weights: Key<Vec<Spanned<u64>>>,
        inactive: Key<Time>,
        min_uses: Key<u64>,
        admit_min: Key<Size>,
        admit_max: Key<Size>,
    }
));

/// The section `[upstream.NAME]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct UpstreamFile {
    pub servers: Option<List<ServerFile, true>>,
    pub balance: Key<BalanceFile>,
    pub keepalive: Key<OrFalse<u64>>,
    pub keepalive_requests: Key<OrFalse<u64>>,
    pub keepalive_timeout: Key<Time>,
    pub connect_timeout: Key<Time>,
    pub read_timeout: Key<Time>,
    pub min_rate: Key<Size>,
    pub send_timeout: Key<Time>,
    pub max_connections: Key<u64>,
    pub queue: Key<u64>,
    pub queue_timeout: Key<Time>,
    pub tcp: Key<Table<TcpFile>>,
    pub http: Key<Word<HttpVersion>>,
    pub sticky: Key<OrFalse<Table<StickyFile>>>,
    pub health: Key<OrFalse<Table<HealthFile>>>,
    pub eject: Key<OrFalse<Table<EjectFile>>>,
    pub slow_start: Key<OrFalse<Time>>,
    pub retry: Key<OrFalse<Table<RetryFile>>>,
    pub tls: Key<Table<ServerTlsFile>>,
    pub hedge: Key<OrFalse<Table<HedgeFile>>>,
    pub max_response_headers: Key<Size>,
    pub host: Key<String>,
    pub via: Option<bool>,
    pub x_real_ip: Option<bool>,
    pub sign: Key<Table<SignFile>>,
}

/// The section `[[site]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct SiteFile {
    pub hosts: Option<Names>,
    pub tls: Key<OrTable<SiteTlsFile>>,
    pub compress: Key<CompressForm>,
    pub allow: Option<AllowList>,
    pub deny: Option<Names>,
    pub limit: Key<OrFalse<Table<LimitFile>>>,
    pub allow_methods: Option<Names>,
    pub client_certificate: Key<bool>,
    pub signed_urls: Key<OrFalse<Table<SignedFile>>>,
    pub cache_control: Key<OrFalse<String>>,
    pub error_pages: Key<OrFalse<Table<PagesFile>>>,
    pub expires: Key<OrFalse<OrTable<ExpiresFile>>>,
    pub intercept_errors: Key<bool>,
    pub request_headers: Key<OrFalse<Table<HeadersFile>>>,
    pub response_headers: Key<OrFalse<Table<HeadersFile>>>,
    pub security_headers: Option<bool>,
    pub log: Key<Switch<RouteLogFile>>,
    pub route: Vec<Spanned<RouteFile>>,
}

rule_keys!(section(
    /// The sections `[[site.route]]` and `[[route]]`.
    RouteFile {
        path: Key<String>,
        path_regex: Key<String>,
        query: Key<String>,
        proxy: Key<String>,
        rewrite: Key<Pairs>,
        write_back: Key<bool>,
        follow_redirects: Key<FollowForm>,
        request_buffering: Key<bool>,
        response_buffering: Key<bool>,
        cache: Key<String>,
        files: Key<OrTable<FilesFile>>,
        compress: Key<CompressForm>,
        allow: Option<AllowList>,
        deny: Option<Names>,
        limit: Key<OrFalse<Table<LimitFile>>>,
        allow_methods: Option<Names>,
        client_certificate: Key<bool>,
        signed_urls: Key<OrFalse<Table<SignedFile>>>,
        respond: Key<OrTable<RespondFile>>,
        redirect: Key<OrTable<RedirectFile>>,
        cache_control: Key<OrFalse<String>>,
        error_pages: Key<OrFalse<Table<PagesFile>>>,
        expires: Key<OrFalse<OrTable<ExpiresFile>>>,
        intercept_errors: Key<bool>,
        request_headers: Key<OrFalse<Table<HeadersFile>>>,
        response_headers: Key<OrFalse<Table<HeadersFile>>>,
        security_headers: Option<bool>,
        log: Key<Switch<RouteLogFile>>,
    }
));
