//! The budget of each client: bytes fetched on its behalf and not yet sent to it. Its bound keeps
//! one client from making the edge fetch without limit.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Clients with a budget of their own. All further clients share one.
const CLIENTS_MAX: usize = 4096;

/// Time, in seconds, in which a debt as large as the whole budget is forgiven, so that bytes that a
/// client never read don't count for long.
const FORGIVEN_S: u64 = 600;

/// The budgets of a cache's clients, shared by all workers. A budget is created when bytes are
/// first fetched for its client.
#[derive(Default)]
pub struct ClientBudgets {
    /// Number of requests in progress that may cause fetches of missing bytes.
    readers: AtomicU64,
    clients: Mutex<HashMap<IpAddr, Arc<ClientBudget>>>,
    shared: Arc<ClientBudget>,
}

/// One client's budget: bytes fetched on its behalf less bytes sent to it.
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
        let client = network(client);
        let mut clients = self.clients.lock();
        if let Some(budget) = clients.get(&client) {
            return budget.clone();
        }
        if clients.len() >= CLIENTS_MAX {
            clients.retain(|_, used| {
                Arc::strong_count(used) > 1 || used.spare(budget, now_us) < budget
            });
        }
        if clients.len() >= CLIENTS_MAX {
            return self.shared.clone();
        }
        clients.entry(client).or_default().clone()
    }

    /// Credits a client with stored bytes that were sent to it.
    pub(in crate::cache) fn settle(&self, client: IpAddr, bytes: u64) {
        if let Some(budget) = self.clients.lock().get(&network(client)) {
            budget.settle(bytes);
        }
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

/// The address that a budget belongs to: an IPv4 address, or the first 64 bits of an IPv6 address,
/// since an IPv6 client can use any address of its network.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
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
        // If the time passed is so short that less than one byte is forgiven, it stays uncounted
        // until a later call.
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

    /// Credits the client with bytes that were sent to it, or that will not be fetched after all.
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

/// The bytes that one flight charges to the budget of the client that launched it. A range is
/// charged in full before it is fetched. A plain GET is charged one block in advance, then each
/// further byte when it is received. Bytes that were charged and not received are credited when the
/// flight ends.
pub(in crate::cache) struct BudgetCharge {
    budget: Arc<ClientBudget>,
    /// Number of bytes that were charged and not received yet.
    ahead: u64,
}

impl BudgetCharge {
    /// Charges a flight that is expected to fetch `ahead` bytes.
    pub(in crate::cache) fn new(budget: Arc<ClientBudget>, ahead: u64) -> BudgetCharge {
        budget.fetch(ahead);
        BudgetCharge { budget, ahead }
    }

    /// Counts received bytes, and charges those that were not charged in advance.
    pub(in crate::cache) fn brought(&mut self, bytes: u64) {
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
        for n in 0..CLIENTS_MAX as u32 {
            budgets.of(IpAddr::V4(n.into()), BUDGET, 0).fetch(1);
        }
        let unknown = budgets.of([10, 0, 0, 1].into(), BUDGET, 0);
        unknown.fetch(10);
        assert_eq!(
            budgets.of([10, 0, 0, 2].into(), BUDGET, 0).spare(BUDGET, 0),
            0
        );
        budgets.of(IpAddr::V4(7.into()), BUDGET, 0).settle(1);
        let known = budgets.of([10, 0, 0, 3].into(), BUDGET, 0);
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
