//! The interface between the admin API and Sluice.

use super::object::UrlState;
use super::purge::{Order, Purging, Refusal};
use super::status::Status;

/// The interface between the admin API and Sluice. Called on the admin thread or on a thread for blocking
/// work, never on a worker.
pub trait Inspect: Send + Sync {
    /// Returns the state of everything. Must return quickly.
    fn status(&self) -> Status;

    /// Returns the objects of a URL, stored or being fetched, for each cache that has some.
    ///
    /// # Errors
    ///
    /// The URL is invalid (400). The text says why.
    fn url(&self, url: &str) -> Result<Vec<UrlState>, String>;

    /// Purges. The purge is in effect when this function returns.
    ///
    /// # Errors
    ///
    /// Nothing, or not everything, was purged. The refusal says why.
    fn purge(&self, order: &Order) -> Result<Purging, Refusal>;

    /// Reads the configuration again and applies it. Returns a description of the changes. May take
    /// long.
    ///
    /// # Errors
    ///
    /// The new configuration was not applied (422). The text says why.
    fn reload(&self) -> Result<String, String>;
}
