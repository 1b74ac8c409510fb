//! TLS with clients that are old, slow, broken or hostile.

use std::net::IpAddr;
use std::time::Duration;

use rustls::ContentType;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::{TLS12, TLS13};
use sluice_lab::client::{self, Client, ClientOptions, Closing};
use sluice_lab::raw_tls::{self, RawTls};

use crate::harness::{Edge, SOON, Setup, eventually, fresh, serving};

/// The content of an alert that both versions permit as a warning: `user_canceled` (RFC 8446 6.1).
const WARNING: &[u8] = &[1, 90];

/// Starts an edge with TLS and these limits, whose messages name the reasons of failed handshakes. No handshake takes too
/// long, unless the limits say otherwise.
fn edge(limits: &str) -> Edge {
    let origin = serving("/x", fresh(1000));
    let setup = match limits.contains("handshake_timeout") {
        true => Setup::cached(&origin),
        false => Setup::cached(&origin).limits("handshake_timeout = \"1h\""),
    };
    let edge = setup
        .encrypted()
        .workers(1)
        .limits(limits)
        .level("debug")
        .start();
    std::mem::forget(origin);
    edge
}

/// Opens a connection on which the test sends bytes of its own.
fn raw(edge: &Edge, source: Option<&str>) -> Client {
    let options = ClientOptions {
        source: source.map(|ip| ip.parse::<IpAddr>().expect("an address")),
        in_clear_text: true,
        ..ClientOptions::default()
    };
    Client::connect_with(edge.http, &options).expect("the program accepts")
}

/// Returns a ClientHello of this version with one cipher suite and these extensions.
fn hello(version: [u8; 2], extensions: &[u8]) -> Vec<u8> {
    let mut body = version.to_vec();
    body.extend([7; 32]);
    body.push(0);
    body.extend([0, 4, 0xc0, 0x2b, 0x00, 0x2f]);
    body.extend([1, 0]);
    if !extensions.is_empty() {
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
    }
    let mut message = vec![1, 0];
    message.extend((body.len() as u16).to_be_bytes());
    message.extend(body);
    let mut record = vec![22, 3, 1];
    record.extend((message.len() as u16).to_be_bytes());
    record.extend(message);
    record
}

/// Waits until the messages name this reason.
fn wait_for_reason(edge: &Edge, reason: &str) {
    eventually(reason, || edge.process.stderr().contains(reason));
}

#[test]
fn old_versions_are_refused_with_an_alert_and_a_named_reason() {
    let edge = edge("");
    // Signature algorithms, which TLS 1.0 clients may send, too: ecdsa_secp256r1_sha256.
    let signatures = [0, 13, 0, 4, 0, 2, 4, 3];
    for extensions in [&signatures[..], &[]] {
        let mut client = raw(&edge, None);
        client.send_raw(&hello([3, 1], extensions)).expect("sent");
        let answer = client.read_to_end().expect("an alert");
        assert_eq!(answer.first(), Some(&21), "{answer:?}");
        assert_eq!(answer.get(5), Some(&2), "a fatal alert: {answer:?}");
    }
    wait_for_reason(&edge, "tls-version");
    assert_eq!(edge.counter("tls_handshakes_failed"), 2);
    assert_eq!(edge.counter("tls_failed_version"), 2);
}

#[test]
fn a_connection_that_is_closed_before_its_first_byte_is_not_a_failed_handshake() {
    let edge = edge("");
    for _ in 0..3 {
        raw(&edge, None).finish_sending().expect("closed");
    }
    let mut begun = raw(&edge, None);
    begun.send_raw(&hello([3, 3], &[])[..20]).expect("sent");
    begun.finish_sending().expect("closed");
    eventually("all connections have ended", || {
        edge.counter("connections_accepted") == 4 && edge.counter("connections_now") == 0
    });
    assert_eq!(edge.counter("tls_handshakes_failed"), 1);
    assert_eq!(edge.counter("tls_failed_closed"), 1);
}

