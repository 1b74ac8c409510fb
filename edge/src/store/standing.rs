//! Validating: an object whose fetch is to confirm another that is stored, and what came of it.
//!
//! The stored object stays in the table, so that nothing of it is lost when the origin confirms it
//! or fails. The one that validates it is known to it alone; requests that have to wait ride that.
//! When the origin has something new, the new object takes the old one's place.

use std::sync::{Arc, Weak};

use super::head::Head;
use super::landing::Landing;
use super::object::{Object, Phase};

/// A stored response, which may serve on.
#[derive(Clone)]
pub struct Standing {
    /// The object.
    pub object: Arc<Object>,
    /// Its head.
    pub head: Arc<Head>,
}

/// What ties an object to another, for as long as one of them is fetched to confirm the other.
#[derive(Default)]
pub(super) struct Ties {
    /// What it is fetched to confirm.
    standing: Option<Standing>,
    /// The object that is fetched to confirm this one.
    validation: Weak<Object>,
}

impl Object {
    /// The object whose fetch is to confirm this one, as long as nobody knows what comes of it.
    pub fn validation(&self) -> Option<Arc<Object>> {
        let validation = self.lock().ties.as_ref()?.validation.upgrade()?;
        let waits = matches!(validation.lock().phase, Phase::Awaiting);
        waits.then_some(validation)
    }

    /// From now on `new`, a fresh object that is not in the table, is fetched to confirm this one.
    pub fn validate_by(self: &Arc<Object>, head: Arc<Head>, new: &Arc<Object>) {
        let object = self.clone();
        new.lock().ties.get_or_insert_default().standing = Some(Standing { object, head });
        self.lock().ties.get_or_insert_default().validation = Arc::downgrade(new);
    }

    /// What this object is fetched to confirm.
    pub fn standing(&self) -> Option<Standing> {
        self.lock().ties.as_ref()?.standing.clone()
    }

    /// The same, which is held no longer: its fetch has an answer.
    pub fn take_standing(&self) -> Option<Standing> {
        self.lock().ties.as_mut()?.standing.take()
    }

    /// Ends flight `id`: what was stored serves on.
    fn stand(&self, id: u64, standing: Standing, confirmed: bool) {
        let mut state = self.lock();
        state.end_claim(id);
        let before = match state.phase {
            Phase::Awaiting => {
                let stands = Phase::Stands {
                    standing,
                    confirmed,
                };
                Some(std::mem::replace(&mut state.phase, stands))
            }
            _ => None,
        };
        let wakes = state.all_riders();
        drop(state);
        drop(before);
        wakes.wake();
    }

    /// Requests from here on are not told to wait for a fetch that began before this number.
    pub(super) fn forget_validation(&self, before: u64) {
        let Some(validation) = self.validation().filter(|v| v.born_seq < before) else {
            return;
        };
        if let Some(ties) = &mut self.lock().ties {
            ties.validation = Weak::new();
        }
        drop(validation); // after the lock
    }
}

impl Landing {
    /// The stored response serves those who ride this flight: it was confirmed, or serves although
    /// the origin failed to.
    pub fn stand(mut self, standing: Standing, confirmed: bool) {
        let id = self.end();
        self.object().stand(id, standing, confirmed);
    }
}
