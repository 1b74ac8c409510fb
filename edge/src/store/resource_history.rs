//! The resource history: what earlier responses showed about a key.

use crate::reason::Reason;

/// Observations from earlier responses to a key. Times are milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceHistory {
    /// End of the time during which requests to the origin have no Range, because the origin answered ranges wrongly.
    pub no_ranges_until_ms: u64,
    /// Number of consecutive partial responses that were much shorter than requested.
    pub short_parts: u8,
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
    /// End of the time during which fetches carry nothing of a client, because the origin refused one that did.
    pub neutral_until_ms: u64,
    /// Whether fetches leave out Accept and Accept-Language, because the response to one with them was not usable content.
    pub distrusts_choices: bool,
    /// The latest refusal of a neutral fetch.
    pub refusal: Option<Refusal>,
    /// End of the time during which validations carry `forward_headers`, because the origin refused one without them.
    pub needs_headers_until_ms: u64,
    /// Number of consecutive failed fetches.
    pub failures: u8,
    /// End of the time during which no fetch is attempted.
    pub retry_ms: u64,
}

/// The refusal of a neutral fetch. For a short time, requests for the variant are forwarded separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The variant that was fetched.
    pub variant: u128,
    /// End of the time during which requests are forwarded.
    pub until_ms: u64,
    /// The reason why the response was not stored.
    pub reason: Reason,
    /// Whether the fetch left out headers of a client that the origin may need. Then only requests with such headers are forwarded.
    pub incomplete: bool,
}
