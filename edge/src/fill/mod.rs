//! Fill policies: which ranges to fetch now.

use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use smallvec::SmallVec;

use crate::ranges::Ranges;
use crate::reason::Reason;
use common::Common;

mod auto;
mod common;
#[cfg(test)]
mod laws;
mod lock;
mod pace;
#[cfg(test)]
mod race;
mod slice;
mod whole;

pub use pace::Pace;

/// The end of a range that goes on to wherever the representation ends.
pub const OPEN: u64 = u64::MAX;

/// `fill = "…"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One fetch of everything missing, which everyone rides.
    Whole,
    /// The same, but who would wait longer than `lock_timeout` is passed on by itself.
    Lock,
    /// Only the blocks that are wanted, several at once.
    Slice,
    /// A plain fetch where all is wanted; blocks once the origin is known to honour ranges.
    #[default]
    Auto,
}

/// `read_ahead = "…"`: what is fetched beyond what is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAhead {
    /// Nothing but the rest of the blocks that are wanted.
    #[default]
    None,
    /// This many bytes behind the end of what is wanted.
    Window(u64),
    /// Everything, as far as an object may be kept whole.
    Whole,
}

/// How missing bytes are fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The policy.
    pub kind: Kind,
    /// What is fetched with one request, bytes: a multiple of 64 KiB from 64 KiB to 16 MiB.
    pub block: u64,
    /// Flights at once for one request, at most; from 1 on.
    pub parallel: usize,
    /// How long a request waits for another's fetch, with `Kind::Lock`.
    pub lock_timeout: Duration,
    /// How long a flight may bring nothing until another may take its place, with `Kind::Lock`.
    pub lock_age: Duration,
    /// What is fetched beyond what is wanted.
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
    /// The next byte that it brings.
    pub at: u64,
    /// Where it ends; `OPEN` if it goes on to wherever the representation ends.
    pub end: u64,
    /// Bytes a second; `None` while it is too young to tell.
    pub rate: Option<u64>,
    /// Since its last byte, or since it began.
    pub idle: Duration,
}

/// Whether bytes of another response may be put beside those of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joinable {
    /// No response was seen yet.
    Unknown,
    /// It has a strong validator and a complete length, and its origin honours ranges.
    Yes,
    /// It has one flight, and never a second.
    No,
}

/// How often the representation changed lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unsettled {
    /// At most once.
    #[default]
    No,
    /// More than once.
    Changing,
    /// Back and forth between the same validators, as servers that disagree make it.
    Flapping,
}

/// One object and one want, as they are now.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// The bytes that a request has still to read, `OPEN` at the end where it wants all there is.
    /// Not empty.
    pub want: Range<u64>,
    /// The complete length, once known. While `joinable` is `Unknown` it is at most a guess: that
    /// of the version before.
    pub length: Option<u64>,
    /// The bytes that are stored.
    pub have: &'a Ranges,
    /// The fetches in progress, whoever launched them. They share no byte.
    pub flights: &'a [Flight],
    /// Whether further flights may bring bytes of it.
    pub joinable: Joinable,
    /// Whether the representation keeps changing.
    pub unsettled: Unsettled,
    /// Whether this request launched a flight of this object.
    pub leads: bool,
    /// Whether its response has begun: it can't be passed on any more.
    pub begun: bool,
    /// How long it has waited for its next byte.
    pub waited: Duration,
    /// Bytes that may be fetched for it ahead of its need: what is left of its client's budget.
    pub spare: u64,
    /// Flights that may be under way for this want at once, at least 1.
    pub width: usize,
    /// The longest object that may be kept whole, bytes.
    pub whole_max: u64,
}

/// What to do for a want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Begin to fetch.
    Fetch {
        /// One flight for each, in this order. Not empty; `OPEN` at the end: to wherever the
        /// representation ends.
        ranges: SmallVec<[Range<u64>; 2]>,
        /// Ask again after this time at the latest.
        again: Option<Duration>,
    },
    /// The next wanted byte is there or on its way. Ask again after this time at the latest.
    Wait(Option<Duration>),
    /// Pass the request on by itself, uncached, for this named reason. Never when it has begun.
    Forward(Reason),
    /// This object can't serve it, for this named reason: begin another in its place, with a plain
    /// fetch of all of it. Never when it has begun.
    Replace(Reason),
    /// It has begun, and its bytes can't be had any more.
    Cut,
}

/// Decides what to fetch. Pure: the same situation gives the same plan.
pub trait Policy {
    /// The plan for a situation.
    fn plan(&self, situation: &Situation<'_>) -> Plan;
}

/// The policy that these options name.
pub fn build(options: &Options) -> Box<dyn Policy + Send + Sync> {
    match options.kind {
        Kind::Whole => Box::new(Common(whole::Whole::new(options))),
        Kind::Lock => Box::new(Common(lock::Lock::new(options))),
        Kind::Slice => Box::new(Common(slice::Slice::new(options))),
        Kind::Auto => Box::new(Common(auto::Auto::new(options))),
    }
}
