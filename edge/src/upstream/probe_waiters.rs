//! The requests that wait for probes: a bounded number, of which each client has at most half.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use crate::http::ClientId;

/// The requests that wait for probes.
pub(super) struct ProbeWaiters {
    /// Number of waiting requests of each client that has any.
    clients: RefCell<HashMap<ClientId, usize>>,
    total: Cell<usize>,
    limit: usize,
}

/// One waiting request.
pub(super) struct ProbeWaiter<'a> {
    waiters: &'a ProbeWaiters,
    client: ClientId,
}

impl ProbeWaiters {
    /// Creates room for at most `limit` requests.
    pub(super) fn new(limit: usize) -> ProbeWaiters {
        ProbeWaiters {
            clients: RefCell::default(),
            total: Cell::new(0),
            limit,
        }
    }

    /// Returns whether no request waits.
    pub(super) fn is_empty(&self) -> bool {
        self.total.get() == 0
    }

    /// Adds a request of this client until the result is dropped. Returns `None` if there is no
    /// room, or the client has half of it.
    pub(super) fn add(&self, client: ClientId) -> Option<ProbeWaiter<'_>> {
        let mut clients = self.clients.borrow_mut();
        let own = clients.get(&client).copied().unwrap_or(0);
        if self.total.get() >= self.limit || own >= self.limit.div_ceil(2) {
            return None;
        }
        clients.insert(client, own + 1);
        self.total.set(self.total.get() + 1);
        Some(ProbeWaiter {
            waiters: self,
            client,
        })
    }
}

impl Drop for ProbeWaiter<'_> {
    fn drop(&mut self) {
        let ProbeWaiters { clients, total, .. } = self.waiters;
        let mut clients = clients.borrow_mut();
        total.set(total.get().saturating_sub(1));
        match clients.get_mut(&self.client) {
            Some(own) if *own > 1 => *own -= 1,
            _ => {
                clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_gets_half_of_the_room() {
        let client = |last| ClientId::of([192, 0, 2, last].into());
        for (limit, half) in [(0, 0), (1, 1), (2, 1), (5, 3), (40, 20)] {
            let waiters = ProbeWaiters::new(limit);
            let fill = |last| (0..100).filter_map(|_| waiters.add(client(last))).collect();
            for _ in 0..2 {
                let all: [Vec<ProbeWaiter<'_>>; 3] = [fill(1), fill(2), fill(3)];
                let counts = all.each_ref().map(Vec::len);
                assert_eq!(counts, [half, limit - half, 0], "{limit}");
                assert_eq!(waiters.is_empty(), limit == 0);
                drop(all);
                assert!(waiters.is_empty() && waiters.clients.borrow().is_empty());
            }
        }
    }
}
