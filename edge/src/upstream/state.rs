//! State of an upstream's servers that all workers share. Each worker writes it without contention,
//! and any thread may read it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::changes::Changes;
use super::condition::{Conditions, Order};
use super::connect_attempts::ConnectAttempts;
use super::failure_log::FailureLog;
use super::names::{IsFirst, Names};
use super::options::{Options, Server};
use super::other_family::{Other, OtherFamily};
use super::server_name::is_named;
use super::server_protocol::ServerProtocol;
pub(super) use super::server_state::{ServerState, WorkerCounters};
use super::server_tally::{ServerTally, Tallies};
use super::upstream_tls::UpstreamTls;
use crate::http::Scheme;
use crate::reason::Reason;
use crate::resolve::{self, Answer, Event, Failure, Target};
use crate::sys::Clock;
use crate::telemetry::{
    EffectiveState, ExchangeRecord, ExchangeRing, Measures, Numbers, ServerMeasures, ServerNumbers,
};
use crate::tls;

/// Most slots of an upstream.
const SLOTS_MAX: usize = 256;
/// Number of slots from which unused ones are used for other addresses.
const SLOTS_KEPT: usize = 64;

/// The servers of one upstream, with the state that all workers share.
pub struct UpstreamState {
    /// The slots. The index of a slot is the number by which pools and balancers know it, and never
    /// changes.
    slots: Mutex<Vec<Arc<ServerState>>>,
    names: Names,
    servers: Configured,
    /// Requests that reached no server.
    unreached: FailureLog,
    past: Mutex<Past>,
    /// The last exchanges of each worker, as long as the worker uses this upstream.
    exchanges: Mutex<Vec<Weak<ExchangeRing>>>,
}

/// A server whose name has no address yet.
pub struct Unresolved {
    /// The configured server.
    pub server: Server,
    /// `Resolving` before the first answer about the name, then `Unresolved`.
    pub state: EffectiveState,
    /// Why the name has no address.
    pub why: Option<String>,
}

/// Totals of the addresses that lost their slots to others, or that a reload removed.
#[derive(Clone, Default)]
struct Past {
    numbers: ServerNumbers,
    measures: ServerMeasures,
}

/// The configured servers, and everything that their slots share.
struct Configured {
    /// Name of the upstream, for messages.
    upstream: String,
    options: Options,
    /// The conditions of the servers, shared with the states that a reload makes of this one.
    conditions: Arc<Conditions>,
    /// Name for which each server's certificate has to be valid, if `tls` has no other one.
    tls_names: Vec<String>,
    tls: Option<Arc<UpstreamTls>>,
    /// Shared with the same states as the conditions.
    changes: Arc<Changes>,
    /// Shared with the same states as the conditions.
    tallies: Arc<Tallies>,
}

impl UpstreamState {
    /// Creates the state of the upstream of this name, before any worker uses it.
    ///
    /// # Errors
    ///
    /// A file that its TLS needs can't be used.
    #[cfg(test)]
    pub fn new(name: &str, options: &Options) -> Result<Arc<UpstreamState>, tls::OpenError> {
        UpstreamState::after(name, options, None)
    }

    /// Creates the state of the upstream of this name, before any worker uses it. The conditions of
    /// servers are those of `before`, the state of the same upstream before a reload, and so are the
    /// addresses of names until there is another answer.
    ///
    /// # Errors
    ///
    /// A file that its TLS needs can't be used.
    pub fn after(
        name: &str,
        options: &Options,
        before: Option<&UpstreamState>,
    ) -> Result<Arc<UpstreamState>, tls::OpenError> {
        let tls_names = options.servers.iter().map(|one| options.tls_name(one));
        let conditions = before.map(|before| before.servers.conditions.clone());
        // Exchanges that began before the reload still change the conditions.
        let changes = before.map(|before| before.servers.changes.clone());
        let tallies = before.map(|before| before.servers.tallies.clone());
        let servers = Configured {
            upstream: name.to_owned(),
            tls_names: tls_names.map(str::to_owned).collect(),
            tls: UpstreamTls::open(options)?,
            changes: changes.unwrap_or_default(),
            tallies: tallies.unwrap_or_default(),
            conditions: conditions.unwrap_or_default(),
            options: options.clone(),
        };
        let indices = 0..options.servers.len();
        let fixed = indices.filter(|&index| !options.servers[index].is_looked_up());
        let state = UpstreamState {
            slots: Mutex::new(fixed.map(|index| servers.slot(index, None, None)).collect()),
            names: Names::new(name, options, before.map(|before| &before.names)),
            servers,
            unreached: FailureLog::default(),
            past: Mutex::default(),
            exchanges: Mutex::default(),
        };
        for (server, targets) in state.names.targets() {
            state.set_targets(server, &targets, None);
        }
        if let Some(before) = before {
            state.go_on_from(before);
        }
        Ok(Arc::new(state))
    }

