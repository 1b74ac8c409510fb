//! The budget of each client: bytes fetched on its behalf and not yet received by it. Its bound keeps
//! one client from making the edge fetch without limit.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::handler::Receipt;
use crate::http::ClientId;

/// Number of locks for the budgets, so that workers seldom wait for one another.
const SHARDS: usize = 32;
/// Clients under one lock with a budget of their own, so at most 4096 clients in all. All further
/// clients share one budget.
const SHARD_MAX: usize = 128;

/// Time, in seconds, in which a debt as large as the whole budget is forgiven, so that bytes that a
/// client never read don't count for long.
const FORGIVEN_S: u64 = 600;

/// The budgets of a cache's clients, shared by all workers. A budget is created when bytes are
/// first fetched for its client.
#[derive(Default)]
pub struct ClientBudgets {
    /// Number of requests in progress that may cause fetches of missing bytes.
    readers: AtomicU64,
    shards: [Shard; SHARDS],
    /// Chooses the shard of a client.
    hashing: RandomState,
    shared: Arc<ClientBudget>,
}

/// The budgets of the clients under one lock, which has a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<HashMap<ClientId, Arc<ClientBudget>>>);

/// One client's budget: bytes fetched on its behalf less bytes that it has received.
#[derive(Default)]
pub(in crate::cache) struct ClientBudget {
    owed: AtomicU64,
    /// Monotonic time up to which debt has been forgiven, in microseconds.
    forgiven_us: AtomicU64,
}

impl ClientBudgets {
    /// Returns the budget of a client, and creates it if there is none yet. `budget` is the limit
    /// in bytes.
    pub(in crate::cache) fn of(
        &self,
        client: IpAddr,
        budget: u64,
        now_us: u64,
    ) -> Arc<ClientBudget> {
        let client = ClientId::of(client);
        let mut clients = self.shard(client).lock();
        if let Some(budget) = clients.get(&client) {
            return budget.clone();
        }
        if clients.len() >= SHARD_MAX {
            clients.retain(|_, used| {
                Arc::strong_count(used) > 1 || used.spare(budget, now_us) < budget
            });
        }
        if clients.len() >= SHARD_MAX {
            return self.shared.clone();
        }
        clients.entry(client).or_default().clone()
    }

    /// Returns the receipt of stored bytes, with which a client is credited when it has received
    /// them. `None` if nothing was fetched for the client that it has not received.
    pub(in crate::cache) fn receipt(&self, client: IpAddr) -> Option<Arc<dyn Receipt>> {
        let client = ClientId::of(client);
        let clients = self.shard(client).lock();
        let budget = clients.get(&client)?;
        (budget.owed.load(Ordering::Relaxed) > 0).then(|| budget.receipt())
    }

    fn shard(&self, client: ClientId) -> &Mutex<HashMap<ClientId, Arc<ClientBudget>>> {
        &self.shards[self.hashing.hash_one(client) as usize % SHARDS].0
    }

    /// Counts a request that may cause fetches of missing bytes, until the returned value is
    /// dropped.
    pub(in crate::cache) fn reading(self: &Arc<ClientBudgets>) -> Reading {
        self.readers.fetch_add(1, Ordering::Relaxed);
        Reading(self.clone())
    }

    /// Number of requests in progress that may cause fetches of missing bytes, at least 1.
    pub(in crate::cache) fn readers(&self) -> u64 {
        self.readers.load(Ordering::Relaxed).max(1)
    }
}

/// A worker's access to the budgets, and its list of objects that are being read ahead.
pub(in crate::cache) struct Clients {
    pub(in crate::cache) budgets: Arc<ClientBudgets>,
    pub(in crate::cache) read_ahead: ReadAheads,
}

/// The memory addresses of the objects that are being read ahead. Each object's reader keeps it
/// alive meanwhile.
#[derive(Clone, Default)]
pub(in crate::cache) struct ReadAheads(pub(in crate::cache) Rc<RefCell<HashSet<usize>>>);

impl Clients {
    /// Creates one worker's access to the shared budgets.
    pub(in crate::cache) fn new(budgets: Arc<ClientBudgets>) -> Clients {
        Clients {
            budgets,
            read_ahead: ReadAheads::default(),
        }
    }
}

