//! Waits for the first bytes of a connection in clear text, which show whether the client speaks HTTP/2: its connections
//! begin with a preface that no request of HTTP/1 begins with (RFC 9113 3.4).

use std::future::poll_fn;
use std::task::{Context, Poll};

use crate::http2::PREFACE;

use super::connection::Connection;

/// Returns whether the client has sent the preface of HTTP/2, which stays in the input like all other bytes. `None`: the
/// connection must be closed.
pub(super) async fn is_sent(connection: &mut Connection) -> Option<bool> {
    let mut has_deadline = false;
    poll_fn(|cx| poll(connection, &mut has_deadline, cx)).await
}

fn poll(
    connection: &mut Connection,
    has_deadline: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<Option<bool>> {
    let worker = connection.worker.clone();
    worker.watch(connection.slot, cx);
    if worker.is_cut() {
        connection.transport.reset_on_drop();
        return Poll::Ready(None);
    }
    loop {
        if let Some(decided) = begins_with_preface(connection.input()) {
            return Poll::Ready(Some(decided));
        }
        match connection.poll_fill(cx) {
            Poll::Ready(Ok(n)) if n > 0 => {}
            Poll::Ready(_) => return Poll::Ready(end(connection)),
            Poll::Pending => break,
        }
    }
    if worker.is_draining() && connection.input().is_empty() {
        // The first bytes may have arrived in this moment, like a request on an idle connection.
        return match connection.fill_now() {
            true => poll(connection, has_deadline, cx),
            false => Poll::Ready(None),
        };
    }
    if !std::mem::replace(has_deadline, true) {
        let time = worker.serving().options.header_timeout;
        worker.deadlines.set_in(connection.slot, time, true);
    } else if worker.deadlines.expired(connection.slot) {
        let is_partial = !connection.input().is_empty();
        worker.counters.client_timeouts.add(u64::from(is_partial));
        return Poll::Ready(None);
    }
    connection.shrink_buffer();
    Poll::Pending
}

/// Returns whether the input begins with the preface; `None` if that is not known yet.
fn begins_with_preface(input: &[u8]) -> Option<bool> {
    let length = input.len().min(PREFACE.len());
    match input[..length] == PREFACE[..length] {
        false => Some(false),
        true => (length == PREFACE.len()).then_some(true),
    }
}

/// Returns the result at the end of the client's direction: a part of the preface is a request line that was cut short.
fn end(connection: &Connection) -> Option<bool> {
    (!connection.input().is_empty()).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_differs_decides() {
        for (input, decided) in [
            (&b""[..], None),
            (b"P", None),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", None),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some(true)),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0", Some(true)),
            (b"PUT / HTTP/1.1\r\n", Some(false)),
            (b"PRI * HTTP/1.1\r\n", Some(false)),
            (b"\r\n", Some(false)),
            (b"GET", Some(false)),
        ] {
            assert_eq!(begins_with_preface(input), decided, "{input:?}");
        }
    }
}
