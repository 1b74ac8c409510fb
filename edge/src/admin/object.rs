//! `GET /status?url=…`: one object as the admin address shows it. Written by the edge, read by `sluice inspect`.

use serde::{Deserialize, Serialize};

/// What one cache has of a URL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UrlState {
    /// The cache's name.
    pub cache: String,
    /// One for each variant.
    pub objects: Vec<ObjectState>,
}

/// One stored object, or one on its way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectState {
    /// `awaiting` a first response, `open`, `refused` for sharing, `failed`, or `retired`.
    pub state: String,
    /// Why it is refused or failed.
    pub why: Option<String>,
    /// Milliseconds until a refusal is forgotten.
    pub refused_for_ms: Option<u64>,
    /// The request fields by which it was selected: the names in Vary.
    pub vary: Vec<String>,
    /// These names and a hash of what the request had in them: `accept-encoding: 93d4…`; empty
    /// where Vary names none.
    pub variant: String,
    /// The stored status; 0 as long as there is none.
    pub status: u16,
    /// Complete length in bytes, if known.
    pub length: Option<u64>,
    /// The entity tag, as sent.
    pub etag: Option<String>,
    /// Last-Modified.
    pub last_modified: Option<String>,
    /// Sixteen hexadecimal digits, the same as long as URL, strong validator and length are; none
    /// without a strong validator.
    pub generation: Option<String>,
    /// Whether bytes of several responses may be put together in it; none before the first one.
    pub joinable: Option<bool>,
    /// Why they may not.
    pub why_not_joinable: Option<String>,
    /// Seconds since the origin made or confirmed it (RFC 9111 4.2.3).
    pub age_s: Option<u64>,
    /// Seconds of freshness left; negative: stale since.
    pub fresh_for_s: i64,
    /// Bytes in memory.
    pub stored: Vec<Span>,
    /// Bytes on volumes, in memory too or not.
    pub volumes: Vec<OnVolume>,
    /// Bytes that fetches in progress have still to bring.
    pub in_flight: Vec<Span>,
    /// Bytes that are none of this.
    pub missing: Vec<Span>,
    /// Bytes of `stored`, summed.
    pub stored_bytes: u64,
    /// Bytes of `missing`, summed.
    pub missing_bytes: u64,
    /// Where there are more ranges than are listed: what lies from this byte on is not listed.
    pub listed_to: Option<u64>,
    /// Fetches in progress.
    pub flights: Vec<FlightState>,
    /// The last decisions about it, the oldest first.
    pub decisions: Vec<DecisionState>,
}

impl ObjectState {
    /// The most ranges in each of its lists; a very sparse object has more.
    pub const SPANS_MAX: usize = 16_384;
}

/// What a volume has of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OnVolume {
    /// The volume's name.
    pub volume: String,
    /// These bytes.
    pub stored: Vec<Span>,
    /// All of them, summed.
    pub stored_bytes: u64,
}

/// One fetch in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlightState {
    /// The first byte it was to bring.
    pub first: u64,
    /// The next one it brings.
    pub next: u64,
    /// The last one; none if it goes on to an end that is not known.
    pub last: Option<u64>,
    /// Bytes a second since its response began; none while it is too young to tell.
    pub rate: Option<u64>,
    /// Milliseconds since it began.
    pub age_ms: u64,
    /// Milliseconds since its last byte, or since it began.
    pub idle_ms: u64,
    /// Whether the head of its response has come, and fits.
    pub head: bool,
}

/// One decision of the fill policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DecisionState {
    /// When, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The same, in milliseconds before this was asked.
    pub ago_ms: u64,
    /// What was still wanted of the request.
    pub want: Span,
    /// `fetch`, `wait`, `forward`, `replace` or `cut`.
    pub what: String,
    /// What a fetch was begun for.
    pub ranges: Vec<Span>,
    /// The named reason.
    pub why: String,
}

/// Bytes `first` to `last`, both included, as in Range (RFC 9110 14.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Position of the first byte.
    pub first: u64,
    /// Position of the last byte; none: to an end that is not known.
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

    /// The same as `start..end`.
    pub fn range(self) -> std::ops::Range<u64> {
        self.first..self.last.map_or(u64::MAX, |last| last.saturating_add(1))
    }
}
