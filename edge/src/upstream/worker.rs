//! The part of an upstream that belongs to one worker: its pool and its counters.

use std::rc::Rc;
use std::sync::Arc;

use super::failure_log;
use super::lease::Lease;
use super::options::{Limits, Options, Server};
use super::pool::Pool;
use super::state::UpstreamState;
use crate::handler::Head;
use crate::http::Scheme;
use crate::http::fields::is_field_value;
use crate::reason::Reason;
use crate::sys::Clock;
use crate::telemetry::Counters;

/// The part of an upstream that belongs to one worker.
pub(super) struct UpstreamWorker {
    pub(super) options: Options,
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    pub(super) counters: Arc<Counters>,
    pub(super) pool: Rc<Pool>,
    /// Value of Host sent in place of the client's.
    host: Option<String>,
    /// Value of Host sent when neither client nor configuration name one (HTTP/1.0).
    fallback_host: String,
}

impl UpstreamWorker {
    pub(super) fn new(
        options: Options,
        clock: Clock,
        counters: Arc<Counters>,
        state: &UpstreamState,
    ) -> UpstreamWorker {
        let limits = Limits::new(&options);
        let pool = Pool::new(&options, limits.clone(), clock.clone(), &counters, state);
        let value = |text: &String| is_field_value(text.as_bytes());
        let first = options.servers.first().map(Server::authority);
        UpstreamWorker {
            host: options.host.clone().filter(value),
            fallback_host: first.filter(value).unwrap_or_default(),
            options,
            limits,
            clock,
            counters,
            pool,
        }
    }

    /// Returns the value of Host for a request with this authority.
    pub(super) fn host<'a>(&'a self, authority: &'a str) -> &'a str {
        match &self.host {
            Some(configured) => configured,
            None if !authority.is_empty() && is_field_value(authority.as_bytes()) => authority,
            None => &self.fallback_host,
        }
    }

    pub(super) fn count_request(&self, lease: &Lease) {
        self.counters.upstream_requests.add(1);
        self.pool.counters(lease.server()).requests.add(1);
        if lease.stream.is_reused() {
            self.counters.upstream_reuses.add(1);
        }
    }

    pub(super) fn count_connect(&self, server: usize) {
        self.counters.upstream_connects.add(1);
        self.pool.counters(server).connects.add(1);
    }

    /// Counts a failed request to a server, and reports the failure in the error log.
    pub(super) fn count_failure(&self, server: usize, cause: Reason, scheme: Scheme, head: &Head) {
        self.counters.upstream_failures.add(1);
        self.pool.counters(server).failures.add(1);
        let now_us = self.clock.monotonic_us();
        let url = || failure_log::url(scheme, head);
        self.pool.state(server).report_failure(cause, now_us, url);
    }
}
