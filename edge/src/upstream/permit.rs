//! The two guards of an upstream: a connection holds a `Permit`, which counts it among the server's
//! connections; an exchange holds an `InProgress`, by which the balancer counts it.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::balancing::{Balancing, Ended};
use super::recording::{ExchangeRecording, Recorder};
use super::state::{ServerState, WorkerCounters};
use crate::balance::Outcome;
use crate::handler::Fault;
use crate::reason::{Party, Reason};
use crate::telemetry::{Counter, Counters};

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
    pub(super) server: WorkerCounters,
    /// Records the exchanges of connections. `None`: of a health check.
    pub(super) recorder: Option<Recorder>,
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

    /// Returns the state of the connection's server that all workers share.
    pub(super) fn state(&self) -> &Arc<ServerState> {
        &self.gauges.server.server
    }

    /// Returns the recorder of the connection's exchanges.
    pub(super) fn recorder(&self) -> Option<&Recorder> {
        self.gauges.recorder.as_ref()
    }

    /// Returns the counters in which the connection is counted.
    pub(super) fn gauges_of_server(&self) -> Rc<Gauges> {
        self.gauges.clone()
    }

    /// Counts the connection as in use by an exchange, or as idle.
    pub(super) fn set_busy(&mut self, busy: bool) {
        if self.busy != busy {
            self.subtract();
            self.busy = busy;
            self.add();
        }
    }

    /// Counts bytes received from the server and sent to it.
    pub(super) fn count_traffic(&self, received: u64, sent: u64) {
        self.gauges.server.bytes_in.add(received);
        self.gauges.server.bytes_out.add(sent);
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
        let Gauges { worker, server, .. } = &*self.gauges;
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

/// One exchange with a server, from when the server was chosen until the exchange has ended.
pub(super) struct InProgress {
    balancing: Rc<Balancing>,
    gauges: Rc<Gauges>,
    pub(super) server: usize,
    /// Whether the exchange tests a server that was ejected.
    is_trial: bool,
    outcome: Outcome,
    /// Time of the end of the response, if it has ended.
    ended_us: Option<u64>,
    /// The record of the exchange on its current connection, from when the request is sent.
    pub(super) recording: Option<ExchangeRecording>,
}

impl InProgress {
    /// Begins an exchange. If no outcome is noted later, the exchange counts as cancelled.
    pub(super) fn begin(
        balancing: &Rc<Balancing>,
        gauges: &Rc<Gauges>,
        server: usize,
    ) -> InProgress {
        InProgress {
            is_trial: balancing.begin(server),
            balancing: balancing.clone(),
            gauges: gauges.clone(),
            server,
            outcome: Outcome::Cancelled,
            ended_us: None,
            recording: None,
        }
    }

    /// Notes the outcome of the exchange. The last note counts.
    pub(super) fn note(&mut self, outcome: Outcome) {
        self.outcome = outcome;
        if let (
            Some(recording),
            Outcome::Answered {
                status, head_us, ..
            },
        ) = (&mut self.recording, outcome)
        {
            recording.note_head(status, head_us);
        }
    }

    /// Notes bytes of content that were received.
    pub(super) fn note_bytes(&mut self, bytes: u64) {
        if let Some(recording) = &mut self.recording {
            recording.note_bytes(bytes);
        }
    }

    /// Notes that all of the response was received until the time `now_us`.
    pub(super) fn note_complete(&mut self, now_us: u64) {
        if let Some(recording) = &mut self.recording {
            recording.note_end(now_us);
        }
    }

    /// Notes the time from sending the request to the end of the response, in microseconds, and the
    /// time `now_us` of the end.
    pub(super) fn note_end(&mut self, took_us: u64, now_us: u64) {
        self.ended_us = Some(now_us);
        self.note_complete(now_us);
        if let Outcome::Answered { total_us, .. } = &mut self.outcome {
            *total_us = Some(took_us);
        }
    }

    /// Notes that the exchange failed.
    pub(super) fn note_failure(&mut self, fault: &Fault) {
        self.outcome = outcome_of(fault);
        if let Some(recording) = &mut self.recording {
            recording.note_failure(fault.reason);
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let state = &self.gauges.server.server;
        let ended = Ended {
            outcome: self.outcome,
            at_us: self.ended_us,
            is_trial: self.is_trial,
        };
        self.balancing.end(self.server, state, ended);
    }
}

/// Returns the outcome for an exchange that failed with `fault`.
fn outcome_of(fault: &Fault) -> Outcome {
    match fault.reason {
        Reason::Unresolved | Reason::ConnectFailed | Reason::ConnectTimeout | Reason::TlsFailed => {
            Outcome::ConnectFailed
        }
        Reason::HeadTimeout | Reason::BodyTimeout => Outcome::TimedOut,
        // This does not count against the server, which may close an idle connection at any time, and permit fewer streams
        // than before.
        Reason::StaleConnection | Reason::StreamRefused => Outcome::Cancelled,
        _ if fault.reason.whose() == Some(Party::Origin) => Outcome::Broken,
        _ => Outcome::Cancelled,
    }
}
