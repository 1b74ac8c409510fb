//! The condition of one server: the operator's orders, health and ejection, shared by all workers.
//!
//! A condition changes rarely and is read only when it has changed, so a lock is enough. It is kept
//! when a reload changes the upstream.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// Longest time of an ejection, unless the configuration has a longer one.
const EJECTED_MAX: Duration = Duration::from_secs(300);
/// Part of its weight with which a server starts, in percent.
const STARTING_PERCENT: u64 = 10;
/// Time after which another request may test an ejected server while one still does, in microseconds:
/// a client that is slow, or a tunnel, must not keep the server out of use.
const TRIAL_US: u64 = 10_000_000;
/// Most addresses whose conditions are kept for an upstream.
const KEPT_MAX: usize = 1024;

/// The operator's order about a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The server gets requests.
    #[default]
    Up,
    /// The server gets requests only of clients that stick to it.
    Drain,
    /// The server gets no requests.
    Down,
}

/// The state of a server, as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The server gets its share of requests.
    Up,
    /// The operator has ordered to drain the server.
    Drain,
    /// The operator has taken the server down.
    Down,
    /// The address was added while the program runs, and no health check of it has ended yet.
    Checking,
    /// Health checks fail.
    Unhealthy,
    /// The server was ejected because requests to it failed.
    Ejected,
    /// The last attempt to connect to the server failed, or its TLS handshake.
    Unreachable,
}

impl Standing {
    /// Returns the name in status pages.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Up => "up",
            Standing::Drain => "drain",
            Standing::Down => "down",
            Standing::Checking => "checking",
            Standing::Unhealthy => "unhealthy",
            Standing::Ejected => "ejected",
            Standing::Unreachable => "unreachable",
        }
    }
}

/// The condition of one server.
#[derive(Debug, Default)]
pub struct Condition(Mutex<Facts>);

#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    order: Order,
    /// Weight that replaces the configured one.
    weight: Option<u32>,
    /// Times of the operator's last order and weight for this server. 0: there was none. Orders for
    /// its name may be in force instead.
    ordered_us: u64,
    weighed_us: u64,
    health: Health,
    ejection: Ejection,
    /// Number of ejections since the server last stayed in use for as long as it was ejected.
    ejections: u32,
    /// Beginning of the last trial, in microseconds.
    trial_began_us: u64,
    /// End of the last ejection, and its length, in microseconds.
    ejected_until_us: u64,
    ejected_for_us: u64,
    /// Time since which the server gets a growing share of the requests. 0: it gets its full share.
    starting_since_us: u64,
}

/// The results of health checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Health {
    /// The checks succeed, or there are none, or none has ended since the program was started.
    #[default]
    Good,
    /// No check of an address has ended that was added while the program runs.
    Unknown,
    /// The checks fail.
    Failed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ejection {
    #[default]
    None,
    Ejected,
    /// One request tests whether the server works again.
    OnTrial,
}

/// A copy of the facts that concern the choice of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) order: Order,
    pub(super) weight: Option<u32>,
    /// Whether other servers are preferred.
    pub(super) is_avoided: bool,
    /// Time from which on one request may test the server, if it was ejected.
    pub(super) trial_from_us: Option<u64>,
    pub(super) starting_since_us: u64,
}

/// Result of an exchange for a server that was ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tested {
    /// The server works again.
    Back,
    /// The server failed again and is ejected for this time.
    Ejected(Duration),
}

impl Condition {
    /// Returns the facts that concern the choice of a server.
    pub(super) fn seen(&self) -> Seen {
        let facts = self.0.lock();
        Seen {
            order: facts.order,
            weight: facts.weight,
            is_avoided: facts.health != Health::Good || facts.ejection != Ejection::None,
            trial_from_us: facts.trial_from_us(),
            starting_since_us: facts.starting_since_us,
        }
    }

    /// Returns the state as operators see it, apart from the attempts to connect to the server.
    pub(super) fn standing(&self) -> Standing {
        let facts = self.0.lock();
        match facts.order {
            Order::Down => Standing::Down,
            Order::Drain => Standing::Drain,
            Order::Up if facts.health == Health::Failed => Standing::Unhealthy,
            Order::Up if facts.health == Health::Unknown => Standing::Checking,
            Order::Up if facts.ejection != Ejection::None => Standing::Ejected,
            Order::Up => Standing::Up,
        }
    }

