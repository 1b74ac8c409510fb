//! The last decisions about an object, kept for operators.

use std::ops::Range;

use smallvec::SmallVec;

use super::ledger::Charge;
use crate::reason::Reason;

/// Decisions kept of one object.
const DECISIONS_MAX: usize = 8;
/// Ranges kept of one decision.
const RANGES_MAX: usize = 8;
/// What one of them takes at most.
const DECISION_BYTES: u64 = (size_of::<Decision>() + RANGES_MAX * size_of::<Range<u64>>()) as u64;

/// What was decided about one request for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// What was wanted.
    pub want: Range<u64>,
    /// What was decided: "fetch", "wait", "forward", "replace", "cut".
    pub what: &'static str,
    /// What is fetched.
    pub ranges: SmallVec<[Range<u64>; 2]>,
    /// The reason.
    pub why: Reason,
}

/// The last decisions, and what they take.
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

    /// Adds a decision, in place of the oldest if there are many. Returns the bytes to charge if
    /// the list grew.
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

    /// Takes a charge for what was added.
    pub(super) fn pay(&mut self, charge: Charge) {
        match self.charges.first_mut() {
            Some(first) => first.absorb(charge),
            None => self.charges.push(charge),
        }
    }
}
