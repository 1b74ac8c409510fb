//! State of one server (one slot of an upstream) that all workers share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::changes::Changes;
use super::condition::{Condition, Order, Summary};
use super::connect_attempts::ConnectAttempts;
use super::error_detail::ErrorDetail;
use super::failure_log::FailureLog;
use super::options::{Http2, Server};
use super::other_family::OtherFamily;
use super::server_protocol::ServerProtocol;
use super::server_tally::ServerTally;
use super::sticky;
use super::upstream_tls::UpstreamTls;
use crate::http::key::KeyHash;
use crate::reason::{Party, Reason};
use crate::resolve::Target;
use crate::sys::Address;
use crate::telemetry::{EffectiveState, ServerCounters, ServerMeasures, ServerNumbers};
use crate::tls;

/// One slot: an address of a configured server, with the state that all workers share.
pub struct ServerState {
    /// Name of the server's upstream, for messages.
    pub(super) upstream: String,
    /// Index of the configured server to which the address belongs.
    pub(super) index: usize,
    /// The configured server.
    pub(super) server: Server,
    /// The address, if the server's name was looked up.
    pub(super) peer: Option<SocketAddr>,
    /// An address of the other family, to which a connection is opened if one to `peer` takes long.
    pub(super) other: OtherFamily,
    /// The address as text.
    pub(super) address: String,
    /// Name for which the server's certificate has to be valid, if `tls` has no other one.
    pub(super) tls_name: String,
    /// The upstream's TLS, if the server has TLS.
    pub(super) tls: Option<Arc<UpstreamTls>>,
    /// The last exact error for which the server could not be connected to.
    pub(super) last_error: Mutex<Option<ErrorDetail>>,
    /// Whether the server has this address now.
    pub(super) is_present: AtomicBool,
    pub(super) weight: AtomicU32,
    pub(super) backup: AtomicBool,
    /// Whether the last attempt to connect to the server that counts failed.
    pub(super) is_unreachable: AtomicBool,
    pub(super) condition: Arc<Condition>,
    /// Whether there are health checks.
    pub(super) is_checked: bool,
    /// Whether clients that stick to the server keep it while it is drained.
    pub(super) keeps_clients: bool,
    pub(super) connect_attempts: ConnectAttempts,
    pub(super) protocol: ServerProtocol,
    pub(super) failures: FailureLog,
    pub(super) tally: Arc<ServerTally>,
    /// Number of workers that have connections of this slot, or may open one.
    pub(super) pins: AtomicUsize,
    pub(super) changes: Arc<Changes>,
}

/// The reason for the state of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Why the server is in this state, in words.
    pub why: Option<String>,
    /// For an ejected server: the time until a request may test it, in microseconds. 0 while one does,
    /// or is awaited.
    pub trial_in_us: Option<u64>,
}

/// One worker's counters of a server. When they are dropped, the server's state keeps their totals.
pub(super) struct WorkerCounters {
    pub(super) server: Arc<ServerState>,
    counters: Arc<ServerCounters>,
}

impl ServerState {
    /// Returns host and port, or the path of the Unix socket: as configured, or an address to which
    /// the configured name leads.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the configured server: host and port, the name of a service, or the path of the Unix
    /// socket.
    pub fn name(&self) -> String {
        self.server.address()
    }

    /// Returns the state as operators see it.
    pub fn effective_state(&self) -> EffectiveState {
        match self.condition.effective_state(self.server.configured()) {
            // An ejected server is tested only after it has accepted a connection.
            EffectiveState::Up | EffectiveState::Ejected if self.is_unreachable() => {
                EffectiveState::Unreachable
            }
            state => state,
        }
    }

