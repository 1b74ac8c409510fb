//! The interface of a fill policy: its options, the situation that it judges, and its plan.

use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use smallvec::SmallVec;

use crate::ranges::Ranges;
use crate::reason::Reason;

/// The end of a range that extends to the end of the representation.
pub const OPEN: u64 = u64::MAX;

/// `fill = "…"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One fetch of all missing bytes, which all requests ride.
    Whole,
    /// Like `Whole`, but a request that would wait longer than `lock_timeout` is forwarded by
    /// itself.
    Lock,
    /// Fetches of the blocks that contain requested bytes, several at once.
    Slice,
    /// A fetch without Range if the whole is wanted; blocks once the origin is known to honour
    /// ranges.
    #[default]
    Auto,
}

/// `read_ahead = "…"`: which bytes are fetched beyond the wanted ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAhead {
    /// Only the rest of the blocks that contain wanted bytes.
    #[default]
    None,
    /// This many bytes after the end of the wanted range.
    Window(u64),
    /// The whole object, if its size may be stored.
    Whole,
}

/// How missing bytes are fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The policy.
    pub kind: Kind,
    /// Size of a block in bytes, the unit of fetching: a multiple of 64 KiB from 64 KiB to 16 MiB.
    pub block: u64,
    /// Maximum number of concurrent flights for one request, at least 1.
    pub parallel: usize,
    /// With `Kind::Lock`, how long a request waits for another request's fetch.
    pub lock_timeout: Duration,
    /// With `Kind::Lock`, how long a flight may receive no bytes before another one may replace it.
    pub lock_age: Duration,
    /// Which bytes are fetched beyond the wanted ones.
    pub read_ahead: ReadAhead,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            kind: Kind::default(),
            block: 1 << 20,
            parallel: 16,
            lock_timeout: Duration::ZERO,
            lock_age: Duration::from_secs(200),
            read_ahead: ReadAhead::default(),
        }
    }
}

/// A fetch in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// Position of the next byte that the flight will receive.
    pub at: u64,
    /// End of the flight's range; `OPEN` if it extends to the end of the representation.
    pub end: u64,
    /// Bytes per second; `None` while the flight is too young for a measurement.
    pub rate: Option<u64>,
    /// Time since the last byte was received, or since the flight began.
    pub idle: Duration,
}

/// Whether bytes of several responses may be combined in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joinable {
    /// No response has been received yet.
    Unknown,
    /// Yes: the object has a strong validator and a complete length, and its origin honours ranges.
    Yes,
    /// No: the object has a single flight.
    No,
}

/// How often the representation has changed lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unsettled {
    /// At most once.
    #[default]
    No,
    /// More than once.
    Changing,
    /// Several times, among the same validators, as when servers of an origin disagree.
    Flapping,
}

/// The present state of one object and one want.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// The bytes that a request has still to read. The end is `OPEN` if the request wants all
    /// bytes. Not empty.
    pub want: Range<u64>,
    /// The complete length, if known. While `joinable` is `Unknown`, it is only a guess: the length
    /// of the previous version.
    pub length: Option<u64>,
    /// The bytes that are stored.
    pub have: &'a Ranges,
    /// The fetches in progress, including those of other requests. Their ranges are disjoint.
    pub flights: &'a [Flight],
    /// Whether further flights may add bytes to the object.
    pub joinable: Joinable,
    /// Whether the representation keeps changing.
    pub unsettled: Unsettled,
    /// Whether this request has launched a flight of this object.
    pub leads: bool,
    /// Whether the response has begun, so that the request can't be forwarded any more.
    pub begun: bool,
    /// How long it has waited for its next byte.
    pub waited: Duration,
    /// Bytes that may be fetched ahead for this request: the rest of the client's budget.
    pub spare: u64,
    /// Maximum number of concurrent flights for this want, at least 1.
    pub width: usize,
    /// Maximum size in bytes of an object that may be stored as a whole.
    pub whole_max: u64,
}

/// The decision for a want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Begin fetches.
    Fetch {
        /// One flight for each range, in this order. Not empty. An end of `OPEN` extends to the end
        /// of the representation.
        ranges: SmallVec<[Range<u64>; 2]>,
        /// Time after which the policy must be consulted again at the latest.
        again: Option<Duration>,
    },
    /// The next wanted byte is stored or being fetched. Consult the policy again after this time at
    /// the latest.
    Wait(Option<Duration>),
    /// Forward the request by itself, without storing, for this reason. Only before the response
    /// has begun.
    Forward(Reason),
    /// This object can't serve the want, for this reason: replace the object and fetch the whole
    /// without Range. Only before the response has begun.
    Replace(Reason),
    /// The response has begun, and its remaining bytes are not available any more.
    Cut,
}

/// A fill policy. Pure: the same situation always gives the same plan.
pub trait Policy {
    /// The plan for a situation.
    fn plan(&self, situation: &Situation<'_>) -> Plan;
}
