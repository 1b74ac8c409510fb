//! Starts the protocol of a new connection. Only this file chooses which protocol a connection
//! uses.

use std::sync::Arc;

use super::connection::Connection;
use super::connection_setup::{ConnectionSetup, Protocol};
use super::http1::Http1;
use super::http2::Http2;
use super::proxy_preamble;
use super::tls_handshake;

/// Serves a new connection in its own task, unless the client has too many connections or may not
/// send a PROXY protocol header.
pub(super) fn start(mut connection: Connection, setup: &Arc<ConnectionSetup>) {
    match &setup.proxy {
        None if !connection.count_client() => {}
        None if setup.tls.is_none() => speak(setup.protocol, connection),
        Some(proxy) if !proxy_preamble::is_trusted(&connection, proxy) => {}
        _ => {
            tokio::task::spawn_local(prepare(connection, setup.clone()));
        }
    }
}

/// Reads what comes before the connection's protocol: a PROXY protocol header, and the TLS handshake.
async fn prepare(mut connection: Connection, setup: Arc<ConnectionSetup>) {
    if let Some(proxy) = &setup.proxy {
        connection = match proxy_preamble::read(connection, proxy).await {
            Some(connection) => connection,
            None => return,
        };
    }
    if let Some(listener) = setup.tls {
        connection = match tls_handshake::run(connection, listener).await {
            Some(connection) => connection,
            None => return,
        };
    }
    speak(setup.protocol, connection);
}

/// Starts the task of the connection's protocol, which begins with the input that has been read.
fn speak(protocol: Protocol, connection: Connection) {
    match protocol {
        Protocol::Http1 => tokio::task::spawn_local(Http1::new(connection)),
        Protocol::Http2 => tokio::task::spawn_local(Http2::new(connection)),
    };
}
