//! The condition of one server: the operator's orders, health and ejection, shared by all workers.
//!
//! A condition changes rarely and is read only when it has changed, so a lock is enough. It is kept
//! when a reload changes the upstream.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::balance::{Failure, Outcome, is_failure};
use crate::telemetry::EffectiveState;

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

/// The condition of one server.
#[derive(Debug, Default)]
pub struct Condition(Mutex<Facts>);

#[derive(Debug, Default)]
struct Facts {
    /// The operator's order. `None`: the configuration decides.
    order: Option<Order>,
    /// Weight that replaces the configured one.
    weight: Option<u32>,
    /// Times of the operator's last order and weight for this server. 0: there was none. Orders for
    /// its name may be in force instead.
    ordered_us: u64,
    weighed_us: u64,
    health: Health,
    /// Why the last health check failed, while health checks fail.
    unhealthy_cause: String,
    ejection: Ejection,
    /// Why the server was last ejected.
    ejection_cause: String,
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
pub(super) struct Summary {
    /// The operator's order, or the state in the configuration.
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
    /// Returns the facts that concern the choice of a server. `configured` is its state in the
    /// configuration.
    pub(super) fn summary(&self, configured: Order) -> Summary {
        let facts = self.0.lock();
        Summary {
            order: facts.order.unwrap_or(configured),
            weight: facts.weight,
            is_avoided: facts.health != Health::Good || facts.ejection != Ejection::None,
            trial_from_us: facts.trial_from_us(),
            starting_since_us: facts.starting_since_us,
        }
    }

    /// Returns the state as operators see it, apart from the attempts to connect to the server.
    /// `configured` is the state in the configuration.
    pub(super) fn effective_state(&self, configured: Order) -> EffectiveState {
        let facts = self.0.lock();
        match facts.order.unwrap_or(configured) {
            Order::Down => EffectiveState::Down,
            Order::Drain => EffectiveState::Drain,
            Order::Up if facts.health == Health::Failed => EffectiveState::Unhealthy,
            Order::Up if facts.health == Health::Unknown => EffectiveState::Checking,
            Order::Up if facts.ejection != Ejection::None => EffectiveState::Ejected,
            Order::Up => EffectiveState::Up,
        }
    }

    /// Returns why health checks of the server fail.
    pub(super) fn unhealthy_cause(&self) -> String {
        self.0.lock().unhealthy_cause.clone()
    }

    /// Returns why the server is ejected, and the time until a request may test it, in microseconds: 0
    /// while one does.
    pub(super) fn ejection_cause(&self, now_us: u64) -> (String, u64) {
        let facts = self.0.lock();
        let left_us = facts.ejected_until_us.saturating_sub(now_us);
        (facts.ejection_cause.clone(), left_us)
    }

    /// Whether an operator has given an order about the server.
    pub(super) fn has_order(&self) -> bool {
        self.0.lock().order.is_some()
    }

    /// Replaces the configured weight.
    pub(super) fn set_weight(&self, weight: u32, now_us: u64) {
        let mut facts = self.0.lock();
        (facts.weight, facts.weighed_us) = (Some(weight), now_us);
    }

    /// Carries out an operator's order about a server that is in the state `configured` without an
    /// order. A server that comes up starts without ejection.
    pub(super) fn set_order(&self, order: Order, configured: Order, now_us: u64) {
        let mut facts = self.0.lock();
        let before = facts.order.unwrap_or(configured);
        if order == Order::Up {
            facts.ejection = Ejection::None;
            facts.ejections = 0;
            if before == Order::Down {
                facts.starting_since_us = now_us;
            }
        }
        (facts.order, facts.ordered_us) = (Some(order), now_us);
    }

    /// Notes the result of health checks, or why they fail. Returns whether the result has changed.
    pub(super) fn set_healthy(&self, result: Result<(), String>, now_us: u64) -> bool {
        let mut facts = self.0.lock();
        let health = match result {
            Ok(()) => Health::Good,
            Err(cause) => {
                facts.unhealthy_cause = cause;
                Health::Failed
            }
        };
        if facts.health == health {
            return false;
        }
        facts.health = health;
        if health == Health::Good {
            facts.starting_since_us = now_us;
        }
        true
    }

