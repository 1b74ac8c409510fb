//! What is known of a resource beyond its stored responses.

/// What earlier responses taught about a key. Times are milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceHistory {
    /// Ranges don't work with this origin: until then it is asked for everything.
    pub no_ranges_until_ms: u64,
    /// How often the version changed lately.
    pub changes: u8,
    /// Since when that is counted.
    pub since_ms: u64,
    /// Generations seen lately; 0 for none.
    pub seen: [u64; 4],
    /// One that had been seen before came back.
    pub flapping: bool,
    /// The complete length that was seen last.
    pub length: Option<u64>,
    /// Fetches in a row that failed.
    pub failures: u8,
    /// Until then nobody tries again.
    pub retry_ms: u64,
}

impl ResourceHistory {
    /// Whether ranges are not to be asked for.
    pub fn avoids_ranges(&self, now_ms: u64) -> bool {
        now_ms < self.no_ranges_until_ms
    }
}