    /// Takes over the totals of the addresses that this state does not have any more, so that the upstream's numbers never
    /// fall.
    fn go_on_from(&self, before: &UpstreamState) {
        let slots = self.slots.lock();
        let has =
            |tally: &Arc<ServerTally>| slots.iter().any(|slot| Arc::ptr_eq(&slot.tally, tally));
        let mut past = before.past.lock().clone();
        // Slots without an address have totals, too.
        let all = before.slots.lock().clone();
        let removed = all.iter().filter(|slot| !has(&slot.tally));
        removed.for_each(|slot| past.add(slot));
        *self.past.lock() = past;
    }

    /// Forgets the results of health checks, and the ejections, that this state's options no longer have.
    /// Called when the state comes into use after a reload: a reload that fails must not change the
    /// conditions, which the states share.
    pub fn take_effect(&self) {
        let options = &self.servers.options;
        let (health, ejections) = (options.health.is_none(), options.eject.is_none());
        if health || ejections {
            self.servers.conditions.forget(health, ejections);
            self.servers.changes.note();
        }
    }

    /// Returns the name of the upstream.
    pub(super) fn name(&self) -> &str {
        &self.servers.upstream
    }

    /// Forgets the results of health checks, of which there will be no more.
    pub(super) fn forget_health(&self) {
        for server in self.servers() {
            server.condition().forget(true, false);
            server.note_change();
        }
    }

    /// Reads the files of TLS again, for connections that are opened from now on.
    ///
    /// # Errors
    ///
    /// A file can't be used. Nothing has changed then.
    pub fn renew_tls(&self, options: &Options) -> Result<(), tls::OpenError> {
        match &self.servers.tls {
            Some(tls) => tls.renew(options),
            None => Ok(()),
        }
    }

    /// Returns the servers, by slot. Addresses that a server no longer has are included as long as
    /// they have connections.
    pub fn servers(&self) -> Vec<Arc<ServerState>> {
        let mut servers = self.slots.lock().clone();
        servers.retain(|slot| !slot.is_free());
        servers
    }

    /// Returns the servers whose names have no address yet, so that there are no slots for them.
    pub fn unresolved(&self) -> Vec<Unresolved> {
        let without = self.names.without_address().into_iter();
        let unresolved = without.map(|(index, failure)| Unresolved {
            server: self.servers.options.servers[index].clone(),
            state: match failure {
                Some(_) => EffectiveState::Unresolved,
                None => EffectiveState::Resolving,
            },
            why: failure,
        });
        unresolved.collect()
    }

    /// Returns the numbers of the upstream, with those of addresses that its servers no longer have.
    pub fn total(&self) -> (ServerNumbers, ServerMeasures) {
        let slots = self.slots.lock();
        let past = self.past.lock();
        let mut total = Past {
            numbers: past.numbers,
            measures: past.measures.clone(),
        };
        drop(past);
        slots.iter().for_each(|slot| total.add(slot));
        (total.numbers, total.measures)
    }

    /// Creates the ring for the exchanges of one more worker.
    pub(super) fn exchange_ring(&self) -> Arc<ExchangeRing> {
        let ring = Arc::<ExchangeRing>::default();
        let mut rings = self.exchanges.lock();
        rings.retain(|ring| ring.strong_count() > 0);
        rings.push(Arc::downgrade(&ring));
        ring
    }

    /// Returns the last exchanges of all workers. Those of one worker are in the order in which they began.
    pub fn exchanges(&self) -> Vec<ExchangeRecord> {
        let rings = self.exchanges.lock().clone();
        let rings = rings.iter().filter_map(Weak::upgrade);
        rings.flat_map(|ring| ring.read()).collect()
    }

