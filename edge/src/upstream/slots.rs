//! One worker's copy of an upstream's slots, with the worker's connections to each.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::condition::{Order, Summary};
use super::connection::{Connection, Stream};
use super::openings::Openings;
use super::permit::Gauges;
use super::recording::Recorder;
use super::state::{ServerState, UpstreamState};
use crate::handler::Fault;
use crate::reason::Reason;
use crate::sys::Clock;
use crate::telemetry::Counters;

/// Time for which only requests that can be repeated test an ejected server.
const TRIAL_WAIT_US: u64 = 10_000_000;

/// One worker's copy of an upstream's slots.
pub(super) struct Slots {
    state: Arc<UpstreamState>,
    counters: Arc<Counters>,
    /// Version of the state that this copy has; 0 before the first `refresh`.
    version: Cell<u64>,
    servers: RefCell<Vec<Rc<PooledServer>>>,
    recorder: Recorder,
}

/// A slot, with this worker's connections to its server.
pub(super) struct PooledServer {
    pub(super) gauges: Rc<Gauges>,
    pub(super) backup: Cell<bool>,
    /// Share of the requests; 0: the server gets none.
    pub(super) weight: Cell<u32>,
    /// Whether this worker has pinned the slot.
    pinned: Cell<bool>,
    /// Number of connections that are open or being opened.
    pub(super) open: Cell<usize>,
    /// The number that names the server in cookies.
    pub(super) sticky_id: u64,
    /// The condition of the server when this copy was made.
    pub(super) condition: Cell<Summary>,
    /// Connections with room for an exchange, the longest idle first. An HTTP/1.1 connection has
    /// room for one exchange, so it is here only while it is idle.
    pub(super) available: RefCell<Vec<Connection>>,
    /// Connections that carry several exchanges at a time, and as many as they can.
    pub(super) full: RefCell<Vec<Connection>>,
    /// The connections that are being opened.
    pub(super) openings: Rc<Openings>,
}

impl Slots {
    /// Creates a copy that `refresh` has still to fill. `changed` is notified whenever the copy is
    /// out of date.
    pub(super) fn new(
        state: &Arc<UpstreamState>,
        counters: &Arc<Counters>,
        changed: &Arc<Notify>,
        clock: &Clock,
    ) -> Slots {
        state.changes().notify(changed);
        state.look_up_names(clock);
        Slots {
            state: state.clone(),
            counters: counters.clone(),
            version: Cell::new(0),
            servers: RefCell::default(),
            recorder: Recorder::new(state.exchange_ring(), clock.clone()),
        }
    }

    /// Returns all slots, by index.
    pub(super) fn servers(&self) -> std::cell::Ref<'_, Vec<Rc<PooledServer>>> {
        self.servers.borrow()
    }

    /// Returns a slot. Indices are those of permits and balancers.
    pub(super) fn server(&self, index: usize) -> Rc<PooledServer> {
        self.servers.borrow()[index].clone()
    }

    /// Waits until a name of the upstream is resolved, if none is, and the upstream has only names.
    ///
    /// # Errors
    ///
    /// No name is resolved within this time, or none can be.
    pub(super) async fn resolved(&self, within: Duration) -> Result<(), Fault> {
        let resolved = tokio::time::timeout(within, self.state.resolved()).await;
        match resolved {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Reason::Unresolved.into()),
        }
    }

    /// Brings the copy up to date, and closes the idle connections that may carry no further
    /// requests. Returns the new weights if anything has changed.
    pub(super) fn refresh(&self) -> Option<Vec<u32>> {
        let version = self.state.changes().version();
        if version == self.version.get() {
            return None;
        }
        self.version.set(version);
        let current = self.state.pin_slots();
        let weights = current.iter().map(|(_, weight)| *weight).collect();
        // Dropped after the borrow: closing a connection uses the slots again.
        let mut dropped = Vec::new();
        let mut servers = self.servers.borrow_mut();
        for (index, (state, weight)) in current.into_iter().enumerate() {
            match servers.get_mut(index) {
                Some(server) if Arc::ptr_eq(server.state(), &state) => {}
                Some(server) => *server = self.pooled(&state),
                None => servers.push(self.pooled(&state)),
            }
            let server = &servers[index];
            server.update(weight);
            let unusable = server.take_unusable();
            if weight == 0 || !unusable.is_empty() {
                dropped.push((server.clone(), unusable));
            }
        }
        drop(servers);
        for (server, connections) in dropped {
            drop(connections);
            server.unpin_if_unused();
        }
        Some(weights)
    }

    fn pooled(&self, state: &Arc<ServerState>) -> Rc<PooledServer> {
        let gauges = Gauges {
            worker: self.counters.clone(),
            server: state.worker(),
            recorder: Some(self.recorder.clone()),
        };
        Rc::new(PooledServer {
            gauges: Rc::new(gauges),
            backup: Cell::new(false),
            weight: Cell::new(0),
            pinned: Cell::new(false),
            open: Cell::new(0),
            sticky_id: state.sticky_id(),
            condition: Cell::default(),
            available: RefCell::default(),
            full: RefCell::default(),
            openings: Rc::default(),
        })
    }
}

