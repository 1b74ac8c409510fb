//! What a client's address may take of a route: requests and bytes in a time.

use super::bucket::Filling;
use super::table::Table;

/// `[site.route.limit]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Whose limit it is: routes that share it, before and after a reload.
    pub scope: String,
    /// Requests.
    pub requests: Option<Filling>,
    /// Bytes of content.
    pub bytes: Option<Filling>,
    /// Clients that are remembered.
    pub clients: usize,
}

/// Bytes of memory that a limit for so many clients takes.
pub fn memory(clients: usize) -> usize {
    Table::memory(clients)
}
