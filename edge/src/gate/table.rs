//! The table of clients with the token buckets of each, shared by all workers. The table has a
//! fixed size.
//!
//! The table is divided into sets of sixteen entries, each with a lock that is held for some tens
//! of nanoseconds. A secret hash of the client selects its set. A client with full buckets needs no
//! entry. If a set has no free entry for a new client, the client whose buckets are full soonest is
//! replaced, so a client that floods the server is replaced last.

use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use parking_lot::Mutex;

use crate::http::ClientId;

/// Number of entries per set.
const WAYS: usize = 16;

/// Selects one of the two buckets of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketKind {
    /// The bucket that limits requests.
    Requests,
    /// The bucket that limits bytes of response bodies.
    Bytes,
}

/// Sixteen clients, each with the times in nanoseconds at which its two buckets are full. In a free
/// entry, all numbers are zero.
struct ClientSet {
    clients: [u64; WAYS],
    requests: [u64; WAYS],
    bytes: [u64; WAYS],
}

/// The result of changing a client's bucket.
pub struct Changed<T> {
    /// The value that the closure `change` of [`Table::with`] returned.
    pub result: T,
    /// Whether the client got the entry of another client whose buckets were not full.
    pub replaced: bool,
}

/// The token buckets of all clients.
pub struct Table {
    sets: Box<[Mutex<ClientSet>]>,
    hasher: RandomState,
}

impl Table {
    /// Creates a table with entries for this many clients, rounded up to whole sets.
    pub fn new(clients: usize) -> Table {
        let set = || {
            Mutex::new(ClientSet {
                clients: [0; WAYS],
                requests: [0; WAYS],
                bytes: [0; WAYS],
            })
        };
        let sets = clients.div_ceil(WAYS).max(1);
        Table {
            sets: std::iter::repeat_with(set).take(sets).collect(),
            hasher: RandomState::default(),
        }
    }

    /// Returns the bytes of memory that a table for this many clients takes.
    pub fn memory(clients: usize) -> usize {
        clients.div_ceil(WAYS).max(1) * size_of::<Mutex<ClientSet>>()
    }

    /// Calls `change` with one of a client's buckets, that is, with the time in nanoseconds at
    /// which the bucket is full.
    #[inline]
    pub fn with<T>(
        &self,
        client: ClientId,
        which: BucketKind,
        now: u64,
        change: impl FnOnce(&mut u64) -> T,
    ) -> Changed<T> {
        let client = client.number();
        let mut set = self.set(client).lock();
        let (place, replaced) = set.place(client, now);
        let full_at = match which {
            BucketKind::Requests => &mut set.requests[place],
            BucketKind::Bytes => &mut set.bytes[place],
        };
        Changed {
            result: change(full_at),
            replaced,
        }
    }
}

impl Table {
    /// Returns the time in nanoseconds at which one of a client's buckets is full: 0 for a client without an entry, whose
    /// buckets are full. Changes nothing.
    pub fn look(&self, client: ClientId, which: BucketKind) -> u64 {
        let client = client.number();
        let set = self.set(client).lock();
        let Some(place) = set.clients.iter().position(|known| *known == client) else {
            return 0;
        };
        match which {
            BucketKind::Requests => set.requests[place],
            BucketKind::Bytes => set.bytes[place],
        }
    }

    #[inline]
    fn set(&self, client: u64) -> &Mutex<ClientSet> {
        let hash = self.hasher.hash_one(client);
        // The upper half of the product is a set's index. All sets are equally likely.
        let index = (u128::from(hash) * self.sets.len() as u128) >> 64;
        &self.sets[index as usize]
    }
}

impl ClientSet {
    /// Returns the index of the client's entry, and whether that entry was taken from a client
    /// whose buckets are not full.
    #[inline]
    fn place(&mut self, client: u64, now: u64) -> (usize, bool) {
        if let Some(place) = self.clients.iter().position(|known| *known == client) {
            return (place, false);
        }
        let (mut place, mut soonest) = (0, u64::MAX);
        for other in 0..WAYS {
            let full_at = self.requests[other].max(self.bytes[other]);
            if full_at < soonest {
                (place, soonest) = (other, full_at);
            }
        }
        self.clients[place] = client;
        (self.requests[place], self.bytes[place]) = (0, 0);
        (place, soonest > now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gate::bucket::{BucketRate, SECOND};

    const SLOW: BucketRate = BucketRate {
        tokens: 1,
        per_ns: SECOND,
        size: 5,
    };

    /// Returns the id of one of the clients with addresses from 10.0.0.0 on.
    fn client_id(number: u64) -> ClientId {
        ClientId::of(std::net::Ipv4Addr::from(0x0a00_0000 + number as u32).into())
    }

    fn take(table: &Table, client: u64, now: u64) -> Changed<bool> {
        table.with(client_id(client), BucketKind::Requests, now, |full_at| {
            SLOW.take(full_at, now, 1, 0).is_ok()
        })
    }

    #[test]
    fn a_flooding_client_is_replaced_last() {
        let table = Table::new(1);
        assert_eq!(table.sets.len(), 1);
        let now = 1_000 * SECOND;
        while take(&table, 1, now).result {}
        // Each of these clients needs an entry, and together they need more entries than the set
        // has.
        for other in 2..1_000 {
            assert!(take(&table, other, now).result);
        }
        assert!(!take(&table, 1, now).result, "its bucket is still empty");
    }

    #[test]
    fn only_clients_with_full_buckets_are_replaced_without_notice() {
        let table = Table::new(WAYS);
        let now = 1_000 * SECOND;
        for client in 0..WAYS as u64 {
            assert!(!take(&table, client, now).replaced);
        }
        assert!(take(&table, 100, now).replaced, "all places were in use");
        assert!(!take(&table, 200, now + SECOND).replaced);
    }

    #[test]
    fn both_buckets_of_a_client_are_independent() {
        let table = Table::new(64);
        let now = 1_000 * SECOND;
        while take(&table, 1, now).result {}
        let bytes = table.with(client_id(1), BucketKind::Bytes, now, |full_at| *full_at);
        assert_eq!(bytes.result, 0);
    }

    #[test]
    fn the_memory_is_known_in_advance() {
        assert!(Table::memory(65_536) < 2 << 20, "{}", Table::memory(65_536));
    }

    proptest! {
        #[test]
        fn exactly_the_permitted_requests_pass_while_there_is_room(
            asks in prop::collection::vec((0..8_u64, 0..SECOND), 1..100),
        ) {
            // Eight clients always fit into one set, so none is replaced.
            let table = Table::new(1);
            let mut alone = [0_u64; 8];
            let mut now = SECOND;
            for (client, pause) in asks {
                now += pause;
                let expected = SLOW.take(&mut alone[client as usize], now, 1, 0).is_ok();
                let looked = take(&table, client, now);
                prop_assert_eq!((looked.result, looked.replaced), (expected, false));
            }
        }
    }
}
