//! The cost per user: the users that a server serves at its capacity, and their share of the price of the machine.

use serde::{Deserialize, Serialize};

use crate::spread::Spread;

/// Price of the machine, and the requests that a user makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Price of the machine for an hour.
    pub per_hour: f64,
    /// Currency of the price, for tables.
    pub currency: String,
    /// Requests per second of one user.
    pub requests_per_user: f64,
}

impl Default for Price {
    /// Returns the price of a machine with two virtual cores in 2013 (c1.medium of Amazon EC2, with Linux, in Virginia),
    /// and a user who requests one file every ten seconds.
    fn default() -> Self {
        Price {
            per_hour: 0.145,
            currency: "USD".to_owned(),
            requests_per_user: 0.1,
        }
    }
}

/// The measured throughput that counts as a server's capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Capacity {
    /// Saturation over connections that stay open.
    Keepalive,
    /// Saturation with a connection for each request.
    Close,
    /// The rate of short connections that the server held with a good median latency.
    Held,
}

impl Capacity {
    /// Returns the description in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Capacity::Keepalive => "keepalive",
            Capacity::Close => "a connection each",
            Capacity::Held => "held rate",
        }
    }
}

/// Users that one server serves, and their cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The capacity from which the users follow.
    pub capacity: Capacity,
    /// Number of users: the capacity divided by the requests per second of one user.
    pub users: Spread,
    /// Price of an hour divided by the number of users, for 1,000 users; `None` if a round had no capacity.
    pub per_1000_users: Option<Spread>,
}

impl Cost {
    /// Returns the cost of users of a server whose capacity in requests per second is `rate`.
    pub(super) fn of(price: &Price, capacity: Capacity, rate: &Spread) -> Option<Cost> {
        let users = rate
            .rounds
            .iter()
            .map(|rate| rate / price.requests_per_user);
        let users = Spread::of(users.collect())?;
        let costs = users
            .rounds
            .iter()
            .map(|users| 1000.0 * price.per_hour / users);
        Some(Cost {
            capacity,
            per_1000_users: Spread::of(costs.collect()),
            users,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_is_shared_by_the_users_of_the_capacity() {
        let price = Price::default();
        let rate = Spread::of(vec![29_000.0, 14_500.0, 58_000.0]).expect("rates");
        let cost = Cost::of(&price, Capacity::Held, &rate).expect("a cost");
        assert_eq!(cost.users.median, 290_000.0);
        let each = cost.per_1000_users.expect("a capacity");
        assert!((each.median - 0.0005).abs() < 1e-9, "{each:?}");
        assert!((each.low - 0.00025).abs() < 1e-9, "{each:?}");
        assert!((each.high - 0.001).abs() < 1e-9, "{each:?}");
    }

    #[test]
    fn without_a_capacity_there_is_no_cost() {
        let rate = Spread::of(vec![0.0, 100.0]).expect("rates");
        let cost = Cost::of(&Price::default(), Capacity::Held, &rate).expect("users");
        assert_eq!((cost.users.low, cost.per_1000_users), (0.0, None));
    }
}
