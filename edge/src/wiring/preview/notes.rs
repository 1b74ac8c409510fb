//! Notes of the previews that one request passes.

use std::cell::RefCell;

use crate::admin::GateState;
use crate::cache::Forecast;

/// Notes of the previews that one request passes.
#[derive(Default)]
pub(super) struct Notes(RefCell<Noted>);

/// The content of [`Notes`].
#[derive(Default)]
pub(super) struct Noted {
    /// The results of the configured checks.
    pub(super) gates: Vec<GateState>,
    /// Whether a check refused the request.
    pub(super) is_refused: bool,
    /// The target as cache and origin see it.
    pub(super) target: Option<String>,
    /// The decision of the cache.
    pub(super) forecast: Option<Forecast>,
    /// Whether the request would be forwarded without a cache.
    pub(super) is_forwarded: bool,
}

impl Notes {
    /// Adds to the notes.
    pub(super) fn note(&self, change: impl FnOnce(&mut Noted)) {
        change(&mut self.0.borrow_mut());
    }

    /// Takes the notes out.
    pub(super) fn take(&self) -> Noted {
        self.0.take()
    }
}
