//! The latest decisions about fetches for an object, for inspection by the operator.

use std::ops::Range;

use smallvec::SmallVec;

use super::ledger::Charge;
use crate::reason::Reason;

/// Maximum number of decisions kept per object.
const DECISIONS_MAX: usize = 8;
/// Maximum number of ranges kept per decision.
const RANGES_MAX: usize = 8;
/// Maximum size of a decision in bytes.
const DECISION_BYTES: u64 = (size_of::<Decision>() + RANGES_MAX * size_of::<Range<u64>>()) as u64;

/// A decision about what to fetch for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Time of the decision in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The range of the object that the request wants.
    pub want: Range<u64>,
    /// The decision.
    pub kind: DecisionKind,
    /// The ranges that are fetched as a result.
    pub ranges: SmallVec<[Range<u64>; 2]>,
    /// The reason for the decision.
    pub why: Reason,
}

/// The kinds of decisions about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionKind {
    /// Ranges are fetched.
    Fetch,
    /// The request is sent to the origin alone.
    Forward,
    /// The object is replaced by a new one.
    Replace,
    /// The response is cut.
    Cut,
}

impl DecisionKind {
    /// The name of the decision in the admin API.
    pub const fn text(self) -> &'static str {
        match self {
            DecisionKind::Fetch => "fetch",
            DecisionKind::Forward => "forward",
            DecisionKind::Replace => "replace",
            DecisionKind::Cut => "cut",
        }
    }
}

/// The latest decisions about an object, and the charges on the ledger for their memory.
#[derive(Default)]
pub(super) struct Notes {
    list: Vec<Decision>,
    charges: SmallVec<[Charge; 1]>,
}

impl Notes {
    /// The decisions, oldest first.
    pub(super) fn list(&self) -> &[Decision] {
        &self.list
    }

    /// Adds a decision, and removes the oldest one if the list is full. Returns the number of bytes to charge to the ledger if the list has
    /// grown.
    pub(super) fn add(&mut self, mut decision: Decision) -> Option<u64> {
        decision.ranges.truncate(RANGES_MAX);
        if self.list.len() >= DECISIONS_MAX {
            self.list.rotate_left(1);
            if let Some(oldest) = self.list.last_mut() {
                *oldest = decision;
            }
            return None;
        }
        self.list.reserve_exact(1);
        self.list.push(decision);
        Some(DECISION_BYTES)
    }

    /// Stores the charge for the memory by which the list has grown.
    pub(super) fn pay(&mut self, charge: Charge) {
        match self.charges.first_mut() {
            Some(first) => first.absorb(charge),
            None => self.charges.push(charge),
        }
    }
}
