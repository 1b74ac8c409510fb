//! The choice of a server for a request.

use std::rc::Rc;

use super::connection::Connection;
use super::criteria::{Choice, Criteria};
use super::pool::Pool;
use super::retry::Failed;
use super::slots::PooledServer;

/// Tier of unreachable servers, which accept no connections, and of servers that can't be used for a request.
const UNREACHABLE: u8 = 4;
const UNUSABLE: u8 = 5;
/// Steps in which the weight of a server that has just started grows.
const STARTING_STEPS: u64 = 20;

impl Pool {
    /// Chooses a server for a request: the one to which its client sticks, then an ejected one that the
    /// request is to test. Otherwise chooses first among the servers in good condition, then among the
    /// backups in good condition, then among all others, of which backups come last. Backups are also
    /// used while all other servers are full.
    pub(super) fn choose(self: &Rc<Pool>, failed: &Failed, criteria: &Criteria<'_>) -> Choice {
        self.refresh();
        let servers = self.slots.servers();
        let is_growing = self.grows_at_us.get() != u64::MAX;
        let is_watching = is_growing || servers.iter().any(|server| server.is_avoided());
        let now_us = if is_watching {
            self.clock.monotonic_us()
        } else {
            0
        };
        if is_watching && now_us >= self.grows_at_us.get() {
            self.balancing.set_weights(&self.growing(now_us));
        }
        if let Some(server) = criteria.sticky.and_then(|id| self.stuck_to(id, failed)) {
            return Choice::Server(server);
        }
        if is_watching && let Some(server) = self.trial(failed, criteria, now_us) {
            return Choice::Server(server);
        }
        let best = match best_tier(&servers, failed) {
            best @ 0..UNREACHABLE => best,
            UNREACHABLE => return self.choose_open(&servers, failed, criteria),
            _ => return Choice::None,
        };
        if servers.iter().any(|server| server.state().is_unreachable()) {
            self.probe();
        }
        let among = |wanted: u8| {
            let excluded = |index: usize| {
                tier(&servers, index, failed) != wanted || self.is_full(&servers[index])
            };
            self.balancing.choose(criteria.key, &excluded)
        };
        match among(best).or_else(|| (best == 0).then(|| among(1)).flatten()) {
            Some(server) => Choice::Server(server),
            None => Choice::Full,
        }
    }

    /// Chooses among servers that accept no connections: one with an open connection that is idle,
    /// since a server that has too many connections to accept another one still serves those.
    fn choose_open(
        self: &Rc<Pool>,
        servers: &[Rc<PooledServer>],
        failed: &Failed,
        criteria: &Criteria<'_>,
    ) -> Choice {
        let now_us = self.clock.monotonic_us();
        let is_usable = |connection: &Connection| {
            connection.has_room() && self.expires_in_us(connection, now_us) > 0
        };
        let excluded = |index: usize| {
            tier(servers, index, failed) != UNREACHABLE
                || !servers[index]
                    .available
                    .borrow()
                    .last()
                    .is_some_and(is_usable)
        };
        match self.balancing.choose(criteria.key, &excluded) {
            Some(server) => {
                self.probe();
                Choice::Server(server)
            }
            None => Choice::Unreachable,
        }
    }

    /// Whether a request that waits for a connection, and that the servers in `failed` failed, may get
    /// one to this server: `choose` would choose the server if it has room.
    pub(super) fn may_serve(&self, server: usize, failed: &Failed) -> bool {
        let servers = self.slots.servers();
        let tier = tier(&servers, server, failed);
        match best_tier(&servers, failed) {
            // Backups are also used while all other servers are full.
            0 => tier <= 1,
            best => tier == best && tier < UNREACHABLE,
        }
    }

    /// Whether no server is left for which a request that the servers in `failed` failed may wait.
    pub(super) fn has_none_for(&self, failed: &Failed) -> bool {
        best_tier(&self.slots.servers(), failed) >= UNREACHABLE
    }

