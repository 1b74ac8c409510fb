//! Types of `GET /status?url=…`, which lists the objects that each cache has for a URL. The edge
//! writes them, `sluice inspect` reads them.

use serde::{Deserialize, Serialize};

/// The objects that one cache has for a URL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UrlState {
    /// Name of the cache.
    pub cache: String,
    /// The cache's objects for the URL, one per variant.
    pub objects: Vec<ObjectState>,
}

/// One object, stored or being fetched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectState {
    /// The primary key: the URL with the configured additions.
    pub key: String,
    /// State of the object.
    pub state: ObjectPhase,
    /// Reason why the response was refused, or why its fetch failed.
    pub why: Option<String>,
    /// Milliseconds until the refusal expires, if the object is refused.
    pub refused_for_ms: Option<u64>,
    /// Names in Vary: the request headers that select this variant.
    pub vary: Vec<String>,
    /// The names in Vary and a hash of these headers' values in the request: `accept-encoding:
    /// 93d4…`. Empty if Vary names none.
    pub variant: String,
    /// Whether a request with the headers that were given selects this variant; `None` if none were
    /// given, or there is no Vary.
    pub selected: Option<bool>,
    /// Status of the stored response. 0 before the first response.
    pub status: u16,
    /// Complete length in bytes, if known.
    pub length: Option<u64>,
    /// The ETag, as the origin sent it.
    pub etag: Option<String>,
    /// Last-Modified of the stored response.
    pub last_modified: Option<String>,
    /// Id of the object's generation: sixteen hexadecimal digits that stay the same as long as URL,
    /// strong validator and length do. `None` without a strong validator.
    pub generation: Option<String>,
    /// Whether bytes of several responses may be combined in this object; `None` before the first
    /// response.
    pub joinable: Option<bool>,
    /// Reason for which bytes of several responses may not be combined.
    pub why_not_joinable: Option<String>,
    /// The response's age in seconds (RFC 9111 4.2.3).
    pub age_s: Option<u64>,
    /// Seconds for which the response is still fresh. Negative: seconds since it became stale.
    pub fresh_for_s: i64,
    /// The rule that set the lifetime. `None` before the first response.
    pub freshness: Option<FreshnessState>,
    /// Names and values of the stored response's header lines.
    pub headers: Vec<(String, String)>,
    /// Ranges of bytes in memory.
    pub stored: Vec<Span>,
    /// Ranges of bytes on volumes, whether they are also in memory or not.
    pub volumes: Vec<OnVolume>,
    /// Ranges of bytes that fetches in progress have not received yet.
    pub in_flight: Vec<Span>,
    /// Ranges of bytes that are neither stored nor being fetched.
    pub missing: Vec<Span>,
    /// Number of bytes in `stored`.
    pub stored_bytes: u64,
    /// Number of bytes in `missing`.
    pub missing_bytes: u64,
    /// If there are too many ranges to list: offset of the first byte that the lists do not cover.
    pub listed_to: Option<u64>,
    /// Fetches in progress.
    pub flights: Vec<FlightState>,
    /// Last decisions of the fill policy, the oldest first.
    pub decisions: Vec<DecisionState>,
}

impl ObjectState {
    /// Most ranges in each list. A very sparse object may have more.
    pub const SPANS_MAX: usize = 16_384;
}

/// The freshness of a stored response, and the rule that set it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FreshnessState {
    /// The rule that set the lifetime: `targeted`, `x-accel-expires`, `s-maxage`, `max-age`, `expires`, `valid`,
    /// `heuristic`, or `none` for a lifetime of zero.
    pub rule: String,
    /// The rule in words.
    pub detail: String,
    /// Seconds from the origin's response to the end of its freshness.
    pub lifetime_s: i64,
    /// Seconds after that for which the response may be served while it is revalidated.
    pub stale_while_revalidate_s: u64,
    /// Seconds after that for which the response may be served if the origin fails.
    pub stale_if_error_s: u64,
}

/// The phase of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectPhase {
    /// No response has begun yet.
    Awaiting,
    /// The object has the head of a response, and may have bytes.
    Open,
    /// The response may not be stored.
    Refused,
    /// The fetch failed.
    Failed,
    /// The origin confirmed the stored response that the fetch was to revalidate.
    Revalidated,
    /// Nothing more is fetched for the object.
    Retired,
    /// The state is one of another version of Sluice.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The bytes of an object that are on one volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OnVolume {
    /// Name of the volume.
    pub volume: String,
    /// Ranges of the object's bytes on this volume.
    pub stored: Vec<Span>,
    /// Number of the object's bytes on this volume.
    pub stored_bytes: u64,
}

/// One fetch in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlightState {
    /// Offset of the first byte of the fetch's range.
    pub first: u64,
    /// Offset of the next byte that the fetch will receive.
    pub next: u64,
    /// Offset of the last byte of the fetch's range. `None` if the end is not known.
    pub last: Option<u64>,
    /// Bytes per second since the response began. `None` while the response is too young for a
    /// rate.
    pub rate: Option<u64>,
    /// Milliseconds until the end of the range at this rate. `None` if rate or end are not known.
    pub left_ms: Option<u64>,
    /// Milliseconds since the fetch began.
    pub age_ms: u64,
    /// Milliseconds since the fetch received its last byte, or since it began.
    pub idle_ms: u64,
    /// Whether the head of the response was received and accepted.
    pub head: bool,
}

/// One decision of the fill policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DecisionState {
    /// Time of the decision, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Age of the decision, in milliseconds.
    pub ago_ms: u64,
    /// Bytes that the request still needed.
    pub want: Span,
    /// The decision: `fetch`, `wait`, `forward`, `replace` or `cut`.
    pub what: String,
    /// Ranges for which fetches were begun.
    pub ranges: Vec<Span>,
    /// Named reason of the decision.
    pub why: String,
}

/// Range of bytes from `first` to `last`, both included, as in Range (RFC 9110 14.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte. `None` if the end is not known.
    pub last: Option<u64>,
}

impl Span {
    /// Creates the range `start..end`, where `u64::MAX` is an end that is not known.
    pub fn of(range: std::ops::Range<u64>) -> Span {
        Span {
            first: range.start,
            last: (range.end != u64::MAX).then(|| range.end.saturating_sub(1)),
        }
    }

    /// Returns the range as `start..end`, where `u64::MAX` is an end that is not known.
    pub fn range(self) -> std::ops::Range<u64> {
        self.first..self.last.map_or(u64::MAX, |last| last.saturating_add(1))
    }
}
