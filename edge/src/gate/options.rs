//! Options of a gate: the checks of one route.

use super::limit::Limit;
use super::signed;
use crate::http::Network;

/// The access checks of one route, as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Networks whose clients are admitted; `None`: clients of all networks are.
    pub allow: Option<Vec<Network>>,
    /// Networks that are denied, even if `allow` contains them.
    pub deny: Vec<Network>,
    /// Networks from which a PURGE skips all checks.
    pub purge: Vec<Network>,
    /// Limits of requests and bandwidth per address.
    pub limit: Option<Limit>,
    /// Signed URLs, if the route requires them.
    pub signed: Option<signed::Options>,
}

impl Options {
    /// Whether the route has no access checks.
    pub fn is_open(&self) -> bool {
        let nobody_is_denied = self.allow.is_none() && self.deny.is_empty();
        nobody_is_denied && self.limit.is_none() && self.signed.is_none()
    }
}
