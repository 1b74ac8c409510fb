//! What `[cache.NAME]` says about one cache.

use crate::evict;
use crate::fill;
use crate::store::disk_tier;

/// `[cache.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Bytes of the memory tier, heads and bookkeeping included.
    pub memory: u64,
    /// What is dropped first.
    pub evict: evict::Kind,
    /// How missing bytes are fetched.
    pub fill: fill::Options,
    /// Bytes fetched on behalf of one client and not sent to it, at most; `u64::MAX`: no limit.
    pub client_budget: u64,
    /// Largest object kept in memory, bytes; 0: a quarter of `memory`.
    pub object: u64,
    /// What is kept on volumes, too.
    pub disk_tier: disk_tier::Options,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory: 256 << 20,
            evict: evict::Kind::default(),
            fill: fill::Options::default(),
            client_budget: 64 << 20,
            object: 0,
            disk_tier: disk_tier::Options::default(),
        }
    }
}
