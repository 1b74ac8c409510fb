//! Validating: an object whose fetch is to confirm another that is stored, and what came of it.
//!
//! The stored object stays in the table, so that nothing of it is lost when the origin confirms it
//! or fails. The one that validates it is known to it alone; requests that have to wait ride that.
//! When the origin has something new, the new object takes the old one's place.

use std::sync::Arc;

use super::head::Head;
use super::landing::Landing;
use super::ledger::Charge;
use super::object::{Object, Phase};
use super::{Place, Store};

/// A stored response, which may serve on.
#[derive(Clone)]
pub struct Standing {
    /// The object.
    pub object: Arc<Object>,
    /// Its head.
    pub head: Arc<Head>,
}

impl Object {
    /// The object whose fetch is to confirm this one, as long as nobody knows what comes of it.
    pub fn validation(&self) -> Option<Arc<Object>> {
        let validation = self.lock().validation.upgrade()?;
        let waits = matches!(validation.lock().phase, Phase::Awaiting);
        waits.then_some(validation)
    }

    /// From now on `new`, a fresh object that is not in the table, is fetched to confirm this one.
    pub fn validate_by(self: &Arc<Object>, head: Arc<Head>, new: &Arc<Object>) {
        let object = self.clone();
        new.lock().standing = Some(Standing { object, head });
        self.lock().validation = Arc::downgrade(new);
    }

    /// What this object is fetched to confirm.
    pub fn standing(&self) -> Option<Standing> {
        self.lock().standing.clone()
    }

    /// The same, which is held no longer: its fetch has an answer.
    pub fn take_standing(&self) -> Option<Standing> {
        self.lock().standing.take()
    }

    /// Ends flight `id`: what was stored serves on.
    fn stand(&self, id: u64, standing: Standing, word: Option<&'static str>) {
        let mut state = self.lock();
        state.end_claim(id);
        let before = match state.phase {
            Phase::Awaiting => {
                let stands = Phase::Stands { standing, word };
                Some(std::mem::replace(&mut state.phase, stands))
            }
            _ => None,
        };
        let wakes = state.all_riders();
        drop(state);
        drop(before);
        wakes.wake();
    }
}

impl Landing {
    /// The stored response serves those who ride this flight: it was confirmed, or serves although
    /// it is stale, for the reason that `word` names.
    pub fn stand(mut self, standing: Standing, word: Option<&'static str>) {
        let id = self.end();
        self.object().stand(id, standing, word);
    }
}

impl Store {
    /// Gives a stored object another head: that of a response that confirmed it (RFC 9111 4.3.4).
    pub fn freshen(&self, place: Place, object: &Arc<Object>, head: Arc<Head>, charge: Charge) {
        if let Some(more) = object.renew(head, charge) {
            self.weigh(place, object, None, more);
        }
    }
}