impl PooledServer {
    /// Returns the state that all workers share.
    pub(super) fn state(&self) -> &Arc<ServerState> {
        &self.gauges.server.server
    }

    /// Whether requests may be sent to the server that no client sticks to.
    pub(super) fn is_open(&self) -> bool {
        self.weight.get() > 0 && self.condition.get().order == Order::Up
    }

    /// Whether other servers are preferred: health checks fail, or the server is ejected.
    pub(super) fn is_avoided(&self) -> bool {
        self.condition.get().is_avoided
    }

    /// Whether one request may test now whether the server, which was ejected, works again.
    /// `is_repeatable`: whether the request can be sent to another server if this one fails. Others
    /// test the server only if no such request does.
    pub(super) fn wants_trial(&self, is_repeatable: bool, now_us: u64) -> bool {
        let wait_us = if is_repeatable { 0 } else { TRIAL_WAIT_US };
        let from_us = self.condition.get().trial_from_us;
        from_us.is_some_and(|from_us| now_us >= from_us.saturating_add(wait_us))
    }

    /// Takes over a weight. The slot was pinned again if the weight is above 0.
    fn update(&self, weight: u32) {
        self.weight.set(weight);
        self.backup.set(self.state().is_backup());
        self.condition.set(self.state().summary());
        if weight > 0 && self.pinned.replace(true) {
            self.state().unpin();
        }
    }

    /// Takes out the connections that may carry no further requests: all if the server gets none,
    /// and those to an address of the other family that is no longer used.
    fn take_unusable(&self) -> Vec<Connection> {
        let is_unusable = |connection: &mut Connection| {
            self.weight.get() == 0 || !self.state().may_use(connection.peer())
        };
        let mut available = self.available.borrow_mut();
        let mut full = self.full.borrow_mut();
        let full = full.extract_if(.., is_unusable);
        available.extract_if(.., is_unusable).chain(full).collect()
    }

    /// Takes the connection that was used last; `needs_http1`: of HTTP/1.1.
    pub(super) fn take_available(&self, needs_http1: bool) -> Option<Connection> {
        let mut available = self.available.borrow_mut();
        if !needs_http1 {
            return available.pop();
        }
        let at = available
            .iter()
            .rposition(|connection| !connection.is_multiplexed())?;
        Some(available.remove(at))
    }

    /// Takes the connection of this exchange out of the full ones, if it is one of them.
    pub(super) fn take_full(&self, stream: &Stream) -> Option<Connection> {
        let mut full = self.full.borrow_mut();
        let at = full.iter().position(|one| one.carries(stream))?;
        Some(full.swap_remove(at))
    }

    /// Adds a connection to those with room, or to the full ones.
    pub(super) fn put(&self, connection: Connection) {
        match connection.has_room() {
            true => self.available.borrow_mut().push(connection),
            false => self.full.borrow_mut().push(connection),
        }
    }

    /// Notes that a connection was closed.
    pub(super) fn note_closed(&self) {
        self.open.set(self.open.get().saturating_sub(1));
        self.unpin_if_unused();
    }

    /// Ends the use of the slot if its server gets no further requests and has no connections.
    fn unpin_if_unused(&self) {
        if self.weight.get() == 0 && self.open.get() == 0 && self.pinned.replace(false) {
            self.state().unpin();
        }
    }
}

impl Drop for PooledServer {
    fn drop(&mut self) {
        if self.pinned.get() {
            self.state().unpin();
        }
    }
}
