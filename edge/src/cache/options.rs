//! The options of one cache, from `[cache.NAME]` in the configuration.

use crate::evict;
use crate::fill;
use crate::store::disk_tier;

/// The options in `[cache.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Size of the memory tier in bytes, including heads and bookkeeping.
    pub memory: u64,
    /// The eviction policy.
    pub evict: evict::Kind,
    /// The options of the fill policy, which fetches missing bytes.
    pub fill: fill::Options,
    /// Largest number of bytes that may be fetched for one client and not sent to it. `u64::MAX`
    /// for no limit.
    pub client_budget: u64,
    /// Largest object kept in memory, in bytes. 0 for a quarter of `memory`.
    pub max_object_size: u64,
    /// The options of the disk tier.
    pub disk_tier: disk_tier::Options,
}

impl Options {
    /// Size in bytes of the largest object kept in memory.
    pub fn object_max(&self) -> u64 {
        match self.max_object_size {
            0 => self.memory / 4,
            bytes => bytes,
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory: 256 << 20,
            evict: evict::Kind::default(),
            fill: fill::Options::default(),
            client_budget: 64 << 20,
            max_object_size: 0,
            disk_tier: disk_tier::Options::default(),
        }
    }
}
