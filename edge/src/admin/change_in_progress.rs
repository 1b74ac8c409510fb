//! Records a change when its request ends, however that happens.

use super::change::{Change, ChangeNote};
use super::inspect::Shared;

/// A change that is being made. Dropping this records the change.
pub struct ChangeInProgress {
    edge: Shared,
    change: Change,
    note: ChangeNote,
}

impl ChangeInProgress {
    /// Begins a change, whose description is `change.what` until its handler has another one.
    pub fn new(edge: Shared, change: Change) -> ChangeInProgress {
        ChangeInProgress {
            edge,
            change,
            note: ChangeNote::default(),
        }
    }

    /// Returns the description, for the handler.
    pub fn note(&self) -> ChangeNote {
        self.note.clone()
    }

    /// Ends the change with the status of its response.
    pub fn end(mut self, status: u16) {
        self.change.status = Some(status);
    }
}

impl Drop for ChangeInProgress {
    fn drop(&mut self) {
        if let Some(what) = self.note.take() {
            self.change.what = what;
        }
        self.edge.note_change(&self.change);
    }
}
