//! Counts the connection and its streams for the metrics.

use std::sync::Arc;

use crate::http2::server::Server;
use crate::http2::violation::{ErrorCode, Violation};
use crate::telemetry::Counters;

/// The part of a connection's numbers that is in the worker's counters. Dropping it takes the connection out of the gauges.
pub struct Counts {
    counters: Arc<Counters>,
    open: u64,
    stalled: u64,
    begun: u64,
    resets_sent: u64,
    is_shutting_down: bool,
}

impl Counts {
    /// Counts a new connection.
    pub fn new(counters: Arc<Counters>) -> Counts {
        counters.http2_connections.add(1);
        counters.http2_connections_now.add(1);
        Counts {
            counters,
            open: 0,
            stalled: 0,
            begun: 0,
            resets_sent: 0,
            is_shutting_down: false,
        }
    }

    /// Adds the changes since the last call; `begun` is the number of requests so far, and `stalled` that of streams that
    /// wait for a window.
    pub fn update(&mut self, server: &Server, begun: u64, stalled: u64) {
        let counters = &self.counters;
        let open = server.open_streams() as u64;
        if open != self.open {
            counters.http2_streams_now.add(open);
            counters.http2_streams_now.sub(self.open);
            self.open = open;
        }
        if stalled != self.stalled {
            counters.http2_streams_stalled_now.add(stalled);
            counters.http2_streams_stalled_now.sub(self.stalled);
            self.stalled = stalled;
        }
        counters.http2_streams.add(begun - self.begun);
        self.begun = begun;
        let resets_sent = server.resets_sent();
        counters
            .http2_resets_sent
            .add(resets_sent - self.resets_sent);
        self.resets_sent = resets_sent;
        if server.is_shutting_down() && !self.is_shutting_down {
            counters.http2_goaways.add(1);
            self.is_shutting_down = true;
        }
    }

    /// Counts the violation that ends the connection, unless it is a timeout, which is counted as such.
    pub fn failed(&self, violation: &Violation) {
        let counters = &self.counters;
        match violation.code() {
            ErrorCode::ENHANCE_YOUR_CALM => counters.http2_failed_excess.add(1),
            _ => counters.http2_failed_protocol.add(1),
        }
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        self.counters.http2_connections_now.sub(1);
        self.counters.http2_streams_now.sub(self.open);
        self.counters.http2_streams_stalled_now.sub(self.stalled);
    }
}
