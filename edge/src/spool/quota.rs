//! Limits that the bodies of all clients share, and of which one client gets half.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::http::ClientId;

/// A limit, such as one of memory, and the amount of it that is in use by each client.
pub(super) struct Quota {
    limit: AtomicU64,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    all: u64,
    /// Amount of each client. A client that uses nothing has no entry.
    of_clients: HashMap<ClientId, u64>,
}

/// The amount of a quota that something uses, released when this is dropped.
pub(super) struct Charge {
    quota: Arc<Quota>,
    client: ClientId,
    amount: u64,
}

impl Quota {
    pub(super) fn new(limit: u64) -> Arc<Quota> {
        Arc::new(Quota {
            limit: AtomicU64::new(limit),
            used: Mutex::default(),
        })
    }

    /// Changes the limit. Amounts in use stay in use.
    pub(super) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns the amount in use.
    pub(super) fn used(&self) -> u64 {
        self.used.lock().all
    }

    /// Returns the most that one client may use.
    pub(super) fn of_client(&self) -> u64 {
        self.limit() / 2
    }
}

impl Charge {
    /// Creates a charge of nothing for this client.
    pub(super) fn new(quota: &Arc<Quota>, client: ClientId) -> Charge {
        Charge {
            quota: quota.clone(),
            client,
            amount: 0,
        }
    }

    pub(super) fn amount(&self) -> u64 {
        self.amount
    }

    /// Adds to the amount, unless a limit would be exceeded. Returns whether it was added.
    pub(super) fn grow(&mut self, more: u64) -> bool {
        let limit = self.quota.limit();
        let mut used = self.quota.used.lock();
        let of_client = used.of_clients.get(&self.client).copied().unwrap_or(0);
        let (all, of_client) = (
            used.all.saturating_add(more),
            of_client.saturating_add(more),
        );
        if all > limit || of_client > limit / 2 {
            return false;
        }
        used.all = all;
        used.of_clients.insert(self.client, of_client);
        drop(used);
        self.amount += more;
        true
    }

    /// Releases a part of the amount, at most all of it.
    pub(super) fn shrink(&mut self, less: u64) {
        let less = less.min(self.amount);
        if less == 0 {
            return;
        }
        let mut used = self.quota.used.lock();
        used.all -= less;
        if let Some(of_client) = used.of_clients.get_mut(&self.client) {
            *of_client -= less;
            if *of_client == 0 {
                used.of_clients.remove(&self.client);
            }
        }
        drop(used);
        self.amount -= less;
    }

    /// Moves a part of the amount, at most all of it, to another charge.
    pub(super) fn split(&mut self, part: u64) -> Charge {
        let part = part.min(self.amount);
        self.amount -= part;
        Charge {
            quota: self.quota.clone(),
            client: self.client,
            amount: part,
        }
    }

    /// Adds the amount of another charge for the same quota and client.
    pub(super) fn join(&mut self, mut other: Charge) {
        self.amount += std::mem::take(&mut other.amount);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.amount);
    }
}
