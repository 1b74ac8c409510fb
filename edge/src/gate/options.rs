//! Options of a gate: the checks of one route.

use super::limit::Limit;
use super::signed;
use crate::http::{Methods, Network};

/// The access checks of one route, as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Networks whose clients are admitted; `None`: clients of all networks are.
    pub allow: Option<Vec<Network>>,
    /// Networks that are denied, even if `allow` contains them.
    pub deny: Vec<Network>,
    /// Networks from which a PURGE skips all checks.
    pub purge_from: Vec<Network>,
    /// Whether only clients with a valid TLS certificate are admitted.
    pub client_certificate: bool,
    /// Limits of requests and bandwidth per address.
    pub limit: Option<Limit>,
    /// Methods that the route takes; `None`: all but TRACE.
    pub allow_methods: Option<Methods>,
    /// Signed URLs, if the route requires them.
    pub signed_urls: Option<signed::Options>,
}

impl Options {
    /// Whether the route has no access checks.
    pub fn is_open(&self) -> bool {
        let nobody_is_denied = self.allow.is_none() && self.deny.is_empty();
        let takes_all = self.limit.is_none() && self.allow_methods.is_none();
        let needs_proof = self.client_certificate || self.signed_urls.is_some();
        nobody_is_denied && takes_all && !needs_proof
    }
}
