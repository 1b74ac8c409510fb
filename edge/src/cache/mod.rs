//! The cache: decide, fly, serve.

use std::time::Duration;

use crate::{evict, fill, http::Status};

/// `[cache.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Bytes of the memory tier, heads and bookkeeping included.
    pub memory: u64,
    /// What is dropped first.
    pub evict: evict::Kind,
    /// How missing bytes are fetched.
    pub fill: fill::Kind,
    /// Freshness lifetime by status where the response gives none.
    pub valid: Vec<(Status, Duration)>,
    /// Largest object kept in memory, bytes; 0: a quarter of `memory`.
    pub object: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory: 256 << 20,
            evict: evict::Kind::default(),
            fill: fill::Kind::default(),
            valid: Vec::new(),
            object: 0,
        }
    }
}