    /// Returns the server with this id in cookies, if it is in good condition and not full. A server
    /// that is drained keeps its clients.
    fn stuck_to(&self, id: u64, failed: &Failed) -> Option<usize> {
        let servers = self.slots.servers();
        let index = servers.iter().position(|server| server.sticky_id == id)?;
        let server = &servers[index];
        let is_usable = server.weight.get() > 0
            && !failed.contains(&index)
            && !server.is_avoided()
            && !server.state().is_unreachable()
            && !self.is_full(server);
        is_usable.then_some(index)
    }

    /// Returns an ejected server that this request is to test, if there is one. Backups are tested only
    /// while backups are used.
    fn trial(&self, failed: &Failed, criteria: &Criteria<'_>, now_us: u64) -> Option<usize> {
        let servers = self.slots.servers();
        let needs_backups = || {
            let mut indices = 0..servers.len();
            !indices
                .any(|index| tier(&servers, index, failed) == 0 && !self.is_full(&servers[index]))
        };
        let may_test = |server: &PooledServer| {
            server.is_open()
                && server.wants_trial(criteria.is_repeatable, now_us)
                && !self.is_full(server)
                && !server.state().is_unreachable()
                && (!server.backup.get() || needs_backups())
                && server.state().condition().begin_trial(now_us)
        };
        // The server of a further attempt should be one that works.
        let mut indices = (0..servers.len()).filter(|_| failed.is_empty());
        let found = indices.find(|index| may_test(&servers[*index]))?;
        self.balancing.set_trial(found);
        servers[found].state().note_change();
        Some(found)
    }

    /// Whether a server has its largest permitted number of connections, and none has room.
    pub(super) fn is_full(&self, server: &PooledServer) -> bool {
        self.is_at_limit(server) && server.available.borrow().is_empty()
    }

    /// Whether a server has its largest permitted number of connections.
    pub(super) fn is_at_limit(&self, server: &PooledServer) -> bool {
        let of_server = server.state().server().max_connections;
        let limit = of_server.unwrap_or(self.limits.max_connections);
        limit > 0 && server.open.get() >= limit
    }

    /// Returns the weights of the servers, of which some may just have started. Sets the time at
    /// which they change next.
    pub(super) fn growing(&self, now_us: u64) -> Vec<u32> {
        let slow_start = self.limits.slow_start;
        let percent = |server: &Rc<PooledServer>| match slow_start.is_zero() {
            true => 1,
            false => server.condition.get().start_percent(slow_start, now_us),
        };
        let servers = self.slots.servers();
        let percents: Vec<u32> = servers.iter().map(percent).collect();
        let is_growing = !slow_start.is_zero() && percents.iter().any(|percent| *percent < 100);
        self.grows_at_us.set(match is_growing {
            true => now_us.saturating_add(slow_start.as_micros() as u64 / STARTING_STEPS),
            false => u64::MAX,
        });
        let weights = servers.iter().map(|server| server.weight.get());
        weights
            .zip(percents)
            .map(|(weight, percent)| weight * percent)
            .collect()
    }
}

/// Returns the tier of a server for a request that the servers in `failed` failed. Servers of lower
/// tiers are preferred.
fn tier(servers: &[Rc<PooledServer>], index: usize, failed: &Failed) -> u8 {
    let server = &servers[index];
    match server.is_open() && !failed.contains(&index) {
        true if server.state().is_unreachable() => UNREACHABLE,
        true => u8::from(server.backup.get()) + 2 * u8::from(server.is_avoided()),
        false => UNUSABLE,
    }
}

/// Returns the lowest tier of all servers for a request that the servers in `failed` failed.
fn best_tier(servers: &[Rc<PooledServer>], failed: &Failed) -> u8 {
    let tiers = (0..servers.len()).map(|index| tier(servers, index, failed));
    tiers.min().unwrap_or(UNUSABLE)
}