    /// Begins to look up the names of servers, if that has not begun.
    pub(super) fn look_up_names(self: &Arc<UpstreamState>, clock: &Clock) {
        if !self.names.begins() {
            return;
        }
        for (index, (_, name)) in self.names.all.iter().enumerate() {
            let (state, clock) = (Arc::downgrade(self), clock.clone());
            let last = self.names.hosts(index);
            resolve::watch(&self.names.resolver, name.clone(), last, move |event| {
                let state = state.upgrade();
                match (&state, event) {
                    (Some(state), Event::Answered(answer)) => {
                        state.answered(index, answer, clock.monotonic_us());
                    }
                    (Some(state), Event::Waiting(servers)) => {
                        state.names.report_late(index, &servers)
                    }
                    (None, _) => {}
                }
                state.is_some()
            });
        }
    }

    /// Logs that a request failed because no name of a server is resolved, unless the last message
    /// is recent. `url` makes the text of the request's URL.
    pub(super) fn report_unresolved(&self, now_us: u64, url: impl FnOnce() -> String) {
        let Some((_, name)) = self.names.all.first() else {
            return;
        };
        let cause = Reason::Unresolved;
        if let Some(failures) = self.unreached.count(cause, now_us) {
            let (upstream, url) = (&self.servers.upstream, url());
            tracing::warn!(
                %upstream, server = %name, %url, cause = cause.text(), failures,
                "requests to a server fail"
            );
        }
    }

    /// Logs that this machine could open no connection, unless the last message is recent.
    pub(super) fn report_local(&self, cause: Reason, now_us: u64) {
        if let Some(failures) = self.unreached.count(cause, now_us) {
            let upstream = &self.servers.upstream;
            tracing::warn!(
                target: "sluice::event::server::no-local-connection",
                %upstream, cause = cause.text(), failures,
                "this machine can't open connections to servers"
            );
        }
    }

    /// Waits until the address of a server is known. Returns false if none can be found out.
    pub(super) async fn resolved(&self) -> bool {
        self.names.resolved().await
    }

    /// Takes over an answer about the name with this index.
    fn answered(&self, index: usize, answer: Result<Answer, Failure>, now_us: u64) {
        let server = self.names.all.get(index).map(|(server, _)| *server);
        if let (Some(server), Ok(answer)) = (server, &answer)
            && let Some(IsFirst(is_first)) = self.names.changes(index, answer)
        {
            self.set_targets(server, &answer.targets, (!is_first).then_some(now_us));
        }
        self.names.note(index, answer);
        self.names.wake();
    }

    /// Sets the addresses of a server. Addresses that the server had before keep their slots.
    /// `added_us`: the time, if new addresses are ones that were added while the program runs. The
    /// addresses of the first answer are not: they begin as configured addresses do.
    pub(super) fn set_targets(&self, server: usize, targets: &[Target], added_us: Option<u64>) {
        let mut slots = self.slots.lock();
        for slot in slots.iter().filter(|slot| slot.index == server) {
            let target = targets.iter().find(|one| Some(one.address) == slot.peer);
            slot.set_target(target, added_us);
        }
        for target in targets {
            let is_same =
                |slot: &Arc<ServerState>| slot.index == server && slot.peer == Some(target.address);
            if slots.iter().any(is_same) {
                continue;
            }
            let slot = self.servers.slot(server, Some(target), added_us);
            let length = slots.len();
            match slots.iter_mut().find(|slot| slot.is_free()) {
                Some(free) if length >= SLOTS_KEPT => {
                    let former = std::mem::replace(free, slot);
                    self.past.lock().add(&former);
                }
                _ if length < SLOTS_MAX => slots.push(slot),
                _ => {
                    let upstream = &self.servers.upstream;
                    tracing::warn!(%upstream, address = %target.address, "an address is not used: the upstream has too many");
                }
            }
        }
        pair_families(slots.iter().filter(|slot| slot.index == server));
        drop(slots);
        self.servers.changes.note();
    }

    /// Carries out an operator's order: gives the servers with this address, or with this address in
    /// the configuration, another state or weight. Returns whether there are such servers.
    pub fn order(
        &self,
        address: &str,
        set: Option<Order>,
        weight: Option<u32>,
        now_us: u64,
    ) -> bool {
        // First, so that an address that the name gets meanwhile follows the order, too.
        let mut is_known = self.servers.order_name(address, set, weight, now_us);
        let slots = self.slots().clone();
        let is_meant =
            |slot: &&Arc<ServerState>| is_named(address, &slot.address, &slot.server.address());
        for slot in slots.iter().filter(is_meant) {
            slot.order(set, weight, now_us);
            is_known = true;
        }
        is_known
    }

