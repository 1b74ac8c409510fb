//! The history of a resource, beyond its stored responses.

/// The history of the responses of a key. Times are milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceHistory {
    /// Until this time, requests to the origin have no Range, because the origin answered ranges
    /// wrongly.
    pub no_ranges_until_ms: u64,
    /// Number of version changes lately.
    pub changes: u8,
    /// Start of the period in which changes are counted.
    pub since_ms: u64,
    /// Generations of the latest versions; 0: none.
    pub seen: [u64; 4],
    /// Whether an earlier version has returned.
    pub flapping: bool,
    /// Complete length of the latest version.
    pub length: Option<u64>,
    /// Number of consecutive failed fetches.
    pub failures: u8,
    /// Until this time, no fetch is attempted.
    pub retry_ms: u64,
}

impl ResourceHistory {
    /// Whether requests to the origin should have no Range.
    pub fn avoids_ranges(&self, now_ms: u64) -> bool {
        now_ms < self.no_ranges_until_ms
    }
}
