//! State that an object has only for a while, if at all, in memory of its own.

use std::sync::Weak;
use std::task::Waker;

use super::ledger::Charge;
use crate::http::InterimHeads;

/// State that an object `O` has only for a while, if at all.
pub(super) struct Rare<O> {
    /// The 1xx heads of the first flight, while its final head is awaited.
    pub(super) interim: Option<KeptInterim>,
    /// The flights that a reader may end early.
    pub(super) stoppable: Vec<Stoppable>,
    /// The object that this one replaces once its body is complete.
    pub(super) replaces: Option<Replaced<O>>,
    /// Offset before which the flight no longer waits for riders that have fallen back too far.
    pub(super) left_behind: u64,
}

/// The object that another one replaces.
pub(super) struct Replaced<O> {
    pub(super) object: Weak<O>,
    /// Whether the object has taken its place in the table again, while readers of the new one have the rest fetched.
    pub(super) is_back: bool,
}

/// The 1xx heads of the first flight of an object, with the memory that they take on the ledger.
pub(super) struct KeptInterim {
    pub(super) heads: InterimHeads,
    pub(super) charge: Charge,
}

/// A flight that can be ended early, while it waits for its response or for bytes.
pub(super) struct Stoppable {
    pub(super) flight: u64,
    pub(super) requested: bool,
    pub(super) waker: Option<Waker>,
}

impl<O> Default for Rare<O> {
    fn default() -> Rare<O> {
        Rare {
            interim: None,
            stoppable: Vec::new(),
            replaces: None,
            left_behind: 0,
        }
    }
}

impl<O> Rare<O> {
    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.interim.is_none()
            && self.stoppable.is_empty()
            && self.replaces.is_none()
            && self.left_behind == 0
    }
}
