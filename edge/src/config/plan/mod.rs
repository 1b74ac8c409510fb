//! The plan: a complete, checked configuration, ready to run.

mod history;
mod history_memory;
mod listener;
mod names;
mod privileges;
mod site;
mod volume;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::admin::Price;
use crate::config::value::Level;
use crate::downstream::Trust;
use crate::http::Network;
use crate::sys::ListenAddress;
use crate::telemetry::AccessOptions;
use crate::telemetry::messages::MessageTarget;
use crate::{acme, admin, cache, downstream, spool, tls, upstream};

pub use history::{HistoryMemory, HistoryPlan};
pub use listener::ListenerPlan;
pub use privileges::{Privileges, User};
pub use site::{FollowRedirects, Proxied, RouteHandler, RoutePlan, SitePlan};
pub use volume::{goes_on, segment_of};

/// Default address of the listener.
pub const LISTEN: &str = "0.0.0.0:8080";

/// Default admin address.
pub const ADMIN: &str = "127.0.0.1:9901";

/// A complete configuration, ready to run. Equal plans run identically.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Number of worker threads. 0: one per core.
    pub workers: usize,
    /// Listeners, at least one.
    pub listeners: Vec<ListenerPlan>,
    /// Limits for clients (`[limits]`).
    pub limits: downstream::Options,
    /// Options of the buffers of bodies (`[buffers]`).
    pub buffers: spool::Options,
    /// Proxies trusted to report the client's address.
    pub trust: Trust,
    /// Whether requests have ids.
    pub request_id: bool,
    /// Whether requests have traces (W3C Trace Context).
    pub trace: bool,
    /// Options of TLS (`[tls]`).
    pub tls: tls::Options,
    /// Options of certificates from authorities (`acme` in `[tls]`).
    pub acme: acme::Options,
    /// Address of the admin API, unless it is turned off.
    pub admin: Option<ListenAddress>,
    /// Host names, in lower case, by which the admin API may be addressed.
    pub admin_hosts: Vec<String>,
    /// Price of the traffic that caches save.
    pub price: Price,
    /// The file to which events are written, if there is one.
    pub admin_events: Option<PathBuf>,
    /// TLS of the admin API, if it has any.
    pub admin_tls: Option<tls::ListenerTls>,
    /// History of numbers (`history` in `[admin]`).
    pub history: HistoryPlan,
    /// Tokens of the admin API.
    pub admin_tokens: Arc<admin::Tokens>,
    /// The files of these tokens.
    pub admin_token_files: Vec<PathBuf>,
    /// Addresses that may send PURGE to a cached route.
    pub purge: Vec<Network>,
    /// Options of logs (`[log]`).
    pub log: LogOptions,
    /// User and sandbox of the process.
    pub privileges: Privileges,
    /// Volumes by name (`[volume.NAME]`).
    pub volumes: BTreeMap<String, crate::volume::Options>,
    /// Caches by name (`[cache.NAME]`).
    pub caches: BTreeMap<String, Arc<cache::Options>>,
    /// Upstreams by name (`[upstream.NAME]`).
    pub upstreams: BTreeMap<String, upstream::Options>,
    /// Sites in the order of the file, at least one.
    pub sites: Vec<SitePlan>,
}

impl Plan {
    /// Returns the route with this index, counted over all sites, and its site.
    pub fn route(&self, index: usize) -> Option<(&SitePlan, &RoutePlan)> {
        let sites = self.sites.iter();
        let mut routes = sites.flat_map(|site| site.routes.iter().map(move |route| (site, route)));
        routes.nth(index)
    }
}

/// Options of logs (`[log]`).
#[derive(Clone, Debug, PartialEq)]
pub struct LogOptions {
    /// Lowest level of messages that are logged.
    pub level: Level,
    /// Destination of messages.
    pub messages: MessageTarget,
    /// The access log, if there is one.
    pub access: Option<AccessOptions>,
}
