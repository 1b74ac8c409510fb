//! Starts the protocol of a new connection. Only this file chooses which protocol a connection
//! uses.

use std::sync::Arc;

use super::connection::Connection;
use super::connection_setup::{ConnectionSetup, Protocol};
use super::http1::Http1;
use super::proxy_preamble;

/// Serves a new connection in its own task, unless the client has too many connections or may not
/// send a PROXY protocol header.
pub(super) fn start(mut connection: Connection, setup: &Arc<ConnectionSetup>) {
    let Some(proxy) = &setup.proxy else {
        if connection.count_client() {
            speak(setup.protocol, connection);
        }
        return;
    };
    if !proxy_preamble::is_trusted(&connection, proxy) {
        return;
    }
    let setup = setup.clone();
    tokio::task::spawn_local(async move {
        if let Some(proxy) = &setup.proxy
            && let Some(connection) = proxy_preamble::read(connection, proxy).await
        {
            speak(setup.protocol, connection);
        }
    });
}

/// Starts the task of the connection's protocol, which begins with the input that has been read.
fn speak(protocol: Protocol, connection: Connection) {
    match protocol {
        Protocol::Http1 => tokio::task::spawn_local(Http1::new(connection)),
    };
}