    /// Locks the slots.
    pub(super) fn slots(&self) -> MutexGuard<'_, Vec<Arc<ServerState>>> {
        self.slots.lock()
    }

    /// Returns the changes of the slots.
    pub(super) fn changes(&self) -> &Changes {
        &self.servers.changes
    }

    /// Returns all slots, each with its weight (`ServerState::effective_weight`). Those with a
    /// weight above 0 are pinned: the caller must call `ServerState::unpin` for each of them.
    pub(super) fn pin_slots(&self) -> Vec<(Arc<ServerState>, u32)> {
        let slots = self.slots.lock();
        let weighted = slots.iter().map(|slot| {
            let weight = slot.effective_weight();
            if weight > 0 {
                slot.pins.fetch_add(1, Ordering::Relaxed);
            }
            (slot.clone(), weight)
        });
        weighted.collect()
    }
}

/// Chooses an address of the other family for each slot of one server, among those of the same priority.
fn pair_families<'a>(slots: impl Iterator<Item = &'a Arc<ServerState>> + Clone) {
    for (nth, slot) in slots.clone().enumerate() {
        let is_alike =
            |other: &&Arc<ServerState>| other.is_present() && other.is_backup() == slot.is_backup();
        let others = slots.clone().filter(is_alike).filter_map(|other| {
            Some(Other {
                address: other.peer?,
                condition: other.condition.clone(),
                configured: other.server.configured(),
            })
        });
        if let Some(peer) = slot.peer {
            slot.other.choose(peer, nth, &others.collect::<Vec<_>>());
        }
    }
}

impl Past {
    fn add(&mut self, server: &ServerState) {
        self.numbers.add(&server.numbers());
        self.measures.add(&server.measures());
    }
}

impl Configured {
    /// Notes an order about the servers with this name, for addresses that they have later. Returns
    /// whether there are such servers.
    fn order_name(&self, name: &str, set: Option<Order>, weight: Option<u32>, now_us: u64) -> bool {
        let servers = self.options.servers.iter();
        let meant = servers.filter(|server| {
            let address = server.address();
            server.is_looked_up() && is_named(name, &address, &address)
        });
        let mut is_known = false;
        for server in meant {
            let condition = self.conditions.of(&server.address());
            if let Some(weight) = weight {
                condition.set_weight(weight, now_us);
            }
            if let Some(order) = set {
                condition.set_order(order, server.configured(), now_us);
            }
            is_known = true;
        }
        is_known
    }