    /// Returns why the server is in its state at the time `now_us`, if that is known.
    pub fn explain(&self, now_us: u64) -> Explanation {
        let (why, trial_in_us) = match self.effective_state() {
            EffectiveState::Drain | EffectiveState::Down => {
                let why = match self.condition.has_order() {
                    true => "by order",
                    false => "by the configuration",
                };
                (Some(why.to_owned()), None)
            }
            EffectiveState::Unhealthy => (Some(self.condition.unhealthy_cause()), None),
            EffectiveState::Ejected => {
                let (cause, left_us) = self.condition.ejection_cause(now_us);
                (Some(cause), Some(left_us))
            }
            EffectiveState::Unreachable => {
                let reason = self.connect_attempts.failed_since(0);
                (reason.map(|reason| self.cause(reason)), None)
            }
            EffectiveState::Up
            | EffectiveState::Checking
            | EffectiveState::Resolving
            | EffectiveState::Unresolved => (None, None),
        };
        Explanation { why, trial_in_us }
    }

    /// Returns the facts that concern the choice of the server.
    pub(super) fn summary(&self) -> Summary {
        self.condition.summary(self.server.configured())
    }

    /// Returns the share of the requests relative to the other servers' weights, if the server is up.
    pub fn weight(&self) -> u32 {
        let own = self.weight.load(Ordering::Relaxed);
        self.summary().weight.unwrap_or(own)
    }

    pub(super) fn order(&self, set: Option<Order>, weight: Option<u32>, now_us: u64) {
        if let Some(weight) = weight {
            self.condition.set_weight(weight, now_us);
        }
        if let Some(order) = set {
            let configured = self.server.configured();
            self.condition.set_order(order, configured, now_us);
        }
        self.note_change();
    }

    /// Returns the number that names the server in cookies.
    pub(super) fn sticky_id(&self) -> u64 {
        sticky::id(&self.upstream, &self.address)
    }

    /// Returns the name of the server's upstream.
    pub(super) fn upstream(&self) -> &str {
        &self.upstream
    }

    /// Whether the server has this address now.
    pub(super) fn is_present(&self) -> bool {
        self.is_present.load(Ordering::Relaxed)
    }

    /// Returns the operator's orders, health and ejection of the server.
    pub(super) fn condition(&self) -> &Condition {
        &self.condition
    }

    /// Returns a number that is the same for this address in each run of the program.
    pub fn id(&self) -> u64 {
        KeyHash::of_bytes(self.address.as_bytes()).low()
    }

    /// Returns the configured server to which the address belongs.
    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the address to connect to, if the server's name was looked up.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns the address at which connections to the server are opened, as far as it is known before.
    pub(super) fn known_address(&self) -> Option<Address> {
        let peer = self.peer.map(Address::Ip);
        peer.or_else(|| self.server.literal())
    }

    /// Returns the address of the other family.
    pub(super) fn other(&self) -> &OtherFamily {
        &self.other
    }

    /// Whether a connection to `connected`, the slot's address or one of the other family, may carry
    /// further requests. While other servers are preferred to this one, only those to its own address
    /// may: a request that tests an ejected server would otherwise test another one.
    pub(super) fn may_use(&self, connected: Option<Address>) -> bool {
        match (self.peer, connected) {
            (Some(own), Some(Address::Ip(connected))) if own != connected => {
                self.other.is_usable(connected) && !self.is_avoided()
            }
            _ => true,
        }
    }

    /// Whether other servers are preferred: health checks fail, or the server is ejected.
    pub(super) fn is_avoided(&self) -> bool {
        self.summary().is_avoided
    }

    /// Whether the server is used only while all others fail or are full.
    pub fn is_backup(&self) -> bool {
        self.backup.load(Ordering::Relaxed)
    }

    /// Notes whether the server has this address now, and with which weight and priority.
    /// `added_us`: the time, if an address that the server did not have before is one that was added
    /// while the program runs.
    pub(super) fn set_target(&self, target: Option<&Target>, added_us: Option<u64>) {
        let was_present = self.is_present.swap(target.is_some(), Ordering::Relaxed);
        let Some(target) = target else { return };
        if let Some(now_us) = added_us
            && !was_present
        {
            self.condition.add(self.is_checked, now_us);
        }
        let weight = target.weight.unwrap_or(self.server.weight);
        self.weight.store(weight, Ordering::Relaxed);
        let backup = self.server.backup || target.backup;
        self.backup.store(backup, Ordering::Relaxed);
    }

