//! A bounded queue that serves clients in turn.

use std::collections::{HashMap, VecDeque};

use crate::http::ClientId;

/// A queue of entries of several clients. The clients are served in turn, each client's oldest entry
/// first, so that many entries of one client don't delay the others. One client's entries take at
/// most half of the queue.
pub(super) struct FairQueue<T> {
    /// The entries of each client that has any, the oldest first.
    clients: HashMap<ClientId, VecDeque<T>>,
    /// These clients, the next one to be served first.
    turns: VecDeque<ClientId>,
    length: usize,
    limit: usize,
}

impl<T> FairQueue<T> {
    /// Creates a queue for at most `limit` entries.
    pub(super) fn new(limit: usize) -> FairQueue<T> {
        FairQueue {
            clients: HashMap::new(),
            turns: VecDeque::new(),
            length: 0,
            limit,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Adds an entry of this client. Returns `false` if the queue is full, or the client's half of
    /// it.
    pub(super) fn push(&mut self, client: ClientId, entry: T) -> bool {
        let own = self.clients.get(&client).map_or(0, VecDeque::len);
        if self.length >= self.limit || own >= self.limit.div_ceil(2) {
            return false;
        }
        if own == 0 {
            self.turns.push_back(client);
        }
        self.clients.entry(client).or_default().push_back(entry);
        self.length += 1;
        true
    }

    /// Removes the next entry of those for which `is_served` returns true. After that, it is the
    /// other clients' turn.
    pub(super) fn pop(&mut self, is_served: impl Fn(&T) -> bool) -> Option<T> {
        let (turn, client, at) = self.turns.iter().enumerate().find_map(|(turn, client)| {
            let at = self.clients.get(client)?.iter().position(&is_served)?;
            Some((turn, *client, at))
        })?;
        self.turns.remove(turn);
        self.turns.push_back(client);
        self.take(client, at)
    }

    /// Removes the entries of this client for which `is_gone` returns true.
    pub(super) fn remove(&mut self, client: ClientId, is_gone: impl Fn(&T) -> bool) {
        while let Some(at) = self
            .clients
            .get(&client)
            .and_then(|entries| entries.iter().position(&is_gone))
        {
            self.take(client, at);
        }
    }

    fn take(&mut self, client: ClientId, at: usize) -> Option<T> {
        let entries = self.clients.get_mut(&client)?;
        let entry = entries.remove(at)?;
        self.length -= 1;
        if entries.is_empty() {
            self.clients.remove(&client);
            self.turns.retain(|other| *other != client);
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> ClientId {
        ClientId::of([192, 0, 2, last].into())
    }

    fn drain(queue: &mut FairQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop(|_| true)).collect()
    }

    #[test]
    fn clients_are_served_in_turn_and_each_ones_oldest_entry_first() {
        let mut queue = FairQueue::new(20);
        for (last, entry) in [(1, 10), (1, 11), (1, 12), (2, 20), (2, 21), (3, 30)] {
            assert!(queue.push(client(last), entry));
        }
        assert_eq!(queue.pop(|_| true), Some(10));
        assert!(queue.push(client(4), 40));
        assert_eq!(drain(&mut queue), [20, 30, 11, 40, 21, 12]);
        assert_eq!(
            (queue.len(), queue.turns.len(), queue.clients.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn one_client_gets_half_of_the_queue() {
        for (limit, half) in [(0, 0), (1, 1), (2, 1), (5, 3), (40, 20)] {
            let mut queue = FairQueue::new(limit);
            let mut pushed = |last| (0..100).filter(|&n| queue.push(client(last), n)).count();
            let counts = [pushed(1), pushed(2), pushed(3)];
            assert_eq!(counts, [half, limit - half, 0], "{limit}");
        }
    }

    #[test]
    fn entries_that_may_not_be_served_wait_and_removed_ones_are_gone() {
        let mut queue = FairQueue::new(20);
        for (last, entry) in [(1, 10), (1, 11), (2, 20), (2, 21)] {
            assert!(queue.push(client(last), entry));
        }
        assert_eq!(queue.pop(|entry| entry % 10 == 1), Some(11));
        queue.remove(client(2), |entry| *entry == 20);
        queue.remove(client(3), |_| true);
        assert_eq!(queue.pop(|entry| *entry == 20), None);
        assert_eq!(queue.len(), 2);
        assert_eq!(drain(&mut queue), [21, 10]);
    }
}