    /// Creates the slot of a server with a looked-up address, or without one. `added_us`: as for
    /// `UpstreamState::set_targets`.
    fn slot(
        &self,
        index: usize,
        target: Option<&Target>,
        added_us: Option<u64>,
    ) -> Arc<ServerState> {
        let server = self.options.servers[index].clone();
        let peer = target.map(|target| target.address);
        let address = peer.map_or_else(|| server.address(), |peer| peer.to_string());
        let tally = self.tallies.of(server.address(), address.clone());
        let condition = self.conditions.of_address(&address, &server.address());
        let slot = ServerState {
            condition,
            keeps_clients: self.options.sticky.is_some(),
            upstream: self.upstream.clone(),
            index,
            peer,
            other: OtherFamily::default(),
            address,
            tls_name: self.tls_names[index].clone(),
            tls: self.tls.clone().filter(|_| server.scheme == Scheme::Https),
            last_error: Mutex::default(),
            is_checked: self.options.health.is_some(),
            is_present: AtomicBool::new(target.is_none()),
            weight: AtomicU32::new(server.weight),
            backup: AtomicBool::new(server.backup),
            server,
            is_unreachable: AtomicBool::new(false),
            connect_attempts: ConnectAttempts::default(),
            protocol: ServerProtocol::default(),
            failures: FailureLog::default(),
            tally,
            pins: AtomicUsize::new(0),
            changes: self.changes.clone(),
        };
        if target.is_some() {
            slot.set_target(target, added_us);
        }
        Arc::new(slot)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::super::health_options::Health;
    use super::*;
    use crate::sys::Address;
    use crate::sys::clock::timer_now;
    use crate::telemetry::EffectiveState;

    /// Returns an upstream whose only server is a name, and that is never looked up.
    fn named() -> Arc<UpstreamState> {
        named_with(|_| {})
    }

    fn named_with(change: impl FnOnce(&mut Options)) -> Arc<UpstreamState> {
        let server = Server {
            scheme: Scheme::Http,
            h2c: false,
            host: "origin.example".to_owned(),
            port: 80,
            srv: false,
            unix: None,
            max_connections: None,
            weight: 3,
            backup: false,
            down: false,
        };
        let mut options = Options::new(vec![server]);
        change(&mut options);
        UpstreamState::new("origin", &options).expect("no files are read")
    }

    fn answer(addresses: &[&str]) -> Result<Answer, Failure> {
        let target = |text: &&str| Target {
            address: text.parse().expect("an address"),
            weight: None,
            backup: false,
        };
        Ok(Answer {
            targets: addresses.iter().map(target).collect(),
            hosts: resolve::Hosts::default(),
            kept: None,
        })
    }

    fn weights(state: &UpstreamState) -> Vec<(String, u32)> {
        let slots = state.slots.lock();
        let weight = |slot: &Arc<ServerState>| (slot.address.clone(), slot.effective_weight());
        slots.iter().map(weight).collect()
    }

    #[test]
    fn addresses_keep_their_slots_when_others_come_and_go() {
        let state = named();
        assert!(weights(&state).is_empty());
        let unresolved = || state.unresolved().first().map(|server| server.state);
        assert_eq!(unresolved(), Some(EffectiveState::Resolving));
        state.answered(0, Err("a failure".to_owned()), 1);
        assert_eq!(unresolved(), Some(EffectiveState::Unresolved));
        state.answered(0, answer(&["10.0.0.1:80", "10.0.0.2:80"]), 1);
        assert_eq!(unresolved(), None);
        let (first, second) = ("10.0.0.1:80".to_owned(), "10.0.0.2:80".to_owned());
        assert_eq!(weights(&state), [(first.clone(), 3), (second.clone(), 3)]);
        let version = state.changes().version();
        state.answered(0, answer(&["10.0.0.1:80", "10.0.0.2:80"]), 1);
        state.answered(0, Err("a failure".to_owned()), 1);
        assert_eq!(state.changes().version(), version);
        state.answered(0, answer(&["10.0.0.2:80", "10.0.0.3:80"]), 1);
        let third = ("10.0.0.3:80".to_owned(), 3);
        assert_eq!(weights(&state), [(first, 0), (second, 3), third]);
        assert!(state.changes().version() > version);
        assert_eq!(state.servers().len(), 2);
    }

    /// Returns the slot of an address.
    fn slot(state: &UpstreamState, address: &str) -> Arc<ServerState> {
        let slots = state.slots.lock();
        let slot = slots.iter().find(|slot| slot.address == address);
        slot.cloned().expect("a slot")
    }

    #[test]
    fn addresses_that_are_added_later_start_and_those_of_the_first_answer_do_not() {
        let (a, b) = ("10.0.0.1:80", "10.0.0.2:80");
        let state = named();
        let since = |address| slot(&state, address).summary().starting_since_us;
        state.answered(0, answer(&[a]), 5);
        state.answered(0, answer(&[a, b]), 6);
        assert_eq!((since(a), since(b)), (0, 6));
        state.answered(0, answer(&[b]), 7);
        state.answered(0, answer(&[a, b]), 8);
        assert_eq!((since(a), since(b)), (8, 6));
    }

    #[test]
    fn added_addresses_wait_for_a_health_check() {
        let (a, b) = ("10.0.0.1:80", "10.0.0.2:80");
        let state = named_with(|options| options.health = Some(Health::default()));
        let effective_state = |address| slot(&state, address).effective_state();
        state.answered(0, answer(&[a]), 1);
        state.answered(0, answer(&[a, b]), 2);
        assert_eq!(
            (effective_state(a), effective_state(b)),
            (EffectiveState::Up, EffectiveState::Checking)
        );
        let added = slot(&state, b);
        assert!(added.summary().is_avoided && added.condition.awaits_check());
        assert!(added.condition.set_healthy(Ok(()), 3));
        assert!(!added.summary().is_avoided && !added.condition.awaits_check());
        assert!(added.condition.set_healthy(Err("status 500".to_owned()), 4));
        state.answered(0, answer(&[a]), 5);
        state.answered(0, answer(&[a, b]), 6);
        assert_eq!(effective_state(b), EffectiveState::Unhealthy);
        assert!(!slot(&state, b).condition.awaits_check());
    }

    #[test]
    fn orders_hold_for_an_address_that_goes_and_comes_again() {
        let (a, b) = ("10.0.0.1:80", "10.0.0.2:80");
        let state = named();
        state.answered(0, answer(&[a, b]), 1);
        assert!(state.order(a, Some(Order::Down), Some(9), 2));
        // Meanwhile, the slot is used for another address.
        for round in 0..SLOTS_KEPT {
            state.answered(0, answer(&[&format!("10.0.1.{round}:80")]), 3);
        }
        assert!(!weights(&state).iter().any(|(address, _)| address == a));
        state.answered(0, answer(&[a, b]), 4);
        let (first, second) = (slot(&state, a), slot(&state, b));
        assert_eq!(
            (first.effective_state(), first.weight()),
            (EffectiveState::Down, 9)
        );
        assert_eq!(
            (second.effective_state(), second.weight()),
            (EffectiveState::Up, 3)
        );
    }

    #[test]
    fn orders_about_a_name_hold_for_addresses_that_are_added_later() {
        let (a, b) = ("10.0.0.1:80", "10.0.0.2:80");
        let state = named();
        let effective_state = |address| slot(&state, address).effective_state();
        assert!(!state.order("other.example:80", Some(Order::Down), None, 1));
        state.answered(0, answer(&[a]), 1);
        assert!(state.order("origin.example:80", Some(Order::Drain), None, 2));
        state.answered(0, answer(&[a, b]), 3);
        assert_eq!(
            (effective_state(a), effective_state(b)),
            (EffectiveState::Drain, EffectiveState::Drain)
        );
        assert!(state.order("origin.example:80", Some(Order::Up), None, 4));
        state.answered(0, answer(&[a, b, "10.0.0.3:80"]), 5);
        assert_eq!(
            (effective_state(b), effective_state("10.0.0.3:80")),
            (EffectiveState::Up, EffectiveState::Up)
        );
    }

    #[test]
    fn the_newer_of_the_orders_about_a_name_and_an_address_holds() {
        let (a, name) = ("10.0.0.1:80", "origin.example:80");
        let first = named();
        let order = |state: &UpstreamState, address, order, now_us| {
            assert!(state.order(address, Some(order), None, now_us));
        };
        first.answered(0, answer(&[a]), 1);
        order(&first, name, Order::Drain, 2);
        order(&first, a, Order::Up, 3);
        let options = first.servers.options.clone();
        let reloaded = || {
            let state = UpstreamState::after("origin", &options, Some(&first));
            state.expect("no files are read")
        };
        let next = reloaded();
        next.answered(0, answer(&[a]), 4);
        assert_eq!(slot(&next, a).effective_state(), EffectiveState::Up);
        // Both orders are given before the address is known.
        order(&next, a, Order::Down, 5);
        let last = reloaded();
        order(&last, name, Order::Up, 6);
        last.answered(0, answer(&[a]), 7);
        assert_eq!(slot(&last, a).effective_state(), EffectiveState::Up);
    }

    #[test]
    fn the_total_has_the_numbers_of_addresses_that_lost_their_slots() {
        let state = named();
        let rounds = 3 * SLOTS_KEPT as u64;
        for round in 0..rounds {
            let address = format!("10.0.{}.{}:80", round / 250, round % 250);
            state.answered(0, answer(&[&address]), 1);
            slot(&state, &address).worker().requests.add(1);
        }
        assert_eq!(weights(&state).len(), SLOTS_KEPT);
        assert_eq!(state.total().0.requests, rounds);
    }

    // A request that finds the name resolved must also find its servers. Without that order, the
    // loop below finds the gap in most runs.
    #[test]
    fn a_name_is_resolved_only_when_its_addresses_are_in_use() {
        for _ in 0..200 {
            let state = named();
            std::thread::scope(|scope| {
                scope.spawn(|| state.answered(0, answer(&["10.0.0.1:80"]), 1));
                while !state.names.is_resolved() {
                    std::hint::spin_loop();
                }
                assert_eq!(weights(&state).len(), 1);
            });
        }
    }

    #[test]
    fn addresses_stay_in_use_over_a_reload_that_keeps_the_name() {
        let before = named();
        let two = answer(&["10.0.0.1:80", "10.0.0.2:80"]);
        before.answered(0, two.clone(), 1);
        before.answered(0, Err("a failure".to_owned()), 2);
        let after = |change: fn(&mut Options)| {
            let mut options = before.servers.options.clone();
            change(&mut options);
            let state = UpstreamState::after("origin", &options, Some(&before));
            state.expect("no files are read")
        };
        let next = after(|options| options.keepalive = 7);
        assert!(next.names.is_resolved());
        assert_eq!(weights(&next), weights(&before));
        // An answer with the same addresses changes nothing, another one does.
        let version = next.changes().version();
        next.answered(0, two, 3);
        assert_eq!(next.changes().version(), version);
        next.answered(0, answer(&["10.0.0.2:80"]), 4);
        assert_eq!(weights(&next)[0].1, 0);
        let other = after(|options| options.servers[0].port = 81);
        assert!(!other.names.is_resolved() && weights(&other).is_empty());
    }

    // A reload builds the next state before it is known whether the reload succeeds.
    #[test]
    fn ejections_that_are_no_longer_configured_end_when_the_reload_takes_effect() {
        let (a, b) = ("10.0.0.1:80", "10.0.0.2:80");
        let before = named();
        before.answered(0, answer(&[a, b]), 1);
        for address in [a, b] {
            let second = Duration::from_secs(1);
            let condition = slot(&before, address).condition.clone();
            condition.eject(second, String::new(), 2);
        }
        // The condition of an address that is gone is kept, too.
        before.answered(0, answer(&[a]), 3);
        let options = Options {
            eject: None,
            ..before.servers.options.clone()
        };
        let next = UpstreamState::after("origin", &options, Some(&before));
        let next = next.expect("no files are read");
        assert!(slot(&before, a).condition.is_ejected());
        next.take_effect();
        next.answered(0, answer(&[a, b]), 4);
        for address in [a, b] {
            assert!(!slot(&next, address).condition.is_ejected());
        }
    }

    #[test]
    fn unused_slots_are_used_again_before_there_are_too_many() {
        let state = named();
        for round in 0..1000 {
            let address = format!("10.0.{}.{}:80", round / 250, round % 250);
            state.answered(0, answer(&[&address]), 1);
        }
        assert_eq!(weights(&state).len(), SLOTS_KEPT);
        // Slots that a worker has pinned are not used for other addresses.
        let state = named();
        for round in 0..1000 {
            let address = format!("10.0.{}.{}:80", round / 250, round % 250);
            state.answered(0, answer(&[&address]), 1);
            state.pin_slots();
        }
        assert_eq!(weights(&state).len(), SLOTS_MAX);
    }

    #[test]
    fn a_connection_may_also_be_opened_to_an_address_of_the_other_family() {
        let state = named();
        state.answered(0, answer(&["10.0.0.1:80", "10.0.0.2:80", "[::1]:80"]), 1);
        let now = timer_now();
        let others = |own: &str| {
            let own: SocketAddr = own.parse().expect("an address");
            let (first, other) = slot(&state, &own.to_string()).other.in_order(own, now);
            assert_eq!(first, own);
            other.map(|other| other.to_string())
        };
        assert_eq!(others("10.0.0.1:80").as_deref(), Some("[::1]:80"));
        assert_eq!(others("10.0.0.2:80").as_deref(), Some("[::1]:80"));
        assert!(others("[::1]:80").is_some_and(|other| other.starts_with("10.")));
        assert!(state.order("[::1]:80", Some(Order::Drain), None, 2));
        assert_eq!(others("10.0.0.1:80"), None);
        assert!(state.order("[::1]:80", Some(Order::Up), None, 3));
        assert!(others("10.0.0.1:80").is_some());
        state.answered(0, answer(&["10.0.0.1:80"]), 4);
        assert_eq!(others("10.0.0.1:80"), None);
    }

    #[test]
    fn connections_to_the_other_family_carry_no_requests_of_an_ejected_server() {
        let state = named();
        state.answered(0, answer(&["10.0.0.1:80", "[::1]:80"]), 1);
        let v4 = slot(&state, "10.0.0.1:80");
        let may_use = |address: &str| {
            let address = address.parse().expect("an address");
            v4.may_use(Some(Address::Ip(address)))
        };
        assert!(may_use("10.0.0.1:80") && may_use("[::1]:80"));
        let second = Duration::from_secs(1);
        v4.condition.eject(second, String::new(), 2);
        assert!(may_use("10.0.0.1:80") && !may_use("[::1]:80"));
        v4.condition.set_order(Order::Up, Order::Up, 3);
        assert!(may_use("[::1]:80"));
    }
}
