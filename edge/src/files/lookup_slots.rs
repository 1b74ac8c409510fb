//! Slots for path lookups by other threads. All requests of a folder share them, and one client gets
//! at most half of them.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::http::ClientId;

/// Largest number of requests per folder that wait for a lookup by another thread; further requests
/// get 503.
const SLOTS: usize = 256;

/// Largest number of slots of one client. A client that requests paths on a disk that hangs thus
/// leaves slots for others.
const CLIENT_SLOTS: usize = SLOTS / 2;

/// The clients of the lookups in progress, one entry for each lookup.
#[derive(Default)]
pub(super) struct LookupSlots(Mutex<Vec<ClientId>>);

/// Permission for one lookup by another thread; released when dropped.
pub(super) struct LookupSlot {
    slots: Arc<LookupSlots>,
    client: ClientId,
}

impl LookupSlots {
    fn take(&self, client: ClientId) -> bool {
        let mut slots = self.0.lock();
        let own = slots.iter().filter(|other| **other == client).count();
        let is_free = slots.len() < SLOTS && own < CLIENT_SLOTS;
        if is_free {
            slots.push(client);
        }
        is_free
    }

    fn give_back(&self, client: ClientId) {
        let mut slots = self.0.lock();
        if let Some(at) = slots.iter().position(|other| *other == client) {
            slots.swap_remove(at);
        }
    }
}

impl LookupSlot {
    /// Takes a slot for this client; `None` if the client has its share of slots, or if all are in
    /// use.
    pub fn take(slots: &Arc<LookupSlots>, client: ClientId) -> Option<LookupSlot> {
        slots.take(client).then(|| LookupSlot {
            slots: slots.clone(),
            client,
        })
    }
}

impl Drop for LookupSlot {
    fn drop(&mut self) {
        self.slots.give_back(self.client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_gets_half_of_the_slots() {
        let slots = LookupSlots::default();
        let client = |last| ClientId::of([10, 0, 0, last].into());
        let taken = |last| (0..SLOTS).filter(|_| slots.take(client(last))).count();
        assert_eq!(taken(1), CLIENT_SLOTS);
        assert_eq!(taken(2), CLIENT_SLOTS);
        assert_eq!(taken(3), 0);
        slots.give_back(client(2));
        assert_eq!(taken(1), 0);
        assert_eq!(taken(3), 1);
    }
}
