//! Counts the open connections of each client, over all workers.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::net::IpAddr;

use parking_lot::Mutex;

/// Number of parts of the table. Each part has its own lock.
const SHARDS: usize = 64;
/// Capacity in entries above which an empty part releases its memory.
const KEPT: usize = 256;

/// The number of open connections of each client. A client without connections has no entry, so
/// there are at most as many entries as connections.
pub struct ClientConnections {
    shards: Box<[Mutex<HashMap<Client, usize>>]>,
    hasher: RandomState,
}

/// One client: an IPv4 address, or the first 64 bits of an IPv6 address, since an internet
/// subscriber gets at least a /64 network (RFC 6177) and controls all its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Client {
    Four(u32),
    Six(u64),
}

impl Client {
    fn of(address: IpAddr) -> Client {
        match address.to_canonical() {
            IpAddr::V4(address) => Client::Four(address.into()),
            IpAddr::V6(address) => Client::Six((u128::from(address) >> 64) as u64),
        }
    }
}

impl Default for ClientConnections {
    fn default() -> ClientConnections {
        ClientConnections {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl ClientConnections {
    fn shard(&self, client: Client) -> &Mutex<HashMap<Client, usize>> {
        let hash = self.hasher.hash_one(client);
        &self.shards[(hash % self.shards.len() as u64) as usize]
    }

    /// Counts a connection, unless its client already has `most` connections. Returns whether it
    /// was counted.
    pub fn enter(&self, address: IpAddr, most: usize) -> bool {
        let client = Client::of(address);
        let mut shard = self.shard(client).lock();
        let open = shard.entry(client).or_insert(0);
        // A new entry (0) is below every limit, which is at least one, so no entry stays at 0.
        let may = *open < most.max(1);
        *open += usize::from(may);
        may
    }

    /// Removes a connection that `enter` has counted.
    pub fn leave(&self, address: IpAddr) {
        let client = Client::of(address);
        let mut shard = self.shard(client).lock();
        if let Entry::Occupied(mut entry) = shard.entry(client) {
            match entry.get().checked_sub(1) {
                Some(left @ 1..) => *entry.get_mut() = left,
                _ => _ = entry.remove(),
            }
        }
        if shard.is_empty() && shard.capacity() > KEPT {
            shard.shrink_to_fit();
        }
    }

    /// Returns the number of clients that have a connection.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_is_counted_for_itself_and_forgotten_with_its_last_connection() {
        let clients = ClientConnections::default();
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let enter = |text: &str| clients.enter(ip(text), 2);
        assert!(enter("192.0.2.1") && enter("::ffff:192.0.2.1") && !enter("192.0.2.1"));
        assert!(enter("192.0.2.2"));
        assert!(enter("2001:db8::1") && enter("2001:db8::2:1") && !enter("2001:db8::3"));
        assert!(enter("2001:db8:0:1::1"));
        clients.leave(ip("192.0.2.1"));
        assert!(enter("192.0.2.1") && !enter("192.0.2.1"));
        for gone in ["192.0.2.1", "192.0.2.1", "192.0.2.2", "2001:db8:0:1::9"] {
            clients.leave(ip(gone));
        }
        assert_eq!(clients.len(), 1, "2001:db8::/64 is left");
    }
}