/// Counts one request that may cause fetches of missing bytes, until the value is dropped.
pub(in crate::cache) struct Reading(Arc<ClientBudgets>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ClientBudget {
    /// Number of bytes that may still be fetched for this client beyond those that it requested.
    pub(in crate::cache) fn spare(&self, budget: u64, now_us: u64) -> u64 {
        let passed_us = now_us.saturating_sub(self.forgiven_us.load(Ordering::Relaxed));
        let forgiven =
            u128::from(budget) * u128::from(passed_us) / (u128::from(FORGIVEN_S) * 1_000_000);
        // If the time passed is too short to forgive one byte, it is not recorded, so that a later
        // call counts it.
        if forgiven > 0 {
            self.forgiven_us.store(now_us, Ordering::Relaxed);
            self.settle(u64::try_from(forgiven).unwrap_or(u64::MAX));
        }
        budget.saturating_sub(self.owed.load(Ordering::Relaxed))
    }

    /// Charges the client for bytes that are being fetched for it.
    pub(in crate::cache) fn fetch(&self, bytes: u64) {
        self.change(|owed| owed.saturating_add(bytes));
    }

    /// Returns the receipt of bytes, with which the client is credited when it has received them.
    pub(in crate::cache) fn receipt(self: &Arc<ClientBudget>) -> Arc<dyn Receipt> {
        self.clone()
    }

    /// Credits the client with bytes that it has received, or that will not be fetched after all.
    pub(in crate::cache) fn settle(&self, bytes: u64) {
        self.change(|owed| owed.saturating_sub(bytes));
    }

    fn change(&self, to: impl Fn(u64) -> u64) {
        let changed = |owed| Some(to(owed));
        // The closure never returns `None`, so the update can't fail.
        let _ = self
            .owed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }
}

impl Receipt for ClientBudget {
    fn received(&self, bytes: u64) {
        self.settle(bytes);
    }
}

/// The bytes that one flight charges to the budget of the client that launched it. A range is
/// charged in full before it is fetched. A plain GET is charged one block in advance, then each
/// further byte when it is received. Bytes that were charged and not received are credited when the
/// flight ends.
pub(in crate::cache) struct BudgetCharge {
    budget: Arc<ClientBudget>,
    /// Number of bytes that were charged and not received yet.
    ahead: u64,
    /// Number of bytes that the flight has received.
    pub(in crate::cache) received: u64,
}

impl BudgetCharge {
    /// Charges a flight that is expected to fetch `ahead` bytes.
    pub(in crate::cache) fn new(budget: Arc<ClientBudget>, ahead: u64) -> BudgetCharge {
        budget.fetch(ahead);
        BudgetCharge {
            budget,
            ahead,
            received: 0,
        }
    }

    /// Counts received bytes, and charges those that were not charged in advance.
    pub(in crate::cache) fn note_received(&mut self, bytes: u64) {
        self.received += bytes;
        let known = bytes.min(self.ahead);
        self.ahead -= known;
        self.budget.fetch(bytes - known);
    }

    /// Whether nothing is left of the client's budget.
    pub(in crate::cache) fn is_used_up(&self, budget: u64, now_us: u64) -> bool {
        self.budget.spare(budget, now_us) == 0
    }
}

impl Drop for BudgetCharge {
    fn drop(&mut self) {
        self.budget.settle(self.ahead);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;
    const BUDGET: u64 = 10;

    #[test]
    fn bytes_fetched_and_not_sent_use_up_the_budget() {
        let budgets = ClientBudgets::default();
        let client = budgets.of([127, 0, 0, 1].into(), BUDGET, 0);
        let other = budgets.of([127, 0, 0, 2].into(), BUDGET, 0);
        assert_eq!(client.spare(1000, 0), 1000);
        client.fetch(700);
        client.settle(100);
        client.fetch(900);
        assert_eq!(client.spare(1000, 0), 0);
        assert_eq!(other.spare(1000, 0), 1000);
        client.settle(u64::MAX);
        assert_eq!(client.spare(1000, 0), 1000, "never more than the budget");
    }

    #[test]
    fn debt_is_forgiven_over_time_in_steps_of_any_size() {
        let budgets = ClientBudgets::default();
        let client = budgets.of([127, 0, 0, 1].into(), BUDGET, 0);
        client.fetch(6000);
        for tenth in 0..600 {
            client.spare(6000, tenth * SECOND_US / 10);
        }
        let spare = client.spare(6000, 60 * SECOND_US);
        assert!((590..=600).contains(&spare), "{spare}");
        assert_eq!(client.spare(6000, 10 * FORGIVEN_S * SECOND_US), 6000);
    }

    #[test]
    fn clients_beyond_the_limit_share_a_budget() {
        let budgets = ClientBudgets::default();
        // Twice as many clients as can have a budget, so that every shard is full.
        for n in 0..2 * (SHARDS * SHARD_MAX) as u32 {
            budgets.of(IpAddr::V4(n.into()), BUDGET, 0).fetch(1);
        }
        let count = || budgets.shards.iter().map(|shard| shard.0.lock().len());
        assert!(count().all(|count| count == SHARD_MAX));
        let unknown: IpAddr = [10, 0, 0, 1].into();
        budgets.of(unknown, BUDGET, 0).fetch(10);
        assert_eq!(budgets.shared.spare(BUDGET, 0), 0);
        assert_eq!(
            budgets.of([10, 0, 0, 2].into(), BUDGET, 0).spare(BUDGET, 0),
            0
        );
        let settled = budgets
            .shard(ClientId::of(unknown))
            .lock()
            .values()
            .next()
            .cloned();
        settled.expect("a full shard").settle(1);
        let known = budgets.of(unknown, BUDGET, 0);
        assert_eq!(known.spare(BUDGET, 0), 10, "a settled budget makes room");
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_a_budget() {
        let budgets = ClientBudgets::default();
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        budgets.of(address("2001:db8::1"), BUDGET, 0).fetch(10);
        assert_eq!(
            budgets
                .of(address("2001:db8::2"), BUDGET, 0)
                .spare(BUDGET, 0),
            0
        );
        assert_eq!(
            budgets
                .of(address("2001:db8:0:1::2"), BUDGET, 0)
                .spare(BUDGET, 0),
            10
        );
        budgets.of(address("::ffff:10.0.0.1"), BUDGET, 0).fetch(10);
        assert_eq!(
            budgets.of(address("10.0.0.1"), BUDGET, 0).spare(BUDGET, 0),
            0
        );
    }
}
