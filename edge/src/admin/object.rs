//! `GET /status?url=…`: what each cache has of a URL. Written by the edge, read by `sluice inspect`.

use serde::{Deserialize, Serialize};

/// The objects that one cache has of a URL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UrlState {
    /// The cache's name.
    pub cache: String,
    /// Its objects, one per variant.
    pub objects: Vec<ObjectState>,
}

/// One object, stored or being fetched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectState {
    /// The phase of the object.
    pub state: ObjectPhase,
    /// Why the object is refused or failed.
    pub why: Option<String>,
    /// Milliseconds until the refusal expires.
    pub refused_for_ms: Option<u64>,
    /// The request headers that select this variant: the names in Vary.
    pub vary: Vec<String>,
    /// These names and a hash of their values in the request: `accept-encoding: 93d4…`; empty if Vary
    /// names none.
    pub variant: String,
    /// The stored status; 0 before the first response.
    pub status: u16,
    /// Complete length in bytes, if known.
    pub length: Option<u64>,
    /// The ETag, as the origin sent it.
    pub etag: Option<String>,
    /// Last-Modified.
    pub last_modified: Option<String>,
    /// Sixteen hexadecimal digits that stay the same as long as URL, strong validator and length do;
    /// `None` without a strong validator.
    pub generation: Option<String>,
    /// Whether bytes of several responses may be combined in this object; `None` before the first
    /// response.
    pub joinable: Option<bool>,
    /// Why bytes of several responses may not be combined.
    pub why_not_joinable: Option<String>,
    /// The response's age in seconds (RFC 9111 4.2.3).
    pub age_s: Option<u64>,
    /// Seconds for which the response is still fresh; negative: seconds since it became stale.
    pub fresh_for_s: i64,
    /// Bytes in memory.
    pub stored: Vec<Span>,
    /// Bytes on volumes, whether they are also in memory or not.
    pub volumes: Vec<OnVolume>,
    /// Bytes that fetches in progress have not received yet.
    pub in_flight: Vec<Span>,
    /// Bytes that are neither stored nor being fetched.
    pub missing: Vec<Span>,
    /// Bytes of `stored`, summed.
    pub stored_bytes: u64,
    /// Bytes of `missing`, summed.
    pub missing_bytes: u64,
    /// If there are too many ranges to list: the first byte that the lists do not cover.
    pub listed_to: Option<u64>,
    /// Fetches in progress.
    pub flights: Vec<FlightState>,
    /// The last decisions of the fill policy, the oldest first.
    pub decisions: Vec<DecisionState>,
}

impl ObjectState {
    /// Most ranges in each list; a very sparse object has more.
    pub const SPANS_MAX: usize = 16_384;
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
    /// The volume's name.
    pub volume: String,
    /// The ranges.
    pub stored: Vec<Span>,
    /// The number of bytes.
    pub stored_bytes: u64,
}

/// One fetch in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlightState {
    /// The first byte of its range.
    pub first: u64,
    /// The next byte that it will receive.
    pub next: u64,
    /// The last byte of its range; `None` if the end is not known.
    pub last: Option<u64>,
    /// Bytes per second since its response began; `None` while the response is too young for a rate.
    pub rate: Option<u64>,
    /// Milliseconds since the fetch began.
    pub age_ms: u64,
    /// Milliseconds since its last byte, or since the fetch began.
    pub idle_ms: u64,
    /// Whether the head of its response was received and accepted.
    pub head: bool,
}

/// One decision of the fill policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DecisionState {
    /// When it was made, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// How long ago it was made, in milliseconds.
    pub ago_ms: u64,
    /// The bytes that the request still needed.
    pub want: Span,
    /// `fetch`, `wait`, `forward`, `replace` or `cut`.
    pub what: String,
    /// The ranges for which fetches were begun.
    pub ranges: Vec<Span>,
    /// The named reason.
    pub why: String,
}

/// Bytes `first` to `last`, both included, as in Range (RFC 9110 14.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Position of the first byte.
    pub first: u64,
    /// Position of the last byte; `None` if the end is not known.
    pub last: Option<u64>,
}

impl Span {
    /// The bytes `start..end`, where `u64::MAX` is an end that is not known.
    pub fn of(range: std::ops::Range<u64>) -> Span {
        Span {
            first: range.start,
            last: (range.end != u64::MAX).then(|| range.end.saturating_sub(1)),
        }
    }

    /// The bytes as `start..end`.
    pub fn range(self) -> std::ops::Range<u64> {
        self.first..self.last.map_or(u64::MAX, |last| last.saturating_add(1))
    }
}
