//! An amount for each client, added up over all workers: its open connections, or the memory of its
//! waiting requests.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use parking_lot::Mutex;

use crate::http::ClientId;

/// Number of parts of the table. Each part has its own lock.
const SHARDS: usize = 64;
/// Capacity in entries above which an empty part releases its memory.
const KEPT: usize = 256;

/// The totals of the clients in one part.
type Totals = HashMap<ClientId, u64, RandomState>;

/// A total for each client. A client whose total is 0 has no entry, so there are at most as many
/// entries as connections.
pub struct ClientTotals {
    shards: Box<[Mutex<Totals>]>,
    hasher: RandomState,
}

impl Default for ClientTotals {
    fn default() -> ClientTotals {
        ClientTotals {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
        }
    }
}

impl ClientTotals {
    fn shard(&self, client: ClientId) -> &Mutex<Totals> {
        let hash = self.hasher.hash_one(client);
        &self.shards[(hash % self.shards.len() as u64) as usize]
    }

    /// Adds an amount, at least 1, to the total of a client, unless the total would then exceed
    /// `most`. The first amount is always added. Returns whether the amount was added.
    pub fn add(&self, client: ClientId, amount: u64, most: u64) -> bool {
        let mut shard = self.shard(client).lock();
        let total = shard.entry(client).or_insert(0);
        // A new total (0) always grows, so no entry stays at 0.
        let fits = *total == 0 || total.saturating_add(amount) <= most;
        if fits {
            *total += amount;
        }
        fits
    }

    /// Subtracts an amount that `add` has added.
    pub fn subtract(&self, client: ClientId, amount: u64) {
        let mut shard = self.shard(client).lock();
        if let Entry::Occupied(mut entry) = shard.entry(client) {
            match entry.get().checked_sub(amount) {
                Some(left @ 1..) => *entry.get_mut() = left,
                _ => _ = entry.remove(),
            }
        }
        if shard.is_empty() && shard.capacity() > KEPT {
            shard.shrink_to_fit();
        }
    }

    /// Returns the number of clients whose total is not 0.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ClientId {
        ClientId::of(text.parse().expect("an address"))
    }

    #[test]
    fn each_client_is_counted_for_itself_and_forgotten_with_its_last_connection() {
        let clients = ClientTotals::default();
        let enter = |text: &str| clients.add(id(text), 1, 2);
        assert!(enter("192.0.2.1") && enter("::ffff:192.0.2.1") && !enter("192.0.2.1"));
        assert!(enter("192.0.2.2"));
        assert!(enter("2001:db8::1") && enter("2001:db8::2:1") && !enter("2001:db8::3"));
        assert!(enter("2001:db8:0:1::1"));
        clients.subtract(id("192.0.2.1"), 1);
        assert!(enter("192.0.2.1") && !enter("192.0.2.1"));
        for gone in ["192.0.2.1", "192.0.2.1", "192.0.2.2", "2001:db8:0:1::9"] {
            clients.subtract(id(gone), 1);
        }
        assert_eq!(clients.len(), 1, "2001:db8::/64 is left");
    }

    #[test]
    fn only_the_first_amount_of_a_client_may_exceed_the_limit() {
        let clients = ClientTotals::default();
        let (client, other) = (id("192.0.2.1"), id("192.0.2.2"));
        assert!(clients.add(client, 15, 10) && !clients.add(client, 1, 10));
        assert!(clients.add(other, 4, 10) && clients.add(other, 6, 10));
        clients.subtract(client, 15);
        clients.subtract(other, 4);
        assert!(clients.add(client, 10, 10) && !clients.add(other, 5, 10));
    }
}
