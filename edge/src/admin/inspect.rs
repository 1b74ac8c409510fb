//! The interface between the admin API and Sluice.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::certificate_state::{CertificateOrder, Certificates, Ordered};
use super::change::Change;
use super::explanation::{Explanation, Question};
use super::fetch_order::{FetchOrder, Fetching};
use super::object::UrlState;
use super::price::Price;
use super::purge::{Order, Purging, Refusal};
use super::server_exchanges::ServerExchanges;
use super::server_order::ServerOrder;
use super::status::{Status, UpstreamState};
use super::tokens::Tokens;
use super::what_if_state::WhatIf;
use crate::telemetry::Observed;
use crate::telemetry::history::SharedHistory;
use crate::tls;

/// The interface, as all requests share it.
pub(super) type Shared = Arc<dyn Inspect>;

/// The objects of a URL.
#[derive(Debug, Default)]
pub struct UrlObjects {
    /// The caches that have objects of the URL.
    pub caches: Vec<UrlState>,
    /// Advice for a URL without objects.
    pub note: Option<String>,
}

/// The interface between the admin API and Sluice. Called on the admin thread or on a thread for blocking
/// work, never on a worker.
pub trait Inspect: Send + Sync {
    /// Records the counters and request durations for the rates of the last seconds. Called once per second.
    fn note_counters(&self);

    /// Returns the collected samples and events.
    fn observed(&self) -> &Observed;

    /// Returns the state of everything. Must return quickly.
    fn status(&self) -> Status;

    /// Returns the history of numbers; `None` if it is off.
    fn history(&self) -> Option<Arc<SharedHistory>>;

    /// Whether the admin API may be addressed by this host name, which is in lower case and has no
    /// final dot. IP addresses and `localhost` are always permitted.
    fn is_admin_host(&self, name: &str) -> bool;

    /// Returns the price of the traffic that caches save.
    fn price(&self) -> Price;

    /// Returns the name of this machine; empty if it is not known.
    fn host_name(&self) -> String;

    /// Returns the tokens of requests.
    fn admin_tokens(&self) -> Arc<Tokens>;

    /// Returns the time since some moment, in microseconds.
    fn now_us(&self) -> u64;

    /// Records a change that a client has made, or tried to make.
    fn note_change(&self, change: &Change) {
        change.log();
    }

    /// Returns the TLS of new connections. `None`: they are in clear text.
    fn admin_tls(&self) -> Option<Arc<tls::Server>>;

    /// Returns the objects of a URL, stored or being fetched, for each cache that has some. `headers`
    /// are the lines of request headers, as in `Accept-Language: de`, which a key may contain.
    ///
    /// # Errors
    ///
    /// The URL or a header is invalid (400). The text says why.
    fn url(&self, url: &str, headers: &str) -> Result<UrlObjects, String>;

    /// Explains what would happen to a request. Sends and counts nothing. May read folders of files.
    ///
    /// # Errors
    ///
    /// The URL, the method, a header or the client's address is invalid (400). The text says why.
    fn explain(&self, question: &Question) -> Result<Explanation, String>;

    /// Begins to fetch the missing bytes of a URL.
    ///
    /// # Errors
    ///
    /// The URL can't be fetched, or too many fetches are in progress. The refusal says why.
    fn fetch(&self, order: FetchOrder) -> Result<Fetching, Refusal>;

    /// Purges. The purge is in effect when this function returns.
    ///
    /// # Errors
    ///
    /// Nothing, or not everything, was purged. The refusal says why.
    fn purge(&self, order: &Order) -> Result<Purging, Refusal>;

    /// Returns the state of all upstreams' servers. Must return quickly.
    fn upstreams(&self) -> BTreeMap<String, UpstreamState>;

    /// Returns the last exchanges with the servers of the upstream of this name. Must return quickly.
    ///
    /// # Errors
    ///
    /// There is no such upstream. The refusal says which ones there are.
    fn exchanges(&self, upstream: &str) -> Result<ServerExchanges, Refusal>;

    /// Carries out an order about a server.
    ///
    /// # Errors
    ///
    /// There is no such server. The refusal says which ones there are.
    fn order_server(&self, order: &ServerOrder) -> Result<(), Refusal>;

    /// Returns the hit ratios that the caches would have with other sizes. Must return quickly.
    fn what_if(&self) -> WhatIf;

    /// Returns the state of all certificates. Must return quickly.
    fn certificates(&self) -> Certificates;

    /// Begins to carry out an order about a certificate.
    ///
    /// # Errors
    ///
    /// There is no such certificate, or the order does not fit its state. The refusal says why.
    fn order_certificate(&self, order: &CertificateOrder) -> Result<Ordered, Refusal>;

    /// Reads the configuration again and applies it. Returns a description of the changes. May take
    /// long.
    ///
    /// # Errors
    ///
    /// The new configuration was not applied (422). The text says why.
    fn reload(&self) -> Result<String, String>;
}
