//! A flight that watches the readers of its object.

use std::task::Waker;

/// The readers of a flight's object, as far as they concern the flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// The object has no reader.
    None,
    /// The object has readers, and none of them wants bytes that the flight has still to add.
    OfOtherBytes,
    /// A reader wants bytes that the flight has still to add, or the object has a reader and no head: then every reader waits for the
    /// flight.
    OfFlight,
}

/// A flight that is to be woken when the readers that concern it change.
pub(super) struct Watcher {
    pub(super) flight: u64,
    /// The readers that the flight knows of.
    pub(super) known: Readers,
    pub(super) waker: Waker,
}
