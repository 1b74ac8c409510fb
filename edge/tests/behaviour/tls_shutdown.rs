//! The graceful shutdown while clients make TLS handshakes.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use sluice_lab::client::{Client, ClientOptions, Closing};

use crate::harness::{Edge, SOON, Setup, eventually, fresh, serving, setup};

/// Limits that no test waits for.
const PATIENT: &str =
    "handshake_timeout = \"1h\"\nheader_timeout = \"1h\"\nshutdown_timeout = \"1h\"";

fn edge() -> Edge {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin)
        .encrypted()
        .workers(1)
        .limits(PATIENT)
        .start();
    assert_eq!(edge.get("/x", &[]).status, 200);
    std::mem::forget(origin);
    edge
}

/// Opens a connection without sending anything.
fn silent(edge: &Edge) -> Client {
    let options = ClientOptions {
        in_clear_text: true,
        ..ClientOptions::default()
    };
    Client::connect_with(edge.http, &options).expect("the program accepts")
}

fn wait_until_draining(edge: &Edge) {
    eventually("new connections are refused", || {
        TcpStream::connect(edge.http).is_err()
    });
}

#[test]
fn a_silent_connection_does_not_delay_the_shutdown() {
    let mut edge = edge();
    let mut client = silent(&edge);
    eventually("the connection is accepted", || {
        edge.counter("tls_handshakes_now") == 1
    });
    edge.signal(Signal::TERM);
    assert_eq!(client.wait_closed(SOON).expect("a socket"), Closing::Fin);
    assert!(edge.wait_exit().success());
}

#[test]
fn a_connection_without_a_request_delays_the_shutdown_only_briefly() {
    let mut edge = edge();
    let mut client = edge.client();
    client.handshake().expect("a handshake");
    // The last message of the handshake is sent with the next write.
    client.send_raw(b"").expect("sent");
    eventually("the handshake is complete", || {
        edge.counter("tls_handshakes") + edge.counter("tls_resumed") == 2
    });
    edge.signal(Signal::TERM);
    assert!(edge.wait_exit().success());
    assert_eq!(client.wait_closed(SOON).expect("a socket"), Closing::Fin);
}

#[test]
fn a_request_after_a_handshake_during_the_shutdown_is_answered() {
    let mut edge = edge();
    let tls = setup::tls();
    let name = ServerName::try_from(tls.name.clone()).expect("a name");
    let mut session = ClientConnection::new(tls.config, name).expect("a session");
    let mut socket = TcpStream::connect(edge.http).expect("accepted");
    socket.set_nodelay(true).expect("set");
    socket.set_read_timeout(Some(SOON)).expect("set");
    session.write_tls(&mut socket).expect("sent");
    while session.is_handshaking() {
        assert!(session.read_tls(&mut socket).expect("read") > 0);
        session.process_new_packets().expect("valid records");
    }
    edge.signal(Signal::TERM);
    wait_until_draining(&edge);
    while session.wants_write() {
        session.write_tls(&mut socket).expect("sent");
    }
    // Sluice sends tickets when it has the client's last message and waits for a request.
    while session.tls13_tickets_received() == 0 {
        assert!(session.read_tls(&mut socket).expect("read") > 0);
        session.process_new_packets().expect("valid records");
    }
    let mut stream = rustls::StreamOwned::new(session, socket);
    let request = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(request).expect("sent");
    let mut reply = Vec::new();
    stream
        .read_to_end(&mut reply)
        .expect("a reply and close_notify");
    let reply = String::from_utf8_lossy(&reply).to_ascii_lowercase();
    assert!(reply.starts_with("http/1.1 200"), "{reply}");
    assert!(reply.contains("connection: close\r\n"), "{reply}");
    assert!(edge.wait_exit().success());
}