    /// Whether the slot may be used for another address: the server does not have this one any more,
    /// and no worker has a connection to it.
    pub(super) fn is_free(&self) -> bool {
        !self.is_present.load(Ordering::Relaxed) && self.pins.load(Ordering::Relaxed) == 0
    }

    /// Returns the protocol that the server speaks, as far as it is known.
    pub(super) fn protocol(&self) -> &ServerProtocol {
        &self.protocol
    }

    /// Whether a new connection may be one of HTTP/2.
    pub(super) fn may_speak_http2(&self, http2: Http2) -> bool {
        let negotiates = self.tls.is_some() && http2 != Http2::Never;
        (negotiates || self.speaks_http2(http2)) && !self.protocol.requires_http1()
    }

    /// Whether a new connection in clear text is one of HTTP/2, as the configuration says (RFC 9113 3.3).
    pub(super) fn speaks_http2(&self, http2: Http2) -> bool {
        let is_known = self.server.h2c || http2 == Http2::Always;
        self.tls.is_none() && is_known && !self.protocol.requires_http1()
    }

    /// Returns the TLS for new connections; `None` for clear text.
    pub(super) fn tls(&self) -> Option<Arc<tls::Client>> {
        self.tls.as_ref().map(|tls| tls.client())
    }

    /// Returns the name for which the server's certificate has to be valid, if the options of TLS
    /// have no other one.
    pub(super) fn tls_name(&self) -> &str {
        &self.tls_name
    }

    /// Notes the exact error for the next message about a failed connection.
    pub(super) fn note_detail(&self, error: ErrorDetail) {
        *self.last_error.lock() = Some(error);
    }

    /// Returns the description of a failure's cause.
    fn cause(&self, reason: Reason) -> String {
        let detail = (*self.last_error.lock()).filter(|error| error.explains(reason));
        match detail {
            Some(error) => format!("{} ({error})", reason.text()),
            None => reason.text().to_owned(),
        }
    }

    /// Returns the share of the requests that the server gets now, relative to the other servers'.
    /// 0: the server gets none. Whoever changes a fact on which this depends calls `note_change`.
    pub(super) fn effective_weight(&self) -> u32 {
        let condition = self.summary();
        let is_in_use = match condition.order {
            Order::Up => true,
            Order::Drain => self.keeps_clients,
            Order::Down => false,
        };
        match self.is_present.load(Ordering::Relaxed) && is_in_use {
            true => condition
                .weight
                .unwrap_or(self.weight.load(Ordering::Relaxed)),
            false => 0,
        }
    }

    /// Has all workers' pools read the slots again.
    pub(super) fn note_change(&self) {
        self.changes.note();
    }

    /// Notes whether the server has this address now.
    #[cfg(test)]
    pub(super) fn set_present(&self, is_present: bool) {
        self.is_present.store(is_present, Ordering::Relaxed);
        self.note_change();
    }

    /// Returns the number of workers that have connections of this slot, or may open one.
    #[cfg(test)]
    pub(super) fn pins(&self) -> usize {
        self.pins.load(Ordering::Relaxed)
    }

    /// Ends the use of the slot by a worker that pinned it.
    pub(super) fn unpin(&self) {
        self.pins.fetch_sub(1, Ordering::Relaxed);
    }

    /// Creates the counters of one more worker.
    pub(super) fn worker(self: &Arc<ServerState>) -> WorkerCounters {
        WorkerCounters {
            server: self.clone(),
            counters: self.tally.worker(),
        }
    }

