//! Reads the PROXY protocol header at the start of a connection, before the first byte of the
//! protocol itself.

use std::future::poll_fn;
use std::task::{Context, Poll};

use super::connection::Connection;
use super::proxy_protocol::{self, Header, ProxyProtocol};

/// Whether the other end of the connection may send a PROXY protocol header. Counts a refusal.
pub(super) fn is_trusted(connection: &Connection, proxy: &ProxyProtocol) -> bool {
    let address = connection.peer.client;
    let trusted = proxy.trusted.iter().any(|from| from.contains(address));
    let counters = &connection.worker.counters;
    counters.connections_not_introduced.add(u64::from(!trusted));
    trusted
}

/// Reads the header and applies the addresses in it. Returns `None` if the connection must be
/// closed. Bytes other than a header get no response, since their protocol is unknown.
pub(super) async fn read(mut connection: Connection, proxy: &ProxyProtocol) -> Option<Connection> {
    let mut has_deadline = false;
    let header = poll_fn(|cx| poll_header(&mut connection, proxy, &mut has_deadline, cx)).await?;
    apply(&mut connection, header).then_some(connection)
}

fn poll_header(
    connection: &mut Connection,
    proxy: &ProxyProtocol,
    has_deadline: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<Option<Header>> {
    connection.worker.watch(connection.slot, cx);
    if connection.worker.is_cut() {
        connection.transport.reset_on_drop();
        return Poll::Ready(None);
    }
    loop {
        if !connection.input().is_empty() {
            match proxy_protocol::parse(connection.input(), proxy.versions) {
                Ok(Some(header)) => return Poll::Ready(Some(header)),
                Ok(None) => {}
                Err(_) => {
                    connection.worker.counters.connections_not_introduced.add(1);
                    return Poll::Ready(None);
                }
            }
        }
        match connection.poll_fill(cx) {
            Poll::Ready(Ok(n)) if n > 0 => {}
            Poll::Ready(_) => return Poll::Ready(None),
            Poll::Pending => break,
        }
    }
    let worker = &connection.worker;
    if worker.is_draining() && connection.input().is_empty() {
        return Poll::Ready(None);
    }
    if !std::mem::replace(has_deadline, true) {
        let time = worker.serving().options.header_timeout;
        worker.deadlines.set_in(connection.slot, time, true);
    } else if worker.deadlines.expired(connection.slot) {
        worker.counters.client_timeouts.add(1);
        return Poll::Ready(None);
    }
    Poll::Pending
}

/// Sets the connection's addresses to those in the header, and counts the connection as that
/// client's. Returns false if the client has too many connections.
fn apply(connection: &mut Connection, header: Header) -> bool {
    connection.consume(header.length);
    let Some(ends) = header.ends else { return true };
    let peer = &mut connection.peer;
    peer.address = ends.source.into();
    peer.client = ends.source.ip().to_canonical();
    peer.local = ends.destination.into();
    connection.count_client()
}
