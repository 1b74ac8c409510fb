//! Reads the PROXY protocol header at the start of a connection, before the first byte of the
//! protocol itself.

use std::future::poll_fn;

use super::connection::Connection;
use super::first_bytes::{Arrival, FirstBytes};
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
    let header = read_header(&mut connection, proxy).await?;
    apply(&mut connection, header).then_some(connection)
}

async fn read_header(connection: &mut Connection, proxy: &ProxyProtocol) -> Option<Header> {
    let mut first_bytes = FirstBytes::default();
    loop {
        if !connection.input().is_empty() {
            match proxy_protocol::parse(connection.input(), proxy.versions) {
                Ok(Some(header)) => return Some(header),
                Ok(None) => {}
                Err(_) => {
                    connection.worker.counters.connections_not_introduced.add(1);
                    return None;
                }
            }
        }
        match poll_fn(|cx| first_bytes.poll_more(connection, cx)).await {
            Arrival::More => {}
            Arrival::End | Arrival::Late => return None,
        }
    }
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