    /// Forgets the result of health checks, and the ejection.
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
    /// `configured` is its state in the configuration.
    pub(super) fn is_usable(&self, configured: Order) -> bool {
        let summary = self.summary(configured);
        summary.order == Order::Up && !summary.is_avoided
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
        let other = other.0.lock();
        let (order, ordered_us) = (other.order, other.ordered_us);
        let (weight, weighed_us) = (other.weight, other.weighed_us);
        drop(other);
        let mut facts = self.0.lock();
        if ordered_us > facts.ordered_us {
            facts.order = order;
        }
        if weighed_us > facts.weighed_us {
            facts.weight = weight;
        }
    }

    /// Whether the server is ejected, or on trial.
    pub(super) fn is_ejected(&self) -> bool {
        self.0.lock().ejection != Ejection::None
    }

    /// Ejects a server in use for this cause, for `first`, or twice as long as the last time. Returns the
    /// time, or `None` if the server is ejected already.
    pub(super) fn eject(&self, first: Duration, cause: String, now_us: u64) -> Option<Duration> {
        let mut facts = self.0.lock();
        (facts.ejection == Ejection::None).then(|| facts.eject(first, cause, now_us))
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

    /// Ends a trial: the request failed, succeeded, or said nothing about the server, so that another
    /// request may test it at once.
    pub(super) fn end_trial(
        &self,
        outcome: Outcome,
        first: Duration,
        now_us: u64,
    ) -> Option<Tested> {
        let mut facts = self.0.lock();
        if facts.ejection != Ejection::OnTrial {
            return None;
        }
        match is_failure(outcome) {
            None => {
                facts.ejection = Ejection::Ejected;
                None
            }
            Some(true) => {
                let cause = format!("the trial failed: {}", Failure(outcome));
                Some(Tested::Ejected(facts.eject(first, cause, now_us)))
            }
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
    /// Returns the time from which on a request may test the server, if it is ejected. As long as health
    /// checks fail, or the first one has not ended, the server gets no requests, so none tests it.
    fn trial_from_us(&self) -> Option<u64> {
        match self.ejection {
            _ if self.health != Health::Good => None,
            Ejection::None => None,
            Ejection::Ejected => Some(self.ejected_until_us),
            Ejection::OnTrial => Some(self.trial_began_us.saturating_add(TRIAL_US)),
        }
    }

    fn eject(&mut self, first: Duration, cause: String, now_us: u64) -> Duration {
        self.ejection_cause = cause;
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

impl Summary {
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

    /// Forgets the results of health checks, and ejections, of all servers.
    pub(super) fn forget(&self, health: bool, ejections: bool) {
        for condition in self.0.lock().values() {
            condition.forget(health, ejections);
        }
    }

    /// Returns the condition of the server with this address.
    pub(super) fn of(&self, address: &str) -> Arc<Condition> {
        let mut conditions = self.0.lock();
        if conditions.len() >= KEPT_MAX {
            conditions.retain(|_, kept| Arc::strong_count(kept) > 1 || !kept.is_default());
        }
        if conditions.len() >= KEPT_MAX {
            // More servers have orders than an upstream has servers: the first in the map is forgotten.
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
    /// The outcome of a trial that succeeds.
    const GOOD: Outcome = Outcome::Answered {
        status: 200,
        head_us: 1,
        total_us: None,
    };

    #[test]
    fn ejections_grow_up_to_five_minutes_and_begin_anew_after_a_good_time() {
        let condition = Condition::default();
        let mut now_us = SECOND;
        let mut times = vec![
            condition
                .eject(FIRST, String::new(), now_us)
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
            match condition.end_trial(Outcome::TimedOut, FIRST, now_us) {
                Some(Tested::Ejected(time)) => times.push(time.as_secs()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(times, [10, 20, 40, 80, 160, 300, 300]);
        now_us += 300 * SECOND;
        assert!(condition.begin_trial(now_us));
        assert_eq!(condition.end_trial(GOOD, FIRST, now_us), Some(Tested::Back));
        // The server fails again soon, so the time goes on growing.
        let soon = condition
            .eject(FIRST, String::new(), now_us + SECOND)
            .expect("it was in use");
        assert_eq!(soon.as_secs(), 300);
        now_us += 301 * SECOND;
        assert!(condition.begin_trial(now_us));
        assert_eq!(condition.end_trial(GOOD, FIRST, now_us), Some(Tested::Back));
        let later = condition
            .eject(FIRST, String::new(), now_us + 300 * SECOND)
            .expect("it was in use");
        assert_eq!(later.as_secs(), 10);
    }

    #[test]
    fn a_trial_without_a_result_may_be_repeated_at_once() {
        let condition = Condition::default();
        condition.eject(FIRST, String::new(), 0);
        assert!(condition.begin_trial(10 * SECOND));
        assert_eq!(
            condition.end_trial(Outcome::Cancelled, FIRST, 11 * SECOND),
            None
        );
        assert!(condition.summary(Order::Up).is_avoided);
        assert!(condition.begin_trial(11 * SECOND));
    }

    #[test]
    fn no_request_tests_a_server_whose_health_checks_fail() {
        let condition = Condition::default();
        condition.eject(FIRST, String::new(), 0);
        condition.set_healthy(Err("status 500".to_owned()), SECOND);
        assert_eq!(condition.summary(Order::Up).trial_from_us, None);
        assert!(!condition.begin_trial(10 * SECOND));
        condition.set_healthy(Ok(()), 11 * SECOND);
        assert!(condition.begin_trial(11 * SECOND));
    }

    #[test]
    fn a_trial_that_lasts_long_does_not_keep_other_requests_from_testing_the_server() {
        let condition = Condition::default();
        condition.eject(FIRST, String::new(), 0);
        assert!(condition.begin_trial(10 * SECOND));
        assert_eq!(
            condition.summary(Order::Up).trial_from_us,
            Some(20 * SECOND)
        );
        assert!(!condition.begin_trial(20 * SECOND - 1));
        assert!(condition.begin_trial(20 * SECOND));
        assert!(!condition.begin_trial(20 * SECOND));
        let tested = condition.end_trial(GOOD, FIRST, 21 * SECOND);
        assert_eq!(tested, Some(Tested::Back));
        // The first trial's result comes too late.
        assert_eq!(
            condition.end_trial(Outcome::TimedOut, FIRST, 22 * SECOND),
            None
        );
    }

    #[test]
    fn a_server_that_returns_starts_with_a_small_share() {
        let condition = Condition::default();
        let percent = |now_us| condition.summary(Order::Up).start_percent(FIRST, now_us);
        assert_eq!(percent(5), 100);
        condition.set_healthy(Err("status 500".to_owned()), 0);
        assert!(condition.set_healthy(Ok(()), 100 * SECOND));
        assert_eq!(percent(100 * SECOND), 10);
        assert_eq!(percent(105 * SECOND), 50);
        assert_eq!(percent(110 * SECOND), 100);
    }

    #[test]
    fn an_order_up_ends_an_ejection() {
        let condition = Condition::default();
        condition.eject(FIRST, String::new(), 0);
        assert_eq!(
            condition.effective_state(Order::Up),
            EffectiveState::Ejected
        );
        condition.set_order(Order::Down, Order::Up, 1);
        assert_eq!(condition.effective_state(Order::Up), EffectiveState::Down);
        condition.set_order(Order::Up, Order::Up, 2);
        assert_eq!(condition.effective_state(Order::Up), EffectiveState::Up);
    }

    #[test]
    fn conditions_are_kept_by_address_and_bounded() {
        let conditions = Conditions::default();
        let one = conditions.of("a:1");
        one.set_order(Order::Down, Order::Up, 1);
        drop(one);
        for n in 0..3 * KEPT_MAX {
            conditions.of(&format!("b:{n}"));
        }
        assert_eq!(
            conditions.of("a:1").effective_state(Order::Up),
            EffectiveState::Down
        );
        for n in 0..3 * KEPT_MAX {
            conditions
                .of(&format!("c:{n}"))
                .set_order(Order::Down, Order::Up, 1);
        }
        assert!(conditions.0.lock().len() <= KEPT_MAX);
    }
}