    /// Replaces the configured weight.
    pub(super) fn set_weight(&self, weight: u32, now_us: u64) {
        let mut facts = self.0.lock();
        (facts.weight, facts.weighed_us) = (Some(weight), now_us);
    }

    /// Carries out an operator's order. A server that comes up starts without ejection. Returns
    /// whether the order is a new one.
    pub(super) fn set_order(&self, order: Order, now_us: u64) -> bool {
        let mut facts = self.0.lock();
        let is_new = facts.order != order;
        if order == Order::Up {
            facts.ejection = Ejection::None;
            facts.ejections = 0;
            if facts.order == Order::Down {
                facts.starting_since_us = now_us;
            }
        }
        (facts.order, facts.ordered_us) = (order, now_us);
        is_new
    }

    /// Notes the result of health checks. Returns whether it has changed.
    pub(super) fn set_healthy(&self, is_healthy: bool, now_us: u64) -> bool {
        let mut facts = self.0.lock();
        let health = match is_healthy {
            true => Health::Good,
            false => Health::Failed,
        };
        if facts.health == health {
            return false;
        }
        facts.health = health;
        if is_healthy {
            facts.starting_since_us = now_us;
        }
        true
    }

    /// Forgets the results of health checks, and ejections, that are no longer configured.
    pub(super) fn forget(&self, health: bool, ejections: bool) {
        let mut facts = self.0.lock();
        if health {
            facts.health = Health::Good;
        }
        if ejections {
            facts.ejection = Ejection::None;
        }
    }

    /// Begins a start with a small share of the requests.
    pub(super) fn start(&self, now_us: u64) {
        self.0.lock().starting_since_us = now_us;
    }

    /// Begins the use of an address that was added while the program runs. `is_checked`: whether
    /// there are health checks. Other servers are then preferred until the first one has succeeded.
    pub(super) fn add(&self, is_checked: bool, now_us: u64) {
        let mut facts = self.0.lock();
        facts.starting_since_us = now_us;
        if is_checked && facts.health == Health::Good {
            facts.health = Health::Unknown;
        }
    }

    /// Whether the server gets requests of all clients, and no other servers are preferred to it.
    pub(super) fn is_usable(&self) -> bool {
        let seen = self.seen();
        seen.order == Order::Up && !seen.is_avoided
    }

    /// Whether health checks fail.
    pub(super) fn is_unhealthy(&self) -> bool {
        self.0.lock().health == Health::Failed
    }

    /// Whether the next result of a health check alone decides whether the server is healthy.
    pub(super) fn awaits_check(&self) -> bool {
        self.0.lock().health == Health::Unknown
    }

    /// Takes over the orders in `other`, unless those for this server are newer.
    fn follow(&self, other: &Condition) {
        let other = *other.0.lock();
        let mut facts = self.0.lock();
        if other.ordered_us > facts.ordered_us {
            facts.order = other.order;
        }
        if other.weighed_us > facts.weighed_us {
            facts.weight = other.weight;
        }
    }

    /// Whether the server is ejected, or on trial.
    pub(super) fn is_ejected(&self) -> bool {
        self.0.lock().ejection != Ejection::None
    }

    /// Ejects a server in use, for `first`, or twice as long as the last time. Returns the time, or
    /// `None` if the server is ejected already.
    pub(super) fn eject(&self, first: Duration, now_us: u64) -> Option<Duration> {
        let mut facts = self.0.lock();
        (facts.ejection == Ejection::None).then(|| facts.eject(first, now_us))
    }

    /// Begins the trial of an ejected server, if its time has come and no other request tests it, or
    /// has tested it for long.
    pub(super) fn begin_trial(&self, now_us: u64) -> bool {
        let mut facts = self.0.lock();
        let may = facts
            .trial_from_us()
            .is_some_and(|from_us| now_us >= from_us);
        if may {
            facts.ejection = Ejection::OnTrial;
            facts.trial_began_us = now_us;
        }
        may
    }

