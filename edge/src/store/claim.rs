//! A claim: the bytes of an object that one flight alone may write.

use std::ops::Range;

/// Flights that one object may have at once.
pub const CLAIMS_MAX: usize = 256;

/// The bytes that one flight alone may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The flight's id.
    pub id: u64,
    /// The next byte that the flight will add.
    pub at: u64,
    /// The end; `u64::MAX` while it is unknown.
    pub end: u64,
    /// The first byte of the claim.
    pub start: u64,
    /// When the claim was made, in microseconds of the clock that `Store::arrange` is given.
    pub begun_us: u64,
    /// When the response's head was accepted. Since then its bytes are known to belong to this object.
    pub head_us: Option<u64>,
    /// When its last bytes arrived; before the first ones, when the claim was made.
    pub progress_us: u64,
}

impl Claim {
    pub(super) fn brings(&self, at: u64) -> bool {
        self.at <= at && at < self.end
    }

    /// Whether any of these bytes are still to come from this claim.
    pub(super) fn meets(&self, range: &Range<u64>) -> bool {
        self.at < range.end && range.start < self.end
    }
}

/// A response contains none of the bytes that its flight claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOurs;