#[test]
fn a_handshake_that_makes_room_for_another_connection_is_not_late() {
    let edge = edge("connections = 1\nhandshakes = 0");
    let mut first = raw(&edge, None);
    first.send_raw(&hello([3, 3], &[])[..20]).expect("sent");
    eventually("the handshake has begun", || {
        edge.counter("tls_handshakes_now") == 1
    });
    // Sluice has read the bytes, so that the message names the reason.
    eventually("the bytes are counted", || {
        edge.counter("tls_memory_now") == 20
    });
    assert_eq!(edge.get("/x", &[]).status, 200);
    assert_eq!(first.read_to_end().expect("closed"), b"");
    wait_for_reason(&edge, "tls-evicted");
    assert_eq!(edge.counter("tls_failed_evicted"), 1);
    assert_eq!(edge.counter("tls_handshakes_late"), 0);
}

// Closing the connection with unread bytes would reset it, which may destroy the response.
#[test]
fn a_long_request_in_clear_text_is_answered_with_the_reason() {
    let edge = edge("");
    for _ in 0..10 {
        let mut client = raw(&edge, None);
        let padding = "x".repeat(60_000);
        let request = format!("GET /x HTTP/1.1\r\nHost: a\r\nPadding: {padding}\r\n\r\n");
        client.send_raw(request.as_bytes()).expect("sent");
        let reply = client.read_response().expect("a reply");
        assert_eq!(reply.status, 400);
        client.finish_sending().expect("closed");
        assert_eq!(client.wait_closed(SOON).expect("a socket"), Closing::Fin);
    }
    assert_eq!(edge.counter("tls_failed_not_tls"), 10);
}

#[test]
fn a_client_that_begins_no_handshake_is_cut_after_the_timeout() {
    let edge = edge("handshake_timeout = \"1s\"");
    let mut silent = raw(&edge, None);
    let mut half = raw(&edge, None);
    half.send_raw(&hello([3, 3], &[])[..20]).expect("sent");
    assert_eq!(silent.read_to_end().expect("the end"), b"");
    // If Sluice has not read the bytes by the end of the timeout, it resets the connection.
    assert!(!matches!(half.read_to_end(), Ok(bytes) if !bytes.is_empty()));
    eventually("both are counted", || {
        edge.counter("tls_handshakes_late") == 2
    });
    assert_eq!(edge.counter("tls_handshakes_now"), 0);
    // The timeout is short, so on a busy machine it may also end the handshake of a well-behaved client.
    eventually("a response", || {
        client::get(edge.http, "/x", &[]).is_ok_and(|reply| reply.status == 200)
    });
}

#[test]
fn the_oldest_handshake_makes_room_for_new_clients() {
    let edge = edge("handshakes = 3\nhandshakes_per_ip = 2");
    let begin = |source: &str| {
        let mut client = raw(&edge, Some(source));
        client.send_raw(&hello([3, 3], &[])[..20]).expect("sent");
        client
    };
    let running = |count: u64| {
        eventually("handshakes", || edge.counter("tls_handshakes_now") == count);
    };
    let mut first = begin("127.0.0.2");
    running(1);
    let _second = begin("127.0.0.2");
    running(2);
    let mut over = begin("127.0.0.2");
    // The connection is closed with unread bytes, so it may be reset.
    assert!(!matches!(over.read_to_end(), Ok(bytes) if !bytes.is_empty()));
    assert_eq!(edge.counter("tls_handshakes_over_ip"), 1);
    let _third = begin("127.0.0.3");
    running(3);
    assert_eq!(edge.get("/x", &[]).status, 200);
    assert_eq!(first.read_to_end().expect("cut"), b"");
    assert_eq!(edge.counter("tls_handshakes_cut"), 1);
    wait_for_reason(&edge, "tls-cut");
    assert_eq!(edge.counter("tls_handshakes_late"), 0);
}

#[test]
fn a_burst_of_handshakes_stays_within_the_limit() {
    let edge = edge("handshakes = 3\nhandshakes_per_ip = 0");
    let open: Vec<Client> = (0..40).map(|_| raw(&edge, None)).collect();
    eventually("all but three are cut", || {
        edge.counter("tls_handshakes_cut") == 37 && edge.counter("tls_handshakes_now") == 3
    });
    drop(open);
}

#[test]
fn an_unknown_protocol_is_refused() {
    let edge = edge("");
    let mut tls = crate::harness::setup::tls();
    let mut config = (*tls.config).clone();
    config.alpn_protocols = vec![b"spdy/1".to_vec()];
    tls.config = config.into();
    let options = ClientOptions {
        tls: Some(tls),
        ..ClientOptions::default()
    };
    let mut client = Client::connect_with(edge.http, &options).expect("accepted");
    let error = client.handshake().expect_err("refused").to_string();
    assert!(error.contains("NoApplicationProtocol"), "{error}");
    wait_for_reason(&edge, "tls-protocol");
}

