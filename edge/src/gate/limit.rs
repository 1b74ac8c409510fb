//! Rate limits of a route: requests and bytes per client address.

use super::bucket::BucketRate;
use super::table::Table;

/// Options of `[site.route.limit]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Name under which routes share one table of clients, also across reloads.
    pub scope: String,
    /// Rate and burst of requests per client; `None`: requests are not limited.
    pub requests: Option<BucketRate>,
    /// Rate and burst of body bytes per client; `None`: bandwidth is not limited.
    pub bytes: Option<BucketRate>,
    /// Number of clients whose buckets the table can hold.
    pub clients: usize,
}

/// Returns the bytes of memory that the table of a limit with this many clients takes.
pub fn memory(clients: usize) -> usize {
    Table::memory(clients)
}
