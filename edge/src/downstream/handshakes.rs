//! Bounds the unfinished TLS handshakes of a worker, in total and for each client.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use crate::http::ClientId;

/// The unfinished TLS handshakes of one worker.
#[derive(Default)]
pub struct Handshakes(RefCell<State>);

#[derive(Default)]
struct State {
    /// The slots of the connections, the oldest handshake first.
    slots: BTreeMap<u64, usize>,
    clients: HashMap<ClientId, usize>,
    begun: u64,
}

/// An unfinished handshake, to be given to `Handshakes::end`.
#[derive(Clone, Copy)]
pub struct Handshake {
    number: u64,
    client: ClientId,
}

/// The limits of unfinished handshakes. 0: no limit.
#[derive(Clone, Copy)]
pub struct HandshakeLimits {
    /// Most of one worker.
    pub total: usize,
    /// Most of one client.
    pub per_client: usize,
}

/// A handshake that begins, and the slot of the oldest one if that has to be cut.
pub struct Begun {
    /// The handshake.
    pub handshake: Handshake,
    /// Slot of a connection whose handshake is to be cut. New clients get the place of the oldest handshake: a
    /// handshake usually takes a few round trips, so the oldest is the least likely to end well.
    pub cut: Option<usize>,
}

impl Handshakes {
    /// Begins the handshake of the connection with this slot. Returns `None` if its client has too many.
    pub fn begin(&self, slot: usize, client: IpAddr, limits: HandshakeLimits) -> Option<Begun> {
        let mut state = self.0.borrow_mut();
        let client = ClientId::of(client);
        let count = state.clients.entry(client).or_default();
        if limits.per_client > 0 && *count >= limits.per_client {
            return None;
        }
        *count += 1;
        let number = state.begun;
        state.begun += 1;
        let is_full = limits.total > 0 && state.slots.len() >= limits.total;
        // The task of the cut handshake may run after many others have begun, so its place is free from now on.
        let cut = if is_full {
            state.slots.pop_first()
        } else {
            None
        };
        state.slots.insert(number, slot);
        Some(Begun {
            handshake: Handshake { number, client },
            cut: cut.map(|(_, slot)| slot),
        })
    }

    /// Whether a handshake had to make room for another one.
    pub fn is_cut(&self, handshake: Handshake) -> bool {
        !self.0.borrow().slots.contains_key(&handshake.number)
    }

    /// Ends a handshake.
    pub fn end(&self, handshake: Handshake) {
        let mut state = self.0.borrow_mut();
        state.slots.remove(&handshake.number);
        if let Some(count) = state.clients.get_mut(&handshake.client) {
            *count -= 1;
            if *count == 0 {
                state.clients.remove(&handshake.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HandshakeLimits = HandshakeLimits {
        total: 3,
        per_client: 2,
    };

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn one_client_has_a_limit_of_its_own() {
        let handshakes = Handshakes::default();
        let begin = |slot, text| handshakes.begin(slot, ip(text), LIMITS);
        let first = begin(1, "192.0.2.1").expect("within the limit");
        assert!(begin(2, "192.0.2.1").is_some());
        assert!(begin(3, "192.0.2.1").is_none());
        assert!(begin(4, "192.0.2.2").is_some());
        handshakes.end(first.handshake);
        assert!(begin(5, "192.0.2.1").is_some());
    }

    #[test]
    fn the_oldest_handshake_makes_room() {
        let handshakes = Handshakes::default();
        let begin = |slot: u8| {
            let client = ip(&format!("192.0.2.{slot}"));
            handshakes.begin(usize::from(slot), client, LIMITS)
        };
        let mut begun = Vec::new();
        for slot in 1..=3 {
            let one = begin(slot).expect("within the limit");
            assert_eq!(one.cut, None);
            begun.push(one.handshake);
        }
        assert_eq!(begin(4).and_then(|begun| begun.cut), Some(1));
        handshakes.end(begun[0]);
        handshakes.end(begun[1]);
        assert_eq!(begin(5).and_then(|begun| begun.cut), None);
        assert_eq!(begin(6).and_then(|begun| begun.cut), Some(3));
    }

    #[test]
    fn in_a_burst_each_handshake_cuts_another_one() {
        let handshakes = Handshakes::default();
        let begin = |slot: u8| {
            let client = ip(&format!("192.0.2.{slot}"));
            let begun = handshakes.begin(usize::from(slot), client, LIMITS);
            begun.expect("within the limit")
        };
        let begun: Vec<Begun> = (0..9).map(begin).collect();
        let cut: Vec<_> = begun.iter().filter_map(|one| one.cut).collect();
        assert_eq!(cut, [0, 1, 2, 3, 4, 5]);
        for (slot, one) in begun.iter().enumerate() {
            assert_eq!(handshakes.is_cut(one.handshake), slot < 6);
        }
        begun.iter().for_each(|one| handshakes.end(one.handshake));
        let state = handshakes.0.borrow();
        assert!(state.slots.is_empty() && state.clients.is_empty());
    }

    #[test]
    fn nothing_stays_of_handshakes_that_have_ended() {
        let handshakes = Handshakes::default();
        let begun = handshakes.begin(1, ip("2001:db8::1"), LIMITS);
        handshakes.end(begun.expect("within the limit").handshake);
        let state = handshakes.0.borrow();
        assert!(state.slots.is_empty() && state.clients.is_empty());
    }
}
