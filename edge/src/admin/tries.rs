//! Limits the tries of clients that send wrong tokens.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::peer::Charged;

/// Most wrong tokens that a client may send at once.
pub const TRIES: u32 = 10;
/// Time in microseconds after which a client may try once more.
const AGAIN_US: u64 = 6_000_000;
/// Time in seconds after which a refused client may try again, for Retry-After.
pub const AGAIN_S: u64 = AGAIN_US / 1_000_000;
/// Most clients whose tries are counted. A further one replaces the one whose last try is the oldest.
const CLIENTS_MAX: usize = 1024;

/// The failed tries of one client.
struct Tries {
    /// Time from which on no try counts any more. Each failed try moves this by `AGAIN_US`.
    forgotten_us: u64,
    last_us: u64,
}

/// The failed tries of all clients.
#[derive(Default)]
pub struct FailedTries {
    clients: HashMap<Charged, Tries>,
}

/// The effect of a failed try, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The client had no failed try before.
    First,
    /// The client had failed tries before.
    Again,
    /// The client may not try again for now.
    Last,
}

impl FailedTries {
    /// Whether a client has failed too often. Then its tokens are not looked at.
    pub fn are_too_many(&self, client: Charged, now_us: u64) -> bool {
        let tries = self.clients.get(&client);
        tries.is_some_and(|tries| tries.left(now_us) == 0)
    }

    /// Notes a failed try of a client.
    pub fn note(&mut self, client: Charged, now_us: u64) -> Failed {
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&client) {
            self.make_room(now_us);
        }
        match self.clients.entry(client) {
            Entry::Vacant(entry) => {
                entry.insert(Tries {
                    forgotten_us: now_us + AGAIN_US,
                    last_us: now_us,
                });
                Failed::First
            }
            Entry::Occupied(entry) => entry.into_mut().note(now_us),
        }
    }

    /// Drops the clients whose tries are forgotten, or else the one whose last try is the oldest.
    fn make_room(&mut self, now_us: u64) {
        self.clients.retain(|_, tries| tries.forgotten_us > now_us);
        if self.clients.len() < CLIENTS_MAX {
            return;
        }
        let oldest = self.clients.iter().min_by_key(|(_, tries)| tries.last_us);
        if let Some(client) = oldest.map(|(client, _)| *client) {
            self.clients.remove(&client);
        }
    }
}

impl Tries {
    /// Returns the number of tries that are left.
    fn left(&self, now_us: u64) -> u32 {
        let used = self.forgotten_us.saturating_sub(now_us).div_ceil(AGAIN_US);
        TRIES.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX))
    }

    fn note(&mut self, now_us: u64) -> Failed {
        let was_forgotten = self.forgotten_us <= now_us;
        let end_us = self.forgotten_us.max(now_us).saturating_add(AGAIN_US);
        let last_us = now_us.saturating_add(AGAIN_US.saturating_mul(TRIES.into()));
        (self.forgotten_us, self.last_us) = (end_us.min(last_us), now_us);
        match (was_forgotten, self.left(now_us)) {
            (true, _) => Failed::First,
            (false, 0) => Failed::Last,
            (false, _) => Failed::Again,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLIENT: Charged = Charged::Network(1);

    #[test]
    fn a_client_has_ten_tries_and_gets_one_more_every_six_seconds() {
        let mut tries = FailedTries::default();
        let mut noted = Vec::new();
        for _ in 0..TRIES {
            assert!(!tries.are_too_many(CLIENT, 5));
            noted.push(tries.note(CLIENT, 5));
        }
        assert_eq!(
            (noted[0], noted[1], noted[8]),
            (Failed::First, Failed::Again, Failed::Again)
        );
        assert_eq!(noted[9], Failed::Last);
        assert!(tries.are_too_many(CLIENT, 5));
        assert!(
            !tries.are_too_many(Charged::Network(2), 5),
            "others may try"
        );
        assert!(!tries.are_too_many(Charged::User(Some(1)), 5));
        assert!(tries.are_too_many(CLIENT, AGAIN_US + 4));
        assert!(!tries.are_too_many(CLIENT, AGAIN_US + 5));
        assert_eq!(tries.note(CLIENT, AGAIN_US + 5), Failed::Last);
        assert!(tries.are_too_many(CLIENT, AGAIN_US + 5));
        let later = 20 * AGAIN_US;
        assert_eq!(tries.note(CLIENT, later), Failed::First);
    }

    #[test]
    fn the_number_of_clients_is_bounded() {
        let mut tries = FailedTries::default();
        for client in 0..3 * CLIENTS_MAX as u64 {
            tries.note(Charged::Network(client), client);
        }
        assert_eq!(tries.clients.len(), CLIENTS_MAX);
        assert!(!tries.clients.contains_key(&Charged::Network(0)));
        tries.note(CLIENT, u64::MAX / 2);
        assert_eq!(tries.clients.len(), 1, "the others are forgotten");
    }

    proptest! {
        // Whatever the times of the tries are: in no span of time are there more than ten tries, and one for each six
        // seconds.
        #[test]
        fn the_rate_of_tries_is_bounded(pauses in proptest::collection::vec(0..3 * AGAIN_US, 1..100)) {
            let (mut tries, mut now_us, mut tried) = (FailedTries::default(), 0, 0);
            for pause in pauses {
                now_us += pause;
                if !tries.are_too_many(CLIENT, now_us) {
                    tries.note(CLIENT, now_us);
                    tried += 1;
                }
                prop_assert!(tried <= u64::from(TRIES) + now_us / AGAIN_US);
            }
        }
    }
}
