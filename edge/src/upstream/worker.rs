//! The part of an upstream that belongs to one worker: its pool and its counters.

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;

use super::failure_log;
use super::hedge_budget::HedgeBudget;
use super::lease::Lease;
use super::options::{Limits, Options, Server};
use super::pool::Pool;
use super::retry::{RetryBudget, Tries};
use super::state::UpstreamState;
use crate::balance::is_failure_status;
use crate::handler::Head;
use crate::http::fields::is_field_value;
use crate::http::{Scheme, Status};
use crate::reason::Reason;
use crate::sign::Signer;
use crate::sys::Clock;
use crate::telemetry::{Counters, RouteCounters};

/// The part of an upstream that belongs to one worker.
pub(super) struct UpstreamWorker {
    pub(super) options: Options,
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    pub(super) counters: Arc<Counters>,
    pub(super) pool: Rc<Pool>,
    state: Arc<UpstreamState>,
    /// Signs requests, if the options have credentials.
    pub(super) signer: Option<Signer>,
    pub(super) retries: RetryBudget,
    pub(super) hedges: Option<HedgeBudget>,
    /// Value of Host sent in place of the client's.
    host: Option<String>,
    /// Value of Host sent when neither client nor configuration name one (HTTP/1.0), or the client's
    /// must not be sent.
    fallback_host: String,
}

impl UpstreamWorker {
    pub(super) fn new(
        options: Options,
        clock: Clock,
        counters: Arc<Counters>,
        state: &Arc<UpstreamState>,
        memory_freed: Rc<Notify>,
    ) -> UpstreamWorker {
        let limits = Limits::new(&options);
        let pool_limits = limits.clone();
        let pool = Pool::new(
            &options,
            pool_limits,
            clock.clone(),
            &counters,
            state,
            memory_freed,
        );
        let value = |text: &String| is_field_value(text.as_bytes());
        let first = options.servers.first().map(Server::authority);
        UpstreamWorker {
            host: options.host.clone().filter(value),
            signer: options.sign.clone().map(Signer::new),
            fallback_host: first.filter(value).unwrap_or_default(),
            hedges: options.hedge.clone().map(HedgeBudget::new),
            retries: RetryBudget::new(&options.retry, clock.monotonic_us()),
            options,
            limits,
            clock,
            counters,
            pool,
            state: state.clone(),
        }
    }

    /// Returns the value of Host for a request with this authority.
    pub(super) fn host<'a>(&'a self, authority: &'a str) -> &'a str {
        let is_usable = !authority.is_empty() && is_field_value(authority.as_bytes());
        match &self.host {
            Some(configured) => configured,
            // Stores take the name of the bucket from Host, and a client must not choose the bucket.
            None if is_usable && self.signer.is_none() => authority,
            None => &self.fallback_host,
        }
    }

    pub(super) fn count_request(&self, route: Option<&RouteCounters>, lease: &Lease) {
        self.counters.upstream_requests.add(1);
        if let Some(route) = route {
            route.upstream_requests.add(1);
        }
        let gauges = self.pool.gauges(lease.server());
        gauges.server.requests.add(1);
        if lease.stream.is_reused() {
            self.counters.upstream_reuses.add(1);
            gauges.server.reuses.add(1);
        }
    }

    /// Counts bytes of a response's body that have been received.
    pub(super) fn count_bytes(&self, route: Option<&RouteCounters>, bytes: u64) {
        self.counters.upstream_bytes_in.add(bytes);
        if let Some(route) = route {
            route.upstream_bytes.add(bytes);
        }
    }

    /// Counts a connection that was opened within this time, for this request.
    pub(super) fn count_connect(&self, route: Option<&RouteCounters>, lease: &Lease, took_us: u64) {
        self.counters.connect_duration.record(took_us);
        if let Some(route) = route {
            route.connect_duration.record(took_us);
        }
        self.counters.upstream_connects.add(1);
        let gauges = self.pool.gauges(lease.server());
        gauges.server.connects.add(1);
        gauges.server.connect_duration.record(took_us);
        if let Some(handshake) = lease.stream.handshake() {
            // A handshake is limited by `connect_timeout`, so its microseconds fit.
            let handshake_us = handshake.as_micros() as u64;
            gauges.server.tls_handshake_duration.record(handshake_us);
        }
    }

