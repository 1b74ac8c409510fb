//! What stands before a connection's first request where a load balancer introduces its client.

use std::task::{Context, Poll};

use crate::downstream::proxy_protocol::{self, Header};

use super::connection::{Connection, WaitsFor};
use super::exchange::Next;

impl Connection {
    /// Reads who the client is. What comes instead of that is not answered: it is not known what it
    /// speaks.
    #[cold]
    pub(super) fn introduce(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        let Some(proxy) = self.setup.as_ref().and_then(|door| door.proxy.as_ref()) else {
            return self.introduced();
        };
        loop {
            if !self.wire.input().is_empty() {
                match proxy_protocol::parse(self.wire.input(), proxy.versions) {
                    Ok(Some(header)) => return self.take_up(header),
                    Ok(None) => {}
                    Err(_) => return self.not_introduced(),
                }
            }
            match self.wire.poll_fill(cx) {
                Poll::Ready(Ok(n)) if n > 0 => {}
                Poll::Ready(_) => return Poll::Ready(Next::Close),
                Poll::Pending => return self.await_introduction(),
            }
        }
    }

    fn await_introduction(&mut self) -> Poll<Next> {
        let worker = &self.wire.worker;
        let nothing_came = self.wire.input().is_empty();
        if worker.is_draining() && nothing_came {
            return Poll::Ready(Next::Close);
        }
        if self.waits_for == WaitsFor::Nothing {
            self.waits_for = WaitsFor::Introduction;
            let time = worker.serving().options.header_timeout;
            worker.deadlines.set_in(self.wire.slot, time, true);
        } else if worker.deadlines.expired(self.wire.slot) {
            worker.counters.client_timeouts.add(1);
            return Poll::Ready(Next::Close);
        }
        Poll::Pending
    }

    /// From here on it is the client's connection, and counts as one of the client's.
    fn take_up(&mut self, header: Header) -> Poll<Next> {
        self.wire.used(header.length);
        if let Some(ends) = header.ends {
            let peer = &mut self.wire.peer;
            peer.address = ends.source;
            peer.client = ends.source.ip().to_canonical();
            peer.local = ends.destination;
            if !self.wire.enter() {
                return Poll::Ready(Next::Close);
            }
        }
        self.introduced()
    }

    fn introduced(&mut self) -> Poll<Next> {
        self.setup = None;
        self.waits_for = WaitsFor::Nothing;
        Poll::Ready(Next::Request)
    }

    fn not_introduced(&mut self) -> Poll<Next> {
        self.wire.worker.counters.connections_not_introduced.add(1);
        Poll::Ready(Next::Close)
    }
}
