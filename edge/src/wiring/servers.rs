//! The servers of all upstreams for the admin API, and the operator's orders about them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::edge::Edge;
use crate::admin::{
    Refusal, ServerExchanges, ServerOrder, ServerSet, ServerState, ServerTotal, UpstreamState,
};
use crate::upstream::{self, Explanation, Order, unknown};

impl Edge {
    /// Returns the state of all upstreams' servers.
    pub(super) fn upstream_states(&self) -> BTreeMap<String, UpstreamState> {
        let snapshot = self.snapshots.borrow().clone();
        let upstreams = snapshot.upstreams.iter();
        let now_us = self.clock.monotonic_us();
        upstreams
            .map(|(name, state)| (name.clone(), upstream_state(state, now_us)))
            .collect()
    }

    /// Returns the last exchanges with the servers of an upstream.
    pub(super) fn server_exchanges(&self, name: &str) -> Result<ServerExchanges, Refusal> {
        let state = self.upstream(name)?;
        // First, so that the servers of all exchanges are known.
        let exchanges = state.exchanges();
        let servers = state.servers();
        let servers = servers.iter();
        Ok(ServerExchanges {
            now_us: self.clock.monotonic_us(),
            unix_ms: self.clock.unix_ms(),
            servers: servers
                .map(|server| (server.id(), server.address().to_owned()))
                .collect(),
            exchanges,
        })
    }

    /// Returns the state of an upstream of the configuration in use.
    fn upstream(&self, name: &str) -> Result<Arc<upstream::UpstreamState>, Refusal> {
        let snapshot = self.snapshots.borrow().clone();
        let names = || snapshot.upstreams.keys().map(String::as_str);
        let state = snapshot.upstreams.get(name).cloned();
        state.ok_or_else(|| refusal(unknown("upstream", name, names())))
    }

    /// Carries out an order about a server of the configuration in use.
    pub(super) fn carry_out(&self, order: &ServerOrder) -> Result<(), Refusal> {
        let state = self.upstream(&order.upstream)?;
        let set = order.set.map(|set| match set {
            ServerSet::Up => Order::Up,
            ServerSet::Drain => Order::Drain,
            ServerSet::Down => Order::Down,
        });
        let now_us = self.clock.monotonic_us();
        if state.order(&order.server, set, order.weight, now_us) {
            return Ok(());
        }
        let servers = upstream_state(&state, now_us).servers;
        let names = servers.iter().map(|server| server.name.as_str());
        let addresses = servers.iter().map(|server| server.address.as_str());
        let known = names.chain(addresses);
        Err(refusal(unknown("server", &order.server, known)))
    }
}

fn refusal(why: String) -> Refusal {
    Refusal {
        status: 404,
        why: why + "\n",
    }
}

/// Returns the state of an upstream's servers at the time `now_us`.
pub(super) fn upstream_state(state: &upstream::UpstreamState, now_us: u64) -> UpstreamState {
    let servers = state.servers().into_iter().map(|server| {
        let Explanation { why, trial_in_us } = server.explain(now_us);
        ServerState {
            address: server.address().to_owned(),
            name: server.name(),
            state: server.effective_state(),
            why,
            trial_in_s: trial_in_us.map(|us| us as f64 / 1e6),
            weight: server.weight(),
            backup: server.is_backup(),
            numbers: server.numbers(),
            measures: server.measures(),
        }
    });
    let unresolved = state
        .unresolved()
        .into_iter()
        .map(|unresolved| ServerState {
            address: unresolved.server.address(),
            name: unresolved.server.address(),
            state: unresolved.state,
            why: unresolved.why,
            weight: unresolved.server.weight,
            backup: unresolved.server.backup,
            ..ServerState::default()
        });
    let servers: Vec<ServerState> = servers.chain(unresolved).collect();
    let (numbers, measures) = state.total();
    let total = ServerTotal { numbers, measures };
    UpstreamState { servers, total }
}
