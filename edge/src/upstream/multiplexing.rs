//! Connections that carry several exchanges at a time: requests wait for one that is being opened, full ones are kept aside,
//! and requests that need a connection of their own do not get one of these.

use std::rc::Rc;

use super::connection::Connection;
use super::criteria::Criteria;
use super::lease::{Lease, Opening};
use super::permit::{InProgress, Permit};
use super::pool::Pool;
use super::slots::PooledServer;

impl Pool {
    /// Whether a connection to this server is being opened that will have room for the request.
    pub(super) fn may_await_opening(&self, server: usize, criteria: &Criteria<'_>) -> bool {
        let pooled = self.slots.server(server);
        let protocol = pooled.state().protocol();
        !criteria.needs_http1
            && protocol.may_multiplex()
            && pooled.state().may_speak_http2(self.limits.http2)
            // A request that is chosen to test a server is not chosen again.
            && !pooled.is_avoided()
            && pooled.available.borrow().is_empty()
            && pooled.openings.will_have_room(protocol.expected_streams())
    }

    /// Waits for a connection to this server that is being opened. Returns false if that takes longer than a connection may
    /// take: the request that opens it may not be polled, since its client reads slowly.
    pub(super) async fn await_opening(&self, server: usize) -> bool {
        let openings = self.slots.server(server).openings.clone();
        let ended = tokio::time::timeout(self.limits.connect, openings.ended());
        ended.await.is_ok()
    }

    /// Whether a request needs a connection of HTTP/1.1 to this server, and there is neither an idle one nor the right to
    /// open one.
    pub(super) fn lacks_http1(&self, server: usize, needs_http1: bool) -> bool {
        let pooled = self.slots.server(server);
        let available = pooled.available.borrow();
        needs_http1 && self.is_at_limit(&pooled) && available.iter().all(Connection::is_multiplexed)
    }

    /// Keeps a connection that carries several exchanges at a time, if it is still usable.
    pub(super) fn put(&self, pooled: &PooledServer, mut connection: Connection) {
        if connection.stays_usable(&self.idle_waker) {
            pooled.put(connection);
        }
    }

    /// Returns the right to open another connection for the exchange of `lease`, whose connection
    /// is not usable; `None` if another connection may have room for the exchange.
    pub(super) fn reopen(self: &Rc<Pool>, lease: Lease) -> Option<Opening> {
        if lease.stream.is_multiplexed() {
            return None;
        }
        let (exchange, permit) = lease.abandon();
        Some(self.opening(exchange, permit, false))
    }

    /// Returns the right to open a connection, with the permit of a connection that was closed for
    /// it, if there is one.
    pub(super) fn opening(
        self: &Rc<Pool>,
        exchange: InProgress,
        permit: Option<Permit>,
        needs_http1: bool,
    ) -> Opening {
        let permit = permit.unwrap_or_else(|| self.permit(exchange.server));
        let opening = Opening::new(exchange, permit);
        if needs_http1 {
            return opening.over_http1();
        }
        let openings = &self.slots.server(opening.server()).openings;
        opening.awaited(openings.begin())
    }

    /// Takes the connection of an exchange that ends out of the full ones, if it is one of them.
    pub(super) fn unpark(&self, lease: &Lease) -> Option<Connection> {
        match lease.stream.is_multiplexed() {
            true => self.slots.server(lease.server()).take_full(&lease.stream),
            false => None,
        }
    }

    /// Gives the room on all connections that were full to waiting requests.
    pub(super) fn unpark_all(self: &Rc<Pool>) {
        let (servers, now_us) = (self.slots.servers().clone(), self.clock.monotonic_us());
        for connection in servers.iter().flat_map(|server| server.full.take()) {
            self.keep_from(connection, now_us);
        }
    }
}
