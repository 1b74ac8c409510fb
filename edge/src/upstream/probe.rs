//! Probes: while a server accepts no connections, a few attempts to connect find out when it does
//! again. No request makes such an attempt itself. A request waits for one only if no other server
//! is left, and shares its result with all other waiting requests.

use std::rc::Rc;
use std::time::Duration;

use super::lease::Opening;
use super::permit::InProgress;
use super::pool::Pool;
use super::retry::Failed;
use crate::http::ClientId;
use crate::reason::Reason;

/// Shortest time between two attempts for which requests wait, in microseconds: at most eight per
/// second.
const AWAITED_INTERVAL_US: u64 = 125_000;
/// Shortest time between two attempts while other servers get the requests, in microseconds.
const INTERVAL_US: u64 = 1_000_000;

impl Pool {
    /// Probes the unreachable servers, while other servers get the requests.
    pub(super) fn probe(self: &Rc<Pool>) {
        self.begin_probes(INTERVAL_US, self.clock.monotonic_us());
    }

    /// Waits until an unreachable server accepts connections (`None`), or an attempt to connect
    /// to one of them that began at the time `since_us` or later has failed: then returns the server
    /// and the reason. Servers in `failed` do not count. The number of requests that wait is limited,
    /// also per client: without room for this one, the result is that of an earlier attempt, while the
    /// next one begins. The caller has to choose again after `None`, and must not rely on a success.
    pub(super) async fn await_probe(
        self: &Rc<Pool>,
        failed: &Failed,
        client: ClientId,
        since_us: u64,
    ) -> Option<(usize, Reason)> {
        let mut ended = std::pin::pin!(self.probe_ended.notified());
        ended.as_mut().enable();
        let now_us = self.clock.monotonic_us();
        if let Some(refused) = self.refused(failed, since_us) {
            return Some(refused);
        }
        // Also for a request that may not wait. Otherwise no attempt would ever be made if no request
        // may.
        let due_us = self.begin_probes(AWAITED_INTERVAL_US, now_us);
        let waited_us = now_us.saturating_sub(since_us);
        let is_late = u128::from(waited_us) >= self.limits.connect.as_micros();
        let waiter = self.probe_waiters.add(client).filter(|_| !is_late);
        let Some(_waiter) = waiter else {
            // Any earlier failure counts.
            return self.refused(failed, 0);
        };
        let due = Duration::from_micros(due_us.max(1000));
        let _ = tokio::time::timeout(due, ended).await;
        None
    }

    /// Returns a server that refused a connection in an attempt that began at the time `since_us` or
    /// later, with the reason.
    fn refused(&self, failed: &Failed, since_us: u64) -> Option<(usize, Reason)> {
        let servers = self.slots.servers();
        let mut servers = servers.iter().enumerate();
        servers.find_map(|(index, server)| {
            let counts = server.is_open() && !failed.contains(&index);
            let state = server.state();
            let reason = (counts && state.is_unreachable())
                .then(|| state.connect_attempts().failed_since(since_us));
            Some((index, reason??))
        })
    }

    /// Probes each unreachable server, if its last attempt began at least `interval_us` ago.
    /// Returns the time until the next attempt, in microseconds.
    fn begin_probes(self: &Rc<Pool>, interval_us: u64, now_us: u64) -> u64 {
        let servers = self.slots.servers().clone();
        let mut due_us = interval_us;
        for (index, server) in servers.iter().enumerate() {
            let state = server.state();
            if server.weight.get() == 0 || !state.is_unreachable() || self.is_full(server) {
                continue;
            }
            if state.connect_attempts().begin(now_us, interval_us) {
                self.begin_probe(index);
            }
            due_us = due_us.min(state.connect_attempts().due_in_us(now_us, interval_us));
        }
        due_us
    }

    /// Opens a connection in the background, which is closed again: the next request shows whether
    /// the server answers.
    fn begin_probe(self: &Rc<Pool>, server: usize) {
        let pooled = self.slots.server(server);
        let exchange = InProgress::begin(&self.balancing, &pooled.gauges, server);
        let opening = Opening::new(exchange, self.permit(server));
        self.gauges(server).worker.upstream_probes.add(1);
        let pool = self.clone();
        tokio::task::spawn_local(async move {
            let began_us = pool.clock.monotonic_us();
            let opened = opening.connect(&pool.limits).await;
            let result = opened.as_ref().map(|_| ()).map_err(|fault| fault.reason);
            drop(opened);
            if let Err(cause) = result
                && !cause.is_local_connect()
            {
                let gauges = pool.gauges(server);
                gauges.server.failures.add(1);
                gauges.server.failures_by_reason.add(cause);
                gauges.worker.upstream_failures.add(1);
            }
            pool.note_connect(server, result, began_us);
        });
    }
}