/// Returns the first message of a client whose SNI is `name`, which may be no name.
fn hello_for(name: &[u8]) -> Vec<u8> {
    let stand_in = "n".repeat(name.len());
    let tls = crate::harness::setup::tls();
    let server = rustls::pki_types::ServerName::try_from(stand_in.clone()).expect("a name");
    let mut session = rustls::ClientConnection::new(tls.config, server).expect("a session");
    let mut bytes = Vec::new();
    session.write_tls(&mut bytes).expect("a buffer");
    let at = bytes
        .windows(name.len())
        .position(|part| part == stand_in.as_bytes())
        .expect("the name is not encrypted");
    bytes[at..][..name.len()].copy_from_slice(name);
    bytes
}

#[test]
fn a_name_that_is_an_address_counts_as_none_and_another_text_is_refused() {
    const ALERT: u8 = 21;
    const HANDSHAKE: u8 = 22;
    let origin = serving("/x", fresh(1000));
    let setup = Setup::cached(&origin).encrypted().workers(1).level("debug");
    let edge = setup.tables("[tls]\nunknown_name = \"refuse\"\n").start();
    for (name, expected) in [
        (&b"localhost"[..], HANDSHAKE),
        (b"LocalHost", HANDSHAKE),
        (b"127.0.0.1", HANDSHAKE),
        (b"other.example", ALERT),
        (b"a b", ALERT),
        (b"..", ALERT),
        (b"a\0b", ALERT),
        (b"\xff\xfe", ALERT),
    ] {
        let mut client = raw(&edge, None);
        client.send_raw(&hello_for(name)).expect("sent");
        let answer = client.read_some(1).expect("an answer");
        let shown = name.escape_ascii();
        assert_eq!(answer.first(), Some(&expected), "{shown}: {answer:?}");
    }
    wait_for_reason(&edge, "tls-unknown-name");
    wait_for_reason(&edge, "tls-malformed");
    assert_eq!(edge.get("/x", &[]).status, 200);
}

#[test]
fn damaged_and_truncated_handshakes_harm_nobody() {
    let edge = edge("");
    let signatures = [0, 13, 0, 4, 0, 2, 4, 3];
    let good = hello([3, 3], &signatures);
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x80;
        let mut client = raw(&edge, None);
        // Sluice may have closed the connection before all of it is sent.
        let _ = client.send_raw(&bytes);
        let _ = client.finish_sending();
        let _ = client.read_to_end();
        let mut client = raw(&edge, None);
        let _ = client.send_raw(&good[..at]);
        let _ = client.finish_sending();
        let _ = client.read_to_end();
    }
    assert_eq!(edge.get("/x", &[]).status, 200);
    eventually("no handshake is left", || {
        edge.counter("tls_handshakes_now") == 0
    });
    assert_eq!(edge.counter("panics"), 0);
}

#[test]
fn a_handshake_that_arrives_byte_by_byte_is_completed() {
    let edge = edge("");
    let tls = crate::harness::setup::tls();
    let name = rustls::pki_types::ServerName::try_from(tls.name.clone()).expect("a name");
    let mut session = rustls::ClientConnection::new(tls.config.clone(), name).expect("a session");
    let mut wire = raw(&edge, None);
    wire.set_timeout(SOON).expect("set");
    while session.is_handshaking() || session.wants_write() {
        let mut bytes = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut bytes).expect("a buffer");
        }
        for byte in &bytes {
            wire.send_raw(&[*byte]).expect("sent");
        }
        if session.is_handshaking() {
            let answer = wire.read_some(1).expect("an answer");
            session.read_tls(&mut &answer[..]).expect("read");
            session.process_new_packets().expect("valid");
        }
    }
    drop(wire);
    eventually("completed", || edge.counter("tls_handshakes") == 1);
}

