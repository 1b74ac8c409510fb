//! The interface of a fill policy: its options, the situation that it judges, and its plan.

use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use smallvec::SmallVec;

use crate::ranges::Ranges;
use crate::reason::Reason;

/// End of a range that extends to the end of the representation.
pub const OPEN: u64 = u64::MAX;

/// The fill policy of a cache, as configured with `fill`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One fetch of all missing bytes. All requests for the object read from this fetch.
    Whole,
    /// Like `Whole`, but a request that would wait longer than `lock_timeout` for another request's
    /// fetch is forwarded to the origin separately.
    Lock,
    /// Fetches of the blocks that contain wanted bytes, several at once.
    Slice,
    /// A fetch without Range if the whole object is wanted; fetches of blocks once the origin is
    /// known to honour ranges.
    #[default]
    Auto,
}

/// The option `read_ahead`: which bytes are fetched in addition to the wanted ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAhead {
    /// Only the rest of the blocks that contain wanted bytes.
    #[default]
    None,
    /// This many bytes after the end of the wanted range.
    Window(u64),
    /// The whole object, if it is not too large to be stored.
    Whole,
}

/// Options that decide how missing bytes are fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The fill policy.
    pub kind: Kind,
    /// Size of a block in bytes, the unit of fetching: a multiple of 64 KiB from 64 KiB to 16 MiB.
    pub block: u64,
    /// Maximum number of concurrent flights for one request; at least 1.
    pub parallel: usize,
    /// With `Kind::Lock`: the time for which a request waits for another request's fetch.
    pub lock_timeout: Duration,
    /// With `Kind::Lock`: the time without received bytes after which another flight may replace a
    /// flight.
    pub lock_age: Duration,
    /// The bytes that are fetched in addition to the wanted ones.
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
    /// Position in the object of the next byte that the flight will receive.
    pub at: u64,
    /// End of the flight's range in the object; `OPEN` if it extends to the end of the
    /// representation.
    pub end: u64,
    /// Rate of the flight in bytes per second; `None` while the flight is too young for a
    /// measurement.
    pub rate: Option<u64>,
    /// Time since the flight received its last byte, or since it began.
    pub idle: Duration,
}

/// Whether bytes of several responses may be combined in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joinable {
    /// Not known yet, because no response has been received.
    Unknown,
    /// Bytes may be combined: the object has a strong validator and a complete length, and its
    /// origin honours ranges.
    Yes,
    /// Bytes can't be combined: the object can only have a single flight.
    No,
}

/// Number of recent changes of the representation, as a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unsettled {
    /// The representation has changed at most once.
    #[default]
    No,
    /// The representation has changed more than once.
    Changing,
    /// The representation has changed several times and returned to earlier validators, as if the
    /// servers of an origin disagree.
    Flapping,
}

/// State of an object and of one request for it, from which a policy decides what to fetch.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// The want: the range of bytes that the request has still to read, never empty. The end is
    /// `OPEN` if the request wants all bytes.
    pub want: Range<u64>,
    /// Complete length of the object in bytes, if known. While `joinable` is `Unknown`, this is the
    /// length of the previous version.
    pub length: Option<u64>,
    /// The ranges of the object that are stored.
    pub have: &'a Ranges,
    /// The fetches in progress, including those of other requests. Their ranges are disjoint.
    pub flights: &'a [Flight],
    /// Whether further flights may add bytes to the object.
    pub joinable: Joinable,
    /// Whether the representation keeps changing.
    pub unsettled: Unsettled,
    /// Whether this request has launched the flight for its next byte, or any flight of this object
    /// if none is for its next byte.
    pub leads: bool,
    /// Whether the response to the client has begun, so that the request can't be forwarded any
    /// more.
    pub begun: bool,
    /// Time for which the request has waited for its next byte.
    pub waited: Duration,
    /// Number of bytes that may be fetched ahead for this request: the unused part of the client's
    /// budget.
    pub spare: u64,
    /// Maximum number of concurrent flights for this request's want; at least 1.
    pub width: usize,
    /// Maximum size in bytes of an object that may be stored as a whole.
    pub whole_max: u64,
}

/// A policy's decision for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Begin these fetches.
    Fetch {
        /// Ranges for which to launch one flight each, in this order; never empty. The end `OPEN`
        /// stands for the end of the representation.
        ranges: SmallVec<[Range<u64>; 2]>,
        /// Time after which to consult the policy again, if no event causes that earlier.
        again: Option<Duration>,
    },
    /// Wait: the next wanted byte is stored or being fetched. The time is the longest until the
    /// policy must be consulted again.
    Wait(Option<Duration>),
    /// Forward the request to the origin separately, without storing the response, for this reason.
    /// Only possible before the response to the client has begun.
    Forward(Reason),
    /// Replace the object with a new one and fetch the whole without Range, for this reason: the
    /// wanted bytes can't be added to the old object. Only possible before the response to the
    /// client has begun.
    Replace(Reason),
    /// End the flight that is to deliver the next wanted byte, for this reason, and begin another one in its place. Only
    /// for an object whose bytes may be combined.
    Restart(Reason),
    /// Abort the response, which has begun and whose remaining bytes are not available any more.
    Cut,
}

/// A fill policy. It has no state: equal situations always give equal plans.
pub trait Policy {
    /// Returns the plan for a situation.
    fn plan(&self, situation: &Situation<'_>) -> Plan;
}