    /// Ends a trial: the request failed (`Some(true)`), succeeded, or said nothing about the server
    /// (`None`), so that another request may test it at once.
    pub(super) fn end_trial(
        &self,
        failed: Option<bool>,
        first: Duration,
        now_us: u64,
    ) -> Option<Tested> {
        let mut facts = self.0.lock();
        if facts.ejection != Ejection::OnTrial {
            return None;
        }
        match failed {
            None => {
                facts.ejection = Ejection::Ejected;
                None
            }
            Some(true) => Some(Tested::Ejected(facts.eject(first, now_us))),
            Some(false) => {
                facts.ejection = Ejection::None;
                facts.ejected_until_us = now_us;
                facts.starting_since_us = now_us;
                Some(Tested::Back)
            }
        }
    }

    /// Whether there is nothing to keep about the server.
    fn is_default(&self) -> bool {
        let facts = self.0.lock();
        facts.ordered_us == 0
            && facts.weighed_us == 0
            && facts.health != Health::Failed
            && facts.ejection == Ejection::None
    }
}

impl Facts {
    /// Returns the time from which on a request may test the server, if it is ejected.
    fn trial_from_us(&self) -> Option<u64> {
        match self.ejection {
            Ejection::None => None,
            Ejection::Ejected => Some(self.ejected_until_us),
            Ejection::OnTrial => Some(self.trial_began_us.saturating_add(TRIAL_US)),
        }
    }

    fn eject(&mut self, first: Duration, now_us: u64) -> Duration {
        let in_use_us = now_us.saturating_sub(self.ejected_until_us);
        if self.ejection == Ejection::None && in_use_us >= self.ejected_for_us {
            self.ejections = 0;
        }
        let doubled = first.saturating_mul(1 << self.ejections.min(16));
        let time = doubled.min(EJECTED_MAX.max(first));
        self.ejections = self.ejections.saturating_add(1);
        self.ejection = Ejection::Ejected;
        self.ejected_for_us = time.as_micros() as u64;
        self.ejected_until_us = now_us.saturating_add(self.ejected_for_us);
        time
    }
}

impl Seen {
    /// Returns the share of its weight that the server gets at `now_us`, in percent.
    pub(super) fn start_percent(&self, slow_start: Duration, now_us: u64) -> u32 {
        let whole_us = slow_start.as_micros() as u64;
        let past_us = now_us.saturating_sub(self.starting_since_us);
        if self.starting_since_us == 0 || past_us >= whole_us {
            return 100;
        }
        let percent = u128::from(past_us) * 100 / u128::from(whole_us);
        (percent as u64).clamp(STARTING_PERCENT, 100) as u32
    }
}

/// The conditions of an upstream's servers by address. They outlive the servers' other state, so
/// that a reload does not change them.
#[derive(Debug, Default)]
pub(super) struct Conditions(Mutex<HashMap<String, Arc<Condition>>>);

impl Conditions {
    /// Returns the condition of an address that belongs to the server with this configured name.
    /// Orders about the server hold for addresses that are added later, too.
    pub(super) fn of_address(&self, address: &str, server: &str) -> Arc<Condition> {
        let condition = self.of(address);
        let of_server = self.0.lock().get(server).cloned();
        if let Some(of_server) = of_server {
            condition.follow(&of_server);
        }
        condition
    }

