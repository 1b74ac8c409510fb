//! The measures by which URLs are ranked.

use serde::Serialize;

/// A measure by which URLs are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Requests.
    Requests,
    /// Body bytes sent to clients.
    Bytes,
    /// Requests to a cache that were served by a fetch that they caused.
    Misses,
    /// Time that requests took, added up, in milliseconds.
    Latency,
}

impl Measure {
    /// All measures.
    pub const ALL: [Measure; 4] = [
        Measure::Requests,
        Measure::Bytes,
        Measure::Misses,
        Measure::Latency,
    ];

    /// Returns the name of the measure in the API.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Requests => "requests",
            Measure::Bytes => "bytes",
            Measure::Misses => "misses",
            Measure::Latency => "latency",
        }
    }

    /// Returns the measure with this name.
    pub fn named(name: &str) -> Option<Measure> {
        Measure::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// The sums over requests to a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Requests.
    pub requests: u64,
    /// Body bytes sent to clients.
    pub bytes: u64,
    /// Misses of a cache.
    pub misses: u64,
    /// Microseconds that the requests took.
    pub latency_us: u64,
}

impl Sums {
    /// Returns the value of one measure. Latency is in microseconds.
    pub fn of(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Requests => self.requests,
            Measure::Bytes => self.bytes,
            Measure::Misses => self.misses,
            Measure::Latency => self.latency_us,
        }
    }

    /// Adds other sums to these.
    pub fn add(&mut self, other: &Sums) {
        self.requests = self.requests.saturating_add(other.requests);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.misses = self.misses.saturating_add(other.misses);
        self.latency_us = self.latency_us.saturating_add(other.latency_us);
    }
}
