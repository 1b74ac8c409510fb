//! The end of a connection whose client may still be sending: input is read and discarded for a while, since closing the
//! connection with unread bytes resets it, which may destroy the last bytes that were written (RFC 9112 9.6).

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use super::connection::Connection;

/// Longest time that a client may go on sending after the server has closed its direction of the
/// connection.
pub(super) const LINGER: Duration = Duration::from_secs(2);
/// Most bytes that are read only to be discarded.
pub(super) const DISCARD_BYTES_MAX: u64 = 256 << 10;

/// Closes the outgoing direction, and waits for the end of the client's, within limits of time and bytes.
pub(super) async fn close(mut connection: Connection) {
    connection.transport.shutdown_write();
    let (slot, mut left) = (connection.slot, DISCARD_BYTES_MAX);
    connection.worker.deadlines.set_in(slot, LINGER, true);
    poll_fn(|cx| {
        connection.worker.watch(slot, cx);
        let worker = connection.worker.clone();
        match poll_discard(&mut connection, &mut left, cx) {
            Poll::Pending if !worker.is_cut() && !worker.deadlines.expired(slot) => Poll::Pending,
            _ => Poll::Ready(()),
        }
    })
    .await;
}

/// Discards input. Ready at its end, or when `left` more bytes have been discarded.
pub(super) fn poll_discard(
    connection: &mut Connection,
    left: &mut u64,
    cx: &mut Context<'_>,
) -> Poll<()> {
    loop {
        let n = connection.input().len();
        connection.consume(n);
        *left = left.saturating_sub(n as u64);
        if *left == 0 {
            return Poll::Ready(());
        }
        match connection.poll_fill(cx) {
            Poll::Ready(Ok(n)) if n > 0 => {}
            Poll::Ready(_) => return Poll::Ready(()),
            Poll::Pending => return Poll::Pending,
        }
    }
}
