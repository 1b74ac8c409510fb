//! The plan: a complete, checked configuration, ready to run.

mod listener;
mod privileges;
mod site;
mod volume;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::config::value::Level;
use crate::downstream::Trust;
use crate::http::Network;
use crate::telemetry::AccessOptions;
use crate::telemetry::messages::MessageTarget;
use crate::{cache, downstream, upstream};

pub use listener::ListenerPlan;
pub use privileges::{Privileges, User};
pub use site::{LeadsTo, Proxied, RoutePlan, SitePlan};
pub use volume::{goes_on, segment_of};

/// The listener's address unless the configuration says otherwise.
pub const LISTEN: &str = "0.0.0.0:8080";

/// The admin address unless the configuration says otherwise.
pub const ADMIN: &str = "127.0.0.1:9901";

/// A whole configuration, ready to run. Two that are equal run the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Worker threads; 0: one per core.
    pub workers: usize,
    /// At least one.
    pub listeners: Vec<ListenerPlan>,
    /// `[limits]`.
    pub limits: downstream::Options,
    /// Proxies trusted to report the client's address.
    pub trust: Trust,
    /// Address of the admin API, if it is on.
    pub admin: Option<SocketAddr>,
    /// Addresses that may send PURGE to a cached route.
    pub purge: Vec<Network>,
    /// `[log]`.
    pub log: LogOptions,
    /// User and sandbox.
    pub privileges: Privileges,
    /// `[volume.NAME]`.
    pub volumes: BTreeMap<String, crate::volume::Options>,
    /// `[cache.NAME]`.
    pub caches: BTreeMap<String, cache::Options>,
    /// `[upstream.NAME]`.
    pub upstreams: BTreeMap<String, upstream::Options>,
    /// The sites, in order; at least one.
    pub sites: Vec<SitePlan>,
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq)]
pub struct LogOptions {
    /// Least level of messages.
    pub level: Level,
    /// Target of messages.
    pub messages: MessageTarget,
    /// The access log, if there is one.
    pub access: Option<AccessOptions>,
}
