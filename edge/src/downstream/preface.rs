//! Waits for the first bytes of a connection in clear text, which show whether the client speaks HTTP/2: its connections
//! begin with a preface that no request of HTTP/1 begins with (RFC 9113 3.4).

use std::future::poll_fn;

use crate::http2::PREFACE;

use super::connection::Connection;
use super::first_bytes::{Arrival, FirstBytes};

/// Returns whether the client has sent the preface of HTTP/2, which stays in the input like all other bytes. `None`: the
/// connection must be closed.
pub(super) async fn is_sent(connection: &mut Connection) -> Option<bool> {
    let mut first_bytes = FirstBytes::default();
    loop {
        if let Some(decided) = begins_with_preface(connection.input()) {
            return Some(decided);
        }
        match poll_fn(|cx| first_bytes.poll_more(connection, cx)).await {
            Arrival::More => {}
            Arrival::End => return end(connection),
            Arrival::Late => return None,
        }
    }
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