    /// Whether the last attempt to connect to the server failed.
    pub(super) fn is_unreachable(&self) -> bool {
        self.is_unreachable.load(Ordering::Relaxed)
    }

    /// Returns the attempts to connect to the server while it is unreachable.
    pub(super) fn connect_attempts(&self) -> &ConnectAttempts {
        &self.connect_attempts
    }

    /// Notes whether the server accepted a connection (`Ok`), or the reason why it did not, and logs
    /// when that changes. The attempt began at the time `began_us` and ended at `now_us`; a failure
    /// does not count if a later attempt has succeeded. A server that accepts connections again
    /// starts.
    pub(super) fn note_connect(&self, result: Result<(), Reason>, began_us: u64, now_us: u64) {
        let accepted = result.is_ok();
        match result {
            Ok(()) => self.connect_attempts.note_success(began_us),
            Err(reason) if self.connect_attempts.note_failure(began_us, reason) => {}
            Err(_) => return,
        }
        // Usually nothing changed: then the flag is only read, so that workers do not contend for
        // its cache line.
        if self.is_unreachable.load(Ordering::Relaxed) != accepted {
            return;
        }
        let (upstream, address) = (&self.upstream, &self.address);
        match (
            self.is_unreachable.swap(!accepted, Ordering::Relaxed),
            accepted,
        ) {
            (true, true) => {
                self.condition.start(began_us);
                self.note_change();
                tracing::info!(target: "sluice::event::server::reachable", %upstream, server = %address, "a server accepts connections again");
            }
            (false, false) => {
                if let Err(reason) = result {
                    self.report_unreachable(reason, now_us);
                }
            }
            _ => {}
        }
    }

    /// Logs that the server can't be connected to any more. The message about failed requests, of
    /// which the first one follows, would say the same, so the next one comes an interval later.
    fn report_unreachable(&self, reason: Reason, now_us: u64) {
        let (upstream, address, cause) = (&self.upstream, &self.address, self.cause(reason));
        self.failures.note_reported(reason, now_us);
        match reason {
            Reason::TlsFailed => {
                tracing::warn!(target: "sluice::event::server::tls-fails", %upstream, server = %address, %cause, "TLS with a server fails");
            }
            _ => {
                tracing::warn!(target: "sluice::event::server::unreachable", %upstream, server = %address, %cause, "a server accepts no connections");
            }
        }
    }

    /// Logs that a request to the server failed, unless the client is at fault or the last message
    /// about this cause is recent. `url` makes the text of the request's URL.
    pub(super) fn report_failure(&self, cause: Reason, now_us: u64, url: impl FnOnce() -> String) {
        if cause.whose() != Some(Party::Origin) {
            return;
        }
        if let Some(failures) = self.failures.count(cause, now_us) {
            let (upstream, address, url) = (&self.upstream, &self.address, url());
            let cause = self.cause(cause);
            tracing::warn!(
                %upstream, server = %address, %url, %cause, failures,
                "requests to a server fail"
            );
        }
    }

    /// Logs that failed requests were not sent to another server since the budget of retries was
    /// used up.
    pub(super) fn report_refused_retries(&self, refused: u64) {
        let (upstream, address) = (&self.upstream, &self.address);
        tracing::warn!(
            target: "sluice::event::server::retries-refused",
            %upstream, server = %address, refused,
            "failed requests are not retried, since the budget of retries is used up"
        );
    }

    /// Returns the server's current numbers, summed over the workers.
    pub fn numbers(&self) -> ServerNumbers {
        self.tally.numbers()
    }

    /// Returns the durations and failures of the server so far, summed over the workers.
    pub fn measures(&self) -> ServerMeasures {
        self.tally.measures()
    }
}

impl std::ops::Deref for WorkerCounters {
    type Target = ServerCounters;

    fn deref(&self) -> &ServerCounters {
        &self.counters
    }
}

impl Drop for WorkerCounters {
    fn drop(&mut self) {
        self.server.tally.end(&self.counters);
    }
}
