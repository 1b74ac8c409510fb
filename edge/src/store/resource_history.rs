//! The resource history: what earlier responses showed about a key.

/// Observations from earlier responses to a key. Times are milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceHistory {
    /// End of the time during which requests to the origin have no Range, because the origin answered ranges wrongly.
    pub no_ranges_until_ms: u64,
    /// Number of version changes since `since_ms`.
    pub changes: u8,
    /// Start of the period in which version changes are counted.
    pub since_ms: u64,
    /// Generations of the latest versions; 0 in unused entries.
    pub seen: [u64; 4],
    /// Whether an earlier version has returned, so that versions seem to alternate.
    pub flapping: bool,
    /// Complete length of the latest version.
    pub length: Option<u64>,
    /// Number of consecutive failed fetches.
    pub failures: u8,
    /// End of the time during which no fetch is attempted.
    pub retry_ms: u64,
}
