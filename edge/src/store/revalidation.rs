//! Revalidation: an object whose fetch validates a stored object, and its result.
//!
//! The stored object stays in the table, so that it is not lost if the origin confirms it or fails. Only the stored object has a reference
//! to the new object; requests that must wait become riders of the new object. If the origin sends a new response, the new object replaces
//! the stored one.

use std::sync::{Arc, Weak};

use super::head::Head;
use super::landing::Landing;
use super::object::{Object, Phase, Revalidated, RevalidationLinks};

impl Object {
    /// Returns the object whose fetch validates this one, while the result is not known.
    pub fn revalidation(&self) -> Option<Arc<Object>> {
        let validation = self.lock().ties.as_ref()?.validation.upgrade()?;
        let waits = matches!(validation.lock().phase, Phase::Awaiting);
        waits.then_some(validation)
    }

    /// Links `new`, which is not in the table, as the object whose fetch validates this one.
    pub fn revalidate_with(self: &Arc<Object>, head: Arc<Head>, new: &Arc<Object>) {
        let object = self.clone();
        new.lock().ties.get_or_insert_default().stored = Some(Revalidated { object, head });
        self.lock().ties.get_or_insert_default().validation = Arc::downgrade(new);
    }

    /// Returns the stored response that this object's fetch validates.
    pub fn revalidated(&self) -> Option<Revalidated> {
        self.lock().ties.as_ref()?.stored.clone()
    }

    /// Removes and returns the stored response, which is no longer needed once the origin has sent a new one.
    pub fn take_revalidated(&self) -> Option<Revalidated> {
        let mut state = self.lock();
        let ties = state.ties.as_mut()?;
        let stored = ties.stored.take()?;
        let idle = ties.validation.strong_count() == 0;
        let gone = if idle { state.ties.take() } else { None };
        drop(state);
        drop(gone);
        stored.object.part_from(self);
        Some(stored)
    }

    /// Removes the link from the stored object to this one.
    pub(super) fn untie(&self) {
        if let Some(stored) = self.revalidated() {
            stored.object.part_from(self);
        }
    }

    /// Removes this stored object's link to `validation`, if it still has that link. A remaining link would keep the memory of `validation`
    /// allocated.
    fn part_from(&self, validation: &Object) {
        let mut state = self.lock();
        let tied = |ties: &RevalidationLinks| std::ptr::eq(ties.validation.as_ptr(), validation);
        let gone = match &mut state.ties {
            Some(ties) if tied(ties) && ties.stored.is_none() => state.ties.take(),
            Some(ties) if tied(ties) => {
                ties.validation = Weak::new();
                None
            }
            _ => None,
        };
        drop(state);
        drop(gone);
    }

    /// Ends flight `id` and makes its riders use the stored response. `confirmed` says whether the origin confirmed it.
    fn serve_stored(&self, id: u64, stored: Revalidated, confirmed: bool) {
        let mut state = self.lock();
        state.end_claim(id);
        let before = match state.phase {
            Phase::Awaiting => {
                let phase = Phase::Revalidated { stored, confirmed };
                Some(std::mem::replace(&mut state.phase, phase))
            }
            _ => None,
        };
        let wakes = state.all_riders();
        drop(state);
        drop(before);
        wakes.wake();
    }

    /// Unlinks a validation that began before the sequence number `before`, so that no further request waits for it.
    pub(super) fn forget_revalidation(&self, before: u64) {
        let Some(validation) = self.revalidation().filter(|v| v.born_seq < before) else {
            return;
        };
        if let Some(ties) = &mut self.lock().ties {
            ties.validation = Weak::new();
        }
        drop(validation); // dropped after unlocking
    }
}

impl Landing {
    /// Ends the flight, and serves its riders the stored response: because the origin confirmed it, or although the origin failed.
    pub fn serve_stored(mut self, stored: Revalidated, confirmed: bool) {
        let id = self.end();
        drop(self.object().take_revalidated());
        self.object().serve_stored(id, stored, confirmed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{head, store, table_key};
    use super::super::{Store, TableKey};
    use super::*;

    /// Returns an open object in the table, a second object that validates it, and the landing of the second one.
    fn pair(store: &Arc<Store>) -> (Arc<Object>, Arc<Object>, Landing) {
        let stored = store.create(b"a").expect("room");
        let here: TableKey = table_key(1);
        store.enter(here.primary, |locked| {
            locked.insert(here.variant, stored.clone(), 1);
        });
        let charge = store.charge_head(1).expect("room");
        let known = Arc::new(head(Some(0)));
        stored.open(known.clone(), charge, None, None).wake();
        let new = store.create(b"a").expect("room");
        stored.revalidate_with(known, &new);
        let whole = || (smallvec::smallvec![0..u64::MAX], ());
        let ((), mut landings) = store.arrange(&new, here, 0, |_| whole());
        (stored, new, landings.pop().expect("a flight"))
    }

    #[test]
    fn an_object_is_tied_to_the_one_it_revalidates_until_it_ends() {
        let store = store(1 << 20);
        let (stored, new, landing) = pair(&store);
        assert!(
            stored
                .revalidation()
                .is_some_and(|own| Arc::ptr_eq(&own, &new))
        );
        let revalidated = new.revalidated().expect("the object revalidates the other");
        assert!(Arc::ptr_eq(&revalidated.object, &stored));
        landing.serve_stored(revalidated, true);
        assert!(stored.revalidation().is_none());
        assert!(matches!(
            new.phase(),
            Phase::Revalidated {
                confirmed: true,
                ..
            }
        ));
    }

    #[test]
    fn tied_objects_do_not_keep_each_others_memory() {
        let store = store(1 << 20);
        let (stored, new, landing) = pair(&store);
        let revalidated = new.revalidated().expect("the object revalidates the other");
        landing.serve_stored(revalidated, false);
        assert_eq!(Arc::weak_count(&new), 0);
        assert!(stored.lock().ties.is_none());
        let (stored, new, landing) = pair(&store);
        drop(landing); // as when the task of the flight is cancelled
        assert_eq!(Arc::weak_count(&new), 0);
        assert!(stored.revalidation().is_none());
        // The link to the stored response stays: it may still be needed after a failure.
        assert!(new.revalidated().is_some());
    }
}