#[test]
fn floods_of_empty_records_warnings_and_renegotiation_end_the_connection() {
    let edge = edge("");
    let authority = crate::harness::setup::authority_pem();
    let authority = CertificateDer::from_pem_slice(authority.as_bytes()).expect("a certificate");
    let hello = hello([3, 3], &[0, 13, 0, 4, 0, 2, 4, 3]);
    let handshake = &hello[5..];
    for (version, typ, payload) in [
        (&TLS13, ContentType::ApplicationData, &b""[..]),
        (&TLS12, ContentType::ApplicationData, b""),
        (&TLS13, ContentType::Handshake, handshake),
        (&TLS12, ContentType::Handshake, handshake),
        (&TLS13, ContentType::Alert, WARNING),
        (&TLS12, ContentType::Alert, WARNING),
    ] {
        let config = raw_tls::config(&authority, version);
        let socket = raw_tls::connect(edge.http, None).expect("accepted");
        let mut client = RawTls::handshake(socket, &config, "localhost").expect("a handshake");
        // Sluice may close the connection before all of it is sent.
        if let Err(error) = client.send(&vec![(typ, payload); 1000]) {
            assert_ne!(error.kind(), std::io::ErrorKind::Other, "{error}");
        }
        assert!(client.wait_closed(), "{version:?} {typ:?}");
    }
    eventually("no memory is held", || edge.counter("tls_memory_now") == 0);
    assert_eq!(edge.get("/x", &[]).status, 200);
    assert_eq!(edge.counter("panics"), 0);
}

// A message may not be interrupted by data (RFC 5246 6.2.1, RFC 8446 5.1). The connection then ends without a
// `close_notify`, which would tell the client that the stream is complete.
#[test]
fn the_end_after_an_error_does_not_look_proper() {
    let edge = edge("");
    let authority = crate::harness::setup::authority_pem();
    let authority = CertificateDer::from_pem_slice(authority.as_bytes()).expect("a certificate");
    let config = raw_tls::config(&authority, &TLS12);
    let socket = raw_tls::connect(edge.http, None).expect("accepted");
    let mut client = RawTls::handshake(socket, &config, "localhost").expect("a handshake");
    let records = [
        (ContentType::Handshake, &[1][..]),
        (ContentType::ApplicationData, b"GET / HTTP/1.1\r\n\r\n"),
    ];
    client.send(&records).expect("sent");
    let mut received = Vec::new();
    let _ = std::io::Read::read_to_end(&mut client.socket(), &mut received);
    assert!(received.is_empty(), "{received:?}");
}

// In TLS 1.3, these records are never encrypted (RFC 8446 5).
#[test]
fn a_flood_of_change_cipher_spec_ends_the_connection() {
    use std::io::Write;
    let edge = edge("");
    let authority = crate::harness::setup::authority_pem();
    let authority = CertificateDer::from_pem_slice(authority.as_bytes()).expect("a certificate");
    let config = raw_tls::config(&authority, &TLS13);
    let socket = raw_tls::connect(edge.http, None).expect("accepted");
    let mut client = RawTls::handshake(socket, &config, "localhost").expect("a handshake");
    // Sluice may close the connection before all of it is sent.
    let _ = client.socket().write_all(&[20, 3, 3, 0, 1, 1].repeat(1000));
    assert!(client.wait_closed());
    eventually("no memory is held", || edge.counter("tls_memory_now") == 0);
    assert_eq!(edge.counter("panics"), 0);
}

// Each message asks for one in return, so a client could make Sluice compute keys and send messages without end.
#[test]
fn a_flood_of_key_updates_ends_the_connection() {
    use std::io::Write;
    let edge = edge("");
    let tls = crate::harness::setup::tls();
    let name = rustls::pki_types::ServerName::try_from(tls.name.clone()).expect("a name");
    let mut session = rustls::ClientConnection::new(tls.config, name).expect("a session");
    let mut socket = raw_tls::connect(edge.http, None).expect("accepted");
    while session.is_handshaking() || session.wants_write() {
        session.complete_io(&mut socket).expect("a handshake");
    }
    let mut bytes = Vec::new();
    for _ in 0..1000 {
        session.refresh_traffic_keys().expect("a handshake");
        session.write_tls(&mut bytes).expect("a buffer");
    }
    let _ = socket.write_all(&bytes);
    let mut received = 0;
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = std::io::Read::read(&mut socket, &mut buffer) {
        received += n;
    }
    // At most two tickets, an answer to each of 32 messages, and an alert.
    assert!(received < 4_000, "{received}");
    eventually("no memory is held", || edge.counter("tls_memory_now") == 0);
    assert_eq!(edge.counter("panics"), 0);
}

/// Returns a record with a part of a message of the handshake.
fn handshake_record(payload: &[u8]) -> Vec<u8> {
    let mut record = vec![22, 3, 1];
    record.extend((payload.len() as u16).to_be_bytes());
    record.extend(payload);
    record
}

