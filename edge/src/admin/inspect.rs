//! The interface between the admin API and the edge.

use super::object::UrlState;
use super::purge::{Order, Purging, Refusal};
use super::status::Status;

/// The interface between the admin API and the edge. Called on the admin thread or on a thread for blocking
/// work, never on a worker.
pub trait Inspect: Send + Sync {
    /// The state of everything. Returns quickly.
    fn status(&self) -> Status;

    /// The objects of a URL, stored or being fetched, for each cache that has some.
    ///
    /// # Errors
    /// The URL is wrong; the text says why (400).
    fn url(&self, url: &str) -> Result<Vec<UrlState>, String>;

    /// Purges. The purge is in force when this returns.
    ///
    /// # Errors
    /// Why nothing, or not everything, was purged.
    fn purge(&self, order: &Order) -> Result<Purging, Refusal>;

    /// Reads the configuration again and brings it into force. Returns what changed. May take long.
    ///
    /// # Errors
    /// Why nothing changed (422).
    fn reload(&self) -> Result<String, String>;
}
