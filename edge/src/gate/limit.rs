//! Rate limits of a route: requests and bytes per client address.

use super::bucket::Filling;
use super::table::Table;

/// Options of `[site.route.limit]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Identifies the limit: routes with the same scope share it, also across reloads.
    pub scope: String,
    /// The limit of requests.
    pub requests: Option<Filling>,
    /// The limit of bytes of content.
    pub bytes: Option<Filling>,
    /// Number of clients in the table.
    pub clients: usize,
}

/// Memory in bytes of a limit with this many clients.
pub fn memory(clients: usize) -> usize {
    Table::memory(clients)
}