    /// Counts a response whose head arrived in this time after the request was sent.
    pub(super) fn count_head(&self, route: Option<&RouteCounters>, server: usize, took_us: u64) {
        self.counters.header_duration.record(took_us);
        if let Some(route) = route {
            route.header_duration.record(took_us);
        }
        let gauges = self.pool.gauges(server);
        gauges.server.header_duration.record(took_us);
    }

    /// Counts a complete response, which ended in this time after the request was sent, and samples
    /// the state of its connection.
    pub(super) fn count_end(
        &self,
        route: Option<&RouteCounters>,
        lease: &mut Lease,
        took_us: u64,
        now_us: u64,
    ) {
        self.counters.response_duration.record(took_us);
        if let Some(route) = route {
            route.response_duration.record(took_us);
        }
        let gauges = self.pool.gauges(lease.server());
        gauges.server.response_duration.record(took_us);
        if let Some(sample) = lease.stream.sample(now_us) {
            gauges.server.tcp_samples.add(1);
            gauges.server.tcp_rtt.record(sample.rtt_us);
            gauges.server.tcp_window_bytes.add(sample.window);
            gauges.server.tcp_in_flight_bytes.add(sample.in_flight);
            gauges.server.tcp_retransmits.add(sample.retransmits);
        }
    }

    /// Counts a failed request to a server, and reports the failure in the error log. The server does
    /// not get the blame for a connection that this machine could not open.
    pub(super) fn count_failure(&self, server: usize, cause: Reason, scheme: Scheme, head: &Head) {
        self.counters.upstream_failures.add(1);
        if cause.is_local_connect() {
            return self.state.report_local(cause, self.clock.monotonic_us());
        }
        let gauges = self.pool.gauges(server);
        gauges.server.failures.add(1);
        gauges.server.failures_by_reason.add(cause);
        let now_us = self.clock.monotonic_us();
        let url = || failure_log::url(scheme, head);
        gauges.server.server.report_failure(cause, now_us, url);
    }

    /// Counts a response whose status counts as a failure of the server. Such a response is passed on,
    /// so only the ejection of the server is logged.
    pub(super) fn count_status(&self, server: usize, status: Status) {
        if is_failure_status(status) {
            self.counters.upstream_failures.add(1);
            let gauges = self.pool.gauges(server);
            gauges.server.failures.add(1);
            gauges.server.failures_by_reason.add(Reason::ErrorStatus);
        }
    }

    /// Counts a request that reached no server, and reports a name that is not resolved.
    pub(super) fn count_unreached(&self, cause: Reason, scheme: Scheme, head: &Head) {
        self.counters.upstream_failures.add(1);
        if cause == Reason::Unresolved {
            let url = || failure_log::url(scheme, head);
            self.state.report_unresolved(self.clock.monotonic_us(), url);
        }
    }

    /// Whether another server may be tried for a request that `server` failed: the number of tries,
    /// their total time and the budget permit that, and there is another server. Counts the retry.
    pub(super) fn may_retry(&self, server: usize, tries: &Tries) -> bool {
        let now_us = self.clock.monotonic_us();
        if tries.are_over(&self.options.retry, now_us) || !self.pool.has_other(&tries.failed) {
            return false;
        }
        if self.retries.take(now_us) {
            self.counters.upstream_retries.add(1);
            return true;
        }
        self.counters.upstream_retries_refused.add(1);
        if let Some(refused) = self.retries.report(now_us) {
            let gauges = self.pool.gauges(server);
            gauges.server.server.report_refused_retries(refused);
        }
        false
    }
}
