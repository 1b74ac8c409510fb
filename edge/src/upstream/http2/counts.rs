//! Counts a connection and its streams among the numbers of its server.

use std::rc::Rc;

use crate::upstream::permit::Gauges;

/// The part of a connection's numbers that is in the counters of its server. Dropping it takes the connection out of the
/// gauges.
pub(super) struct Counts {
    gauges: Rc<Gauges>,
    open: u64,
    is_going_away: bool,
}

impl Counts {
    /// Counts a new connection.
    pub(super) fn new(gauges: Rc<Gauges>) -> Counts {
        gauges.server.http2_connections.add(1);
        Counts {
            gauges,
            open: 0,
            is_going_away: false,
        }
    }

    /// Takes over the number of open streams.
    pub(super) fn set_open(&mut self, open: usize) {
        let (open, streams) = (open as u64, &self.gauges.server.http2_streams);
        if open != self.open {
            streams.add(open);
            streams.sub(self.open);
            self.open = open;
        }
    }

    /// Counts a request that the server has not processed, as it says itself.
    pub(super) fn refused(&self) {
        self.gauges.server.http2_streams_refused.add(1);
    }

    /// Counts a stream that the server has reset for another reason.
    pub(super) fn reset(&self) {
        self.gauges.server.http2_resets_received.add(1);
    }

    /// Counts that the server ends the connection. It may say so several times.
    pub(super) fn go_away(&mut self) {
        if !std::mem::replace(&mut self.is_going_away, true) {
            self.gauges.server.http2_goaways.add(1);
        }
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        self.set_open(0);
        self.gauges.server.http2_connections.sub(1);
    }
}