/// The beginning of a message of this type with a length of 60,000 bytes.
fn long_message(typ: u8) -> Vec<u8> {
    let mut message = vec![typ, 0, 0xea, 0x60];
    message.resize(8_000, 0);
    message
}

#[test]
fn a_first_message_that_never_ends_is_counted_and_cut() {
    let edge = edge("");
    let mut client = raw(&edge, None);
    let part = handshake_record(&long_message(1));
    client.send_raw(&part).expect("sent");
    eventually("counted", || edge.counter("tls_memory_now") >= 8_000);
    client
        .send_raw(&handshake_record(&[0; 8_000]))
        .expect("sent");
    // Sluice has read all bytes when it refuses the message, so the connection is not reset.
    client.send_raw(&handshake_record(&[0; 400])).expect("sent");
    let alert = client.read_to_end().expect("an alert");
    assert_eq!(alert, [21, 3, 3, 0, 2, 2, 47]);
    wait_for_reason(&edge, "tls-malformed");
    eventually("no memory is held", || edge.counter("tls_memory_now") == 0);
}

#[test]
fn a_later_message_that_never_ends_is_counted_and_cut() {
    let edge = edge("");
    let authority = crate::harness::setup::authority_pem();
    let authority = CertificateDer::from_pem_slice(authority.as_bytes()).expect("a certificate");
    let config = raw_tls::config(&authority, &TLS13);
    let socket = raw_tls::connect(edge.http, None).expect("accepted");
    let mut client = RawTls::handshake(socket, &config, "localhost").expect("a handshake");
    // A KeyUpdate.
    let (begin, more) = (long_message(24), [0; 8_000]);
    let send = |client: &mut RawTls, payload: &[u8]| {
        client
            .send(&[(ContentType::Handshake, payload)])
            .expect("sent");
    };
    send(&mut client, &begin);
    eventually("counted", || edge.counter("tls_memory_now") >= 17_000);
    send(&mut client, &more);
    send(&mut client, &more);
    assert!(client.wait_closed());
    eventually("no memory is held", || edge.counter("tls_memory_now") == 0);
}

// rustls enlarges a buffer for a record of 16 KiB, and keeps it until the next read.
#[test]
fn idle_connections_give_back_the_memory_of_large_records() {
    // Enough that memory which the program takes once, such as the pages of histograms, adds little for each.
    const CONNECTIONS: u64 = 1200;
    let edge = edge("keepalive_timeout = \"1h\"");
    let body = vec![b'x'; 32 << 10];
    let begin = || {
        let mut client = edge.client();
        let reply = client.request("POST", "/pass/none", &[], &body);
        assert_eq!(reply.expect("a reply").status, 404);
        client
    };
    let _warm: Vec<Client> = (0..50).map(|_| begin()).collect();
    let before = edge.resident_memory();
    let open: Vec<Client> = (0..CONNECTIONS).map(|_| begin()).collect();
    let counted = 50 + CONNECTIONS;
    eventually("each is counted as idle", || {
        edge.counter("tls_memory_now") == counted * (9 << 10)
    });
    let each = edge.resident_memory().saturating_sub(before) / CONNECTIONS;
    assert!(each < 16 << 10, "{each} bytes for each connection");
    drop(open);
}

#[test]
fn a_stalled_reader_holds_nobody_up() {
    let origin = serving("/pass/big", fresh(20_000_000));
    origin.serve("/x", fresh(1000));
    let edge = Setup::cached(&origin).encrypted().workers(1).start();
    let mut stalled = edge.slow_reader();
    let headers = [("Host", "a")];
    stalled
        .send("GET", "/pass/big", &headers, b"")
        .expect("sent");
    stalled.read_head().expect("a head");
    for _ in 0..20 {
        assert_eq!(edge.get("/x", &[]).status, 200);
    }
    // The response waits in the kernel, and at most one batch of it in TLS.
    let memory = edge.counter("tls_memory_now");
    assert!((9_000..9_000 + (128 << 10)).contains(&memory), "{memory}");
    stalled.set_timeout(Duration::from_secs(20)).expect("set");
    let rest = client::get(edge.http, "/x", &[]);
    assert_eq!(rest.expect("a reply").status, 200);
    drop(stalled);
    eventually("no memory is held", || edge.counter("tls_memory_now") == 0);
}
