//! A claim: the bytes of an object that one flight alone may write.

use std::ops::Range;

/// Maximum number of flights that one object may have at once.
pub const CLAIMS_MAX: usize = 256;

/// The bytes that one flight alone may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Id of the flight.
    pub id: u64,
    /// The next byte that the flight will add.
    pub at: u64,
    /// End of the claim, exclusive; `u64::MAX` while the end of the content is unknown.
    pub end: u64,
    /// The first byte of the claim.
    pub start: u64,
    /// Time at which the claim was made, in microseconds of the clock that the callers of `Store::arrange` use.
    pub begun_us: u64,
    /// Time at which the head of the flight's response was accepted, in microseconds. From then on, the bytes of the response are known to
    /// belong to this object.
    pub head_us: Option<u64>,
    /// Time at which the flight's last bytes arrived, in microseconds. Before the first bytes: the time at which the claim was made.
    pub progress_us: u64,
    /// Whether the flight has failed or releases the claim, and adds no more bytes.
    pub is_ending: bool,
}

impl Claim {
    /// Whether the flight has still to add the byte at this offset.
    pub fn contains(&self, at: u64) -> bool {
        self.at <= at && at < self.end
    }

    /// Whether the flight has still to add any byte of this range.
    pub(super) fn meets(&self, range: &Range<u64>) -> bool {
        !range.is_empty() && self.at < range.end && range.start < self.end
    }
}

/// Error: a response contains none of the bytes that its flight has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOurs;
