//! What each client has had fetched and not yet been sent: one client can't make the edge fetch
//! without bound.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

/// Clients with an account of their own; beyond these, strangers share one.
const CLIENTS_MAX: usize = 4096;

/// In so many seconds a whole budget is forgiven: who fetched more than it read yesterday is not
/// held to it today.
const FORGIVEN_S: u64 = 600;

/// The accounts of one worker's clients.
pub(super) struct Accounts {
    budget: u64,
    clients: RefCell<HashMap<IpAddr, Rc<Account>>>,
    strangers: Rc<Account>,
}

/// One client's: bytes fetched on its behalf less bytes sent to it.
#[derive(Default)]
pub(super) struct Account {
    owed: Cell<u64>,
    /// Up to when debts have been forgiven.
    forgiven_us: Cell<u64>,
}

impl Accounts {
    /// With `budget` bytes for each client.
    pub(super) fn new(budget: u64) -> Accounts {
        Accounts {
            budget,
            clients: RefCell::default(),
            strangers: Rc::default(),
        }
    }

    /// The account of a client: an address, or a network of 64 bits with IPv6, where clients have
    /// as many addresses as they like.
    pub(super) fn of(&self, client: IpAddr, now_us: u64) -> Rc<Account> {
        let client = match client.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) >> 64 << 64;
                IpAddr::V6(network.into())
            }
            v4 @ IpAddr::V4(_) => v4,
        };
        let mut clients = self.clients.borrow_mut();
        if let Some(account) = clients.get(&client) {
            return account.clone();
        }
        if clients.len() >= CLIENTS_MAX {
            clients.retain(|_, account| {
                Rc::strong_count(account) > 1 || self.spare(account, now_us) < self.budget
            });
        }
        if clients.len() >= CLIENTS_MAX {
            return self.strangers.clone();
        }
        clients.entry(client).or_default().clone()
    }

    /// Bytes that may still be fetched for a client beyond what it asks for.
    pub(super) fn spare(&self, account: &Account, now_us: u64) -> u64 {
        let passed_us = now_us.saturating_sub(account.forgiven_us.get());
        let forgiven =
            u128::from(self.budget) * u128::from(passed_us) / (u128::from(FORGIVEN_S) * 1_000_000);
        // Small steps would be lost in the division.
        if forgiven > 0 {
            account.forgiven_us.set(now_us);
            let forgiven = u64::try_from(forgiven).unwrap_or(u64::MAX);
            account
                .owed
                .set(account.owed.get().saturating_sub(forgiven));
        }
        self.budget.saturating_sub(account.owed.get())
    }
}

impl Account {
    /// So many bytes are being fetched for this client.
    pub(super) fn fetch(&self, bytes: u64) {
        self.owed.set(self.owed.get().saturating_add(bytes));
    }

    /// So many bytes were sent to it, or will not be fetched after all.
    pub(super) fn settle(&self, bytes: u64) {
        self.owed.set(self.owed.get().saturating_sub(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    #[test]
    fn what_is_fetched_and_not_sent_uses_the_budget_up() {
        let accounts = Accounts::new(1000);
        let client = accounts.of([127, 0, 0, 1].into(), 0);
        let other = accounts.of([127, 0, 0, 2].into(), 0);
        assert_eq!(accounts.spare(&client, 0), 1000);
        client.fetch(700);
        client.settle(100);
        client.fetch(900);
        assert_eq!(accounts.spare(&client, 0), 0);
        assert_eq!(accounts.spare(&other, 0), 1000);
        client.settle(u64::MAX);
        assert_eq!(
            accounts.spare(&client, 0),
            1000,
            "never more than the budget"
        );
    }

    #[test]
    fn debts_are_forgiven_with_time_in_steps_of_any_size() {
        let accounts = Accounts::new(6000);
        let client = accounts.of([127, 0, 0, 1].into(), 0);
        client.fetch(6000);
        for tenth in 0..600 {
            accounts.spare(&client, tenth * SECOND_US / 10);
        }
        let spare = accounts.spare(&client, 60 * SECOND_US);
        assert!((590..=600).contains(&spare), "{spare}");
        assert_eq!(accounts.spare(&client, 10 * FORGIVEN_S * SECOND_US), 6000);
    }

    #[test]
    fn clients_beyond_the_limit_share_an_account() {
        let accounts = Accounts::new(10);
        for n in 0..CLIENTS_MAX as u32 {
            accounts.of(IpAddr::V4(n.into()), 0).fetch(1);
        }
        let stranger = accounts.of([10, 0, 0, 1].into(), 0);
        stranger.fetch(10);
        assert_eq!(accounts.spare(&accounts.of([10, 0, 0, 2].into(), 0), 0), 0);
        accounts.of(IpAddr::V4(7.into()), 0).settle(1);
        let known = accounts.of([10, 0, 0, 3].into(), 0);
        assert_eq!(
            accounts.spare(&known, 0),
            10,
            "a settled account makes room"
        );
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_an_account() {
        let accounts = Accounts::new(10);
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        accounts.of(address("2001:db8::1"), 0).fetch(10);
        assert_eq!(
            accounts.spare(&accounts.of(address("2001:db8::2"), 0), 0),
            0
        );
        assert_eq!(
            accounts.spare(&accounts.of(address("2001:db8:0:1::2"), 0), 0),
            10
        );
        accounts.of(address("::ffff:10.0.0.1"), 0).fetch(10);
        assert_eq!(accounts.spare(&accounts.of(address("10.0.0.1"), 0), 0), 0);
    }
}
