//! The part of an upstream that belongs to one worker: its pool, its counters and its spare
//! buffers.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::http1::SPARE_HEAD_BYTES_MAX;
use super::lease::Lease;
use super::options::{Limits, Options, Server};
use super::pool::Pool;
use super::state::UpstreamState;
use crate::http::fields::is_field_value;
use crate::sys::Clock;
use crate::telemetry::Counters;

/// Most emptied head buffers kept for later requests.
const SPARE_HEADS_MAX: usize = 16;

/// The part of an upstream that belongs to one worker.
pub(super) struct UpstreamWorker {
    pub(super) options: Options,
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    pub(super) counters: Arc<Counters>,
    pub(super) pool: Rc<Pool>,
    /// Value of Host sent in place of the client's.
    pub(super) host: Option<String>,
    /// Value of Host sent when neither client nor configuration name one (HTTP/1.0).
    pub(super) fallback_host: String,
    spare_heads: RefCell<Vec<Vec<u8>>>,
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
        let first = options.servers.first().map(Server::address);
        UpstreamWorker {
            host: options.host.clone().filter(value),
            fallback_host: first.filter(value).unwrap_or_default(),
            spare_heads: RefCell::default(),
            options,
            limits,
            clock,
            counters,
            pool,
        }
    }

    /// Returns an empty buffer, which reuses the memory of an earlier head if possible.
    pub(super) fn spare_head(&self) -> Vec<u8> {
        self.spare_heads.borrow_mut().pop().unwrap_or_default()
    }

    pub(super) fn keep_head(&self, mut head: Vec<u8>) {
        let mut spare = self.spare_heads.borrow_mut();
        if spare.len() < SPARE_HEADS_MAX && (1..=SPARE_HEAD_BYTES_MAX).contains(&head.capacity()) {
            head.clear();
            spare.push(head);
        }
    }

    pub(super) fn count_request(&self, lease: &Lease) {
        self.counters.upstream_requests.add(1);
        self.pool.counters(lease.server()).requests.add(1);
        if lease.is_reused() {
            self.counters.upstream_reuses.add(1);
        }
    }

    pub(super) fn count_connect(&self, server: usize) {
        self.counters.upstream_connects.add(1);
        self.pool.counters(server).connects.add(1);
    }

    pub(super) fn count_failure(&self, server: usize) {
        self.counters.upstream_failures.add(1);
        self.pool.counters(server).failures.add(1);
    }
}