    /// Returns the condition of the server with this address.
    pub(super) fn of(&self, address: &str) -> Arc<Condition> {
        let mut conditions = self.0.lock();
        if conditions.len() >= KEPT_MAX {
            conditions.retain(|_, kept| Arc::strong_count(kept) > 1 || !kept.is_default());
        }
        if conditions.len() >= KEPT_MAX {
            // More servers are down than an upstream has servers: the first in the map is forgotten.
            let unused = conditions
                .iter()
                .find(|(_, kept)| Arc::strong_count(kept) == 1);
            if let Some(unused) = unused.map(|(address, _)| address.clone()) {
                conditions.remove(&unused);
            }
        }
        conditions.entry(address.to_owned()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_secs(10);
    const SECOND: u64 = 1_000_000;

    #[test]
    fn ejections_grow_up_to_five_minutes_and_begin_anew_after_a_good_time() {
        let condition = Condition::default();
        let mut now_us = SECOND;
        let mut times = vec![
            condition
                .eject(FIRST, now_us)
                .expect("it was in use")
                .as_secs(),
        ];
        for _ in 0..6 {
            let last = times.last().copied().unwrap_or_default();
            assert!(!condition.begin_trial(now_us + last * SECOND - 1));
            now_us += last * SECOND;
            assert!(condition.begin_trial(now_us));
            assert!(
                !condition.begin_trial(now_us),
                "one request alone tests the server"
            );
            match condition.end_trial(Some(true), FIRST, now_us) {
                Some(Tested::Ejected(time)) => times.push(time.as_secs()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(times, [10, 20, 40, 80, 160, 300, 300]);
        now_us += 300 * SECOND;
        assert!(condition.begin_trial(now_us));
        assert_eq!(
            condition.end_trial(Some(false), FIRST, now_us),
            Some(Tested::Back)
        );
        // The server fails again soon, so the time goes on growing.
        let soon = condition
            .eject(FIRST, now_us + SECOND)
            .expect("it was in use");
        assert_eq!(soon.as_secs(), 300);
        now_us += 301 * SECOND;
        assert!(condition.begin_trial(now_us));
        assert_eq!(
            condition.end_trial(Some(false), FIRST, now_us),
            Some(Tested::Back)
        );
        let later = condition
            .eject(FIRST, now_us + 300 * SECOND)
            .expect("it was in use");
        assert_eq!(later.as_secs(), 10);
    }

    #[test]
    fn a_trial_without_a_result_may_be_repeated_at_once() {
        let condition = Condition::default();
        condition.eject(FIRST, 0);
        assert!(condition.begin_trial(10 * SECOND));
        assert_eq!(condition.end_trial(None, FIRST, 11 * SECOND), None);
        assert!(condition.seen().is_avoided);
        assert!(condition.begin_trial(11 * SECOND));
    }

    #[test]
    fn a_trial_that_lasts_long_does_not_keep_other_requests_from_testing_the_server() {
        let condition = Condition::default();
        condition.eject(FIRST, 0);
        assert!(condition.begin_trial(10 * SECOND));
        assert_eq!(condition.seen().trial_from_us, Some(20 * SECOND));
        assert!(!condition.begin_trial(20 * SECOND - 1));
        assert!(condition.begin_trial(20 * SECOND));
        assert!(!condition.begin_trial(20 * SECOND));
        let tested = condition.end_trial(Some(false), FIRST, 21 * SECOND);
        assert_eq!(tested, Some(Tested::Back));
        // The first trial's result comes too late.
        assert_eq!(condition.end_trial(Some(true), FIRST, 22 * SECOND), None);
    }

    #[test]
    fn a_server_that_returns_starts_with_a_small_share() {
        let condition = Condition::default();
        let percent = |now_us| condition.seen().start_percent(FIRST, now_us);
        assert_eq!(percent(5), 100);
        condition.set_healthy(false, 0);
        assert!(condition.set_healthy(true, 100 * SECOND));
        assert_eq!(percent(100 * SECOND), 10);
        assert_eq!(percent(105 * SECOND), 50);
        assert_eq!(percent(110 * SECOND), 100);
    }

    #[test]
    fn an_order_up_ends_an_ejection() {
        let condition = Condition::default();
        condition.eject(FIRST, 0);
        assert_eq!(condition.standing(), Standing::Ejected);
        condition.set_order(Order::Down, 1);
        assert_eq!(condition.standing(), Standing::Down);
        condition.set_order(Order::Up, 2);
        assert_eq!(condition.standing(), Standing::Up);
    }

    #[test]
    fn conditions_are_kept_by_address_and_bounded() {
        let conditions = Conditions::default();
        let one = conditions.of("a:1");
        one.set_order(Order::Down, 1);
        drop(one);
        for n in 0..3 * KEPT_MAX {
            conditions.of(&format!("b:{n}"));
        }
        assert_eq!(conditions.of("a:1").standing(), Standing::Down);
        for n in 0..3 * KEPT_MAX {
            conditions.of(&format!("c:{n}")).set_order(Order::Down, 1);
        }
        assert!(conditions.0.lock().len() <= KEPT_MAX);
    }
}
