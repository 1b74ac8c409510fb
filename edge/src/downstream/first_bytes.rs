//! Waits for the bytes that come before a connection's protocol is known: the header of the PROXY protocol, and the
//! preface of HTTP/2.

use std::task::{Context, Poll};

use super::connection::Connection;

/// Largest input buffer, in bytes. The longest header of the PROXY protocol has about 4 KiB.
const INPUT_MAX: usize = 16 << 10;

/// The time within which the first bytes have to arrive.
#[derive(Default)]
pub(super) struct FirstBytes {
    has_deadline: bool,
}

/// The result of waiting for input.
pub(super) enum Arrival {
    /// More input has arrived.
    More,
    /// The client has closed its direction, or the connection is broken.
    End,
    /// The connection must be closed: the client is too late, the worker drains, or others need room.
    Late,
}

impl FirstBytes {
    /// Waits until more input has arrived.
    pub(super) fn poll_more(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Poll<Arrival> {
        let worker = connection.worker.clone();
        worker.watch(connection.slot, cx);
        if worker.is_cut() {
            connection.transport.reset_on_drop();
            return Poll::Ready(Arrival::Late);
        }
        if connection.is_full() {
            // A small buffer, which had room for the beginning.
            connection.grow_buffer(INPUT_MAX);
        }
        match connection.poll_fill(cx) {
            Poll::Ready(Ok(n)) if n > 0 => return Poll::Ready(Arrival::More),
            Poll::Ready(_) => return Poll::Ready(Arrival::End),
            Poll::Pending => {}
        }
        let is_partial = !connection.input().is_empty();
        let is_late = self.has_deadline && worker.deadlines.expired(connection.slot);
        if is_late || (worker.is_draining() && !is_partial) {
            // The first bytes may have arrived in this moment, like a request on an idle connection.
            if connection.fill_now() {
                return Poll::Ready(Arrival::More);
            }
            worker.counters.client_timeouts.add(u64::from(is_partial));
            return Poll::Ready(Arrival::Late);
        }
        if !std::mem::replace(&mut self.has_deadline, true) {
            let time = worker.serving().options.header_timeout;
            worker.deadlines.set_in(connection.slot, time, true);
        }
        connection.shrink_buffer();
        Poll::Pending
    }
}
