//! Starts the protocol of a new connection. Only this file chooses which protocol a connection
//! uses.

use std::sync::Arc;

use crate::tls::CHALLENGE_PROTOCOL;

use super::connection::Connection;
use super::connection_setup::ConnectionSetup;
use super::http1::Http1;
use super::http2::Http2;
use super::lingering;
use super::preface;
use super::protocol_list::{Protocol, Protocols};
use super::proxy_preamble;
use super::tls_handshake;

/// Serves a new connection in its own task, unless the client has too many connections or may not
/// send a PROXY protocol header.
pub(super) fn start(mut connection: Connection, setup: &Arc<ConnectionSetup>) {
    let is_http1 = !setup.tls && protocols(&connection, setup).is_http1();
    match &setup.proxy {
        None if !connection.count_client() => {}
        None if is_http1 => speak(Protocol::Http1, true, connection),
        Some(proxy) if !proxy_preamble::is_trusted(&connection, proxy) => {}
        _ => {
            tokio::task::spawn_local(prepare(connection, setup.clone()));
        }
    }
}

/// Reads what comes before the connection's protocol: a PROXY protocol header, the TLS handshake, and the bytes that
/// show which protocol it is.
async fn prepare(mut connection: Connection, setup: Arc<ConnectionSetup>) {
    if let Some(proxy) = &setup.proxy {
        connection = match proxy_preamble::read(connection, proxy).await {
            Some(connection) => connection,
            None => return,
        };
    }
    if setup.tls {
        connection = match tls_handshake::run(connection, setup.listener).await {
            Some(connection) => connection,
            None => return,
        };
        if has_verified(&mut connection) {
            return lingering::close(connection).await;
        }
    }
    let protocols = protocols(&connection, &setup);
    let known = match setup.tls {
        true => negotiated(&mut connection, protocols),
        false => protocols.is_http1().then_some(Protocol::Http1),
    };
    let protocol = match known {
        Some(protocol) => protocol,
        None => match preface::is_sent(&mut connection).await {
            Some(true) => Protocol::Http2,
            Some(false) => Protocol::Http1,
            None => return,
        },
    };
    speak(protocol, protocols.has(protocol), connection);
}

/// Whether the handshake was all that an authority wanted: it verified that this server has a name (RFC 8737 3).
fn has_verified(connection: &mut Connection) -> bool {
    let tls = connection.transport.tls();
    tls.is_some_and(|tls| tls.session().alpn_protocol() == Some(CHALLENGE_PROTOCOL))
}

/// Returns the protocols of a connection's listener.
fn protocols(connection: &Connection, setup: &ConnectionSetup) -> Protocols {
    connection.worker.serving().protocols(setup.listener)
}

/// Returns the protocol that the TLS handshake chose (ALPN). A client that offers no protocol speaks HTTP/1.1; `None`: the
/// listener has only HTTP/2, so the first bytes show whether such a client knows that. The cipher suites of TLS 1.2 are all
/// permitted for HTTP/2 (RFC 9113 9.2.2), since Sluice has no others.
fn negotiated(connection: &mut Connection, protocols: Protocols) -> Option<Protocol> {
    let tls = connection.transport.tls();
    let chosen = tls.and_then(|tls| Protocol::named(tls.session().alpn_protocol()?));
    let unnamed = protocols.has(Protocol::Http1).then_some(Protocol::Http1);
    chosen.or(unnamed)
}

/// Starts the task of the connection's protocol, which begins with the input that has been read. `is_served`: the listener
/// has the protocol.
fn speak(protocol: Protocol, is_served: bool, connection: Connection) {
    match protocol {
        Protocol::Http1 => tokio::task::spawn_local(Http1::new(connection, is_served)),
        Protocol::Http2 => tokio::task::spawn_local(Http2::new(connection)),
    };
}
