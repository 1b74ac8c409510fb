//! The two guards of an upstream: a connection holds a `Permit`, which counts it among the server's
//! connections; an exchange holds an `InProgress`, by which the balancer counts it.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::balance::{Balancer, Outcome};
use crate::handler::Fault;
use crate::reason::{Party, Reason};
use crate::telemetry::{Counter, Counters, ServerCounters};

/// Owner of permits: limits the connections to each server, and is notified when one is closed.
pub(super) trait PermitOwner {
    /// Called when a connection to this server was closed, so that another may be opened.
    fn released(self: Rc<Self>, server: usize);
}

/// One of a server's connections, from before it is opened until it is closed.
pub(super) struct Permit {
    owner: Weak<dyn PermitOwner>,
    gauges: Rc<Gauges>,
    pub(super) server: usize,
    busy: bool,
}

/// The gauges in which a connection is counted: those of the worker, and the worker's gauges of the
/// server.
pub(super) struct Gauges {
    pub(super) worker: Arc<Counters>,
    pub(super) server: Arc<ServerCounters>,
}

impl Permit {
    /// Creates a permit for one connection, which is counted as busy until `set_busy` changes that.
    pub(super) fn new(owner: Weak<dyn PermitOwner>, gauges: Rc<Gauges>, server: usize) -> Permit {
        let permit = Permit {
            owner,
            gauges,
            server,
            busy: true,
        };
        permit.add();
        permit
    }

    /// Counts the connection as in use by an exchange, or as idle.
    pub(super) fn set_busy(&mut self, busy: bool) {
        if self.busy != busy {
            self.subtract();
            self.busy = busy;
            self.add();
        }
    }

    fn add(&self) {
        let (worker, server) = self.gauges();
        worker.add(1);
        server.add(1);
    }

    fn subtract(&self) {
        let (worker, server) = self.gauges();
        worker.sub(1);
        server.sub(1);
    }

    fn gauges(&self) -> (&Counter, &Counter) {
        let Gauges { worker, server } = &*self.gauges;
        match self.busy {
            true => (&worker.upstream_busy_now, &server.busy),
            false => (&worker.upstream_idle_now, &server.idle),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.subtract();
        if let Some(owner) = self.owner.upgrade() {
            owner.released(self.server);
        }
    }
}

/// A worker's balancer, which learns of every exchange that begins and ends.
pub(super) type SharedBalancer = Rc<RefCell<Box<dyn Balancer>>>;

/// One exchange with a server, from when the server was chosen until the exchange has ended.
pub(super) struct InProgress {
    balancer: SharedBalancer,
    pub(super) server: usize,
    outcome: Outcome,
}

impl InProgress {
    /// Begins an exchange. If no outcome is noted later, the exchange counts as cancelled.
    pub(super) fn begin(balancer: &SharedBalancer, server: usize) -> InProgress {
        balancer.borrow_mut().begin(server);
        InProgress {
            balancer: balancer.clone(),
            server,
            outcome: Outcome::Cancelled,
        }
    }

    /// Notes the outcome of the exchange. The last note counts.
    pub(super) fn note(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    /// Notes that the exchange failed.
    pub(super) fn note_failure(&mut self, fault: &Fault) {
        self.outcome = outcome_of(fault);
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let mut balancer = self.balancer.borrow_mut();
        balancer.end(self.server, self.outcome);
    }
}

/// Returns the outcome for an exchange that failed with `fault`.
fn outcome_of(fault: &Fault) -> Outcome {
    match fault.reason {
        Reason::Unresolved | Reason::ConnectFailed => Outcome::ConnectFailed,
        Reason::ConnectTimeout | Reason::HeadTimeout | Reason::BodyTimeout => Outcome::TimedOut,
        // This does not count against the server, which may close an idle connection at any time.
        Reason::StaleConnection => Outcome::Cancelled,
        _ if fault.reason.whose() == Some(Party::Origin) => Outcome::Broken,
        _ => Outcome::Cancelled,
    }
}
