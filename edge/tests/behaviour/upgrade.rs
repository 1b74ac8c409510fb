//! Tests of Upgrade: bytes are tunnelled in both directions (RFC 9110 7.8).

use std::thread;
use std::time::{Duration, Instant};

use sluice_lab::certificates::Authority;
use sluice_lab::client::{Client, Closing};
use sluice_lab::front::{self, TlsFront, UnixFront};
use sluice_lab::offset::{offset_bytes, verify_offset};
use sluice_lab::origin::{Origin, Record, Resource};

use crate::harness::{Edge, SOON, Setup, eventually, origin, serving};

const ASK: [(&str, &str); 2] = [("Connection", "keep-alive, Upgrade"), ("Upgrade", "echo")];

fn echoing() -> Origin {
    serving("/tunnel", Resource::upgrade("echo"))
}

fn tunnel(edge: &Edge) -> Client {
    let mut client = edge.client();
    client.send("GET", "/tunnel", &ASK, b"").expect("sent");
    let head = client.read_head().expect("a head");
    assert_eq!(head.status, 101);
    assert_eq!(head.header("upgrade"), Some("echo"));
    let connection = head.header("connection").unwrap_or("");
    assert!(connection.eq_ignore_ascii_case("upgrade"), "{connection}");
    assert_eq!(head.header("content-length"), None);
    client
}

#[test]
fn a_tunnel_carries_bytes_both_ways() {
    let origin = echoing();
    for edge in [
        Setup::uncached(&origin).start(),
        Setup::cached(&origin).start(),
    ] {
        let mut client = tunnel(&edge);
        for word in ["hello", "GET / HTTP/1.1\r\n\r\n", "\0\r\n\n"] {
            client.send_raw(word.as_bytes()).expect("sent");
            let back = client.read_some(word.len()).expect("an echo");
            assert_eq!(back, word.as_bytes());
        }
        client.finish_sending().expect("half closed");
        assert_eq!(client.wait_closed(SOON).expect("a socket"), Closing::Fin);
    }
    let asked = origin.requests();
    assert!(
        asked
            .iter()
            .all(|seen| seen.header("upgrade") == Some("echo"))
    );
}

/// Sends words of a line each through a tunnel, and expects each of them back.
fn echo_words(edge: &Edge) {
    let mut client = tunnel(edge);
    for word in ["hello", "\0\r\n\n", "GET / HTTP/1.1\r\n\r\n"] {
        client.send_raw(word.as_bytes()).expect("sent");
        let back = client.read_some(word.len()).expect("an echo");
        assert_eq!(back, word.as_bytes());
    }
    client.finish_sending().expect("half closed");
    assert_eq!(client.wait_closed(SOON).expect("a socket"), Closing::Fin);
}

#[test]
fn a_tunnel_leads_to_an_origin_with_tls() {
    let origin = echoing();
    let authority = Authority::new("Test authority of origins");
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).expect("written");
    let config = front::config(&authority.server(&["127.0.0.1"]), None);
    let front = TlsFront::start(origin.addr(), config).expect("a free port");
    let setup = Setup::of_servers(vec![front.url()]).upstream(&format!("tls = {{ ca = {ca:?} }}"));
    echo_words(&setup.start());
    assert_eq!(front.handshakes().len(), 1);
}

#[test]
fn a_tunnel_leads_to_an_origin_on_a_unix_socket() {
    let origin = echoing();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.sock");
    let front = UnixFront::start(origin.addr(), &path).expect("a socket");
    echo_words(&Setup::of_servers(vec![front.url()]).start());
}

#[test]
fn a_tunnel_passes_a_route_with_buffering() {
    let origin = echoing();
    let text = Setup::uncached(&origin).text();
    let lines = "[[site.route]]\nrequest_buffering = true\nresponse_buffering = true\n";
    let edge = Setup::of_text(text.replace("[[site.route]]\n", lines)).start();
    echo_words(&edge);
    eventually("no memory is held", || edge.buffers("bytes") == 0);
}

// Both sides send more bytes than all buffers hold, at the same time.
#[test]
fn the_bytes_of_a_tunnel_are_counted() {
    let origin = echoing();
    let edge = Setup::uncached(&origin).start();
    let mut client = tunnel(&edge);
    let bytes = vec![b'a'; 10_000];
    client.send_raw(&bytes).expect("sent");
    assert_eq!(client.read_some(bytes.len()).expect("an echo"), bytes);
    let is_counted = || {
        let server = &edge.status()["upstreams"]["origin"]["servers"][0];
        ["bytes_in", "bytes_out"]
            .iter()
            .all(|name| server[name].as_u64() >= Some(10_000))
    };
    eventually("the bytes are counted", is_counted);
}

#[test]
fn a_tunnel_carries_large_amounts_of_data() {
    let origin = echoing();
    let edge = Setup::uncached(&origin).in_clear_text().start();
    let mut client = tunnel(&edge);
    let mut sender = client.stream().try_clone().expect("another handle");
    let sending = thread::spawn(move || {
        use std::io::Write;
        sender
            .write_all(&offset_bytes(0, 20_000_000))
            .expect("sent");
    });
    let back = client.read_some(20_000_000).expect("an echo");
    assert_eq!(back.len(), 20_000_000);
    verify_offset(0, &back).expect("the same bytes");
    sending.join().expect("all was sent");
}

// The same over TLS, where both directions share the state of the session.
#[test]
fn a_tunnel_carries_large_amounts_of_data_over_tls() {
    use std::io::{Read, Write};
    use std::sync::{Arc, Mutex};
    const LENGTH: usize = 20_000_000;
    let origin = echoing();
    let edge = Setup::uncached(&origin).encrypted().start();
    let tls = crate::harness::setup::tls();
    let name = rustls::pki_types::ServerName::try_from(tls.name.clone()).expect("a name");
    let session = rustls::ClientConnection::new(tls.config, name).expect("a session");
    let socket = std::net::TcpStream::connect(edge.http).expect("accepted");
    let mut stream = rustls::StreamOwned::new(session, socket);
    let request =
        b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(request).expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    let (session, mut incoming) = stream.into_parts();
    let session = Arc::new(Mutex::new(session));
    let mut outgoing = incoming.try_clone().expect("another handle");
    let sending = thread::spawn({
        let session = session.clone();
        move || {
            for part in offset_bytes(0, LENGTH).chunks(16 << 10) {
                let mut bytes = Vec::new();
                let mut session = session.lock().expect("no panic");
                session.writer().write_all(part).expect("encrypted");
                while session.wants_write() {
                    session.write_tls(&mut bytes).expect("a buffer");
                }
                drop(session);
                outgoing.write_all(&bytes).expect("sent");
            }
        }
    });
    let (mut back, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    incoming.set_read_timeout(Some(SOON)).expect("set");
    while back.len() < LENGTH {
        let n = incoming.read(&mut buffer).expect("an echo");
        assert!(n > 0, "the end after {} bytes", back.len());
        let (mut rest, mut session) = (&buffer[..n], session.lock().expect("no panic"));
        while !rest.is_empty() {
            session.read_tls(&mut rest).expect("room");
            session.process_new_packets().expect("valid records");
            let mut part = [0; 16 << 10];
            while let Ok(n @ 1..) = session.reader().read(&mut part) {
                back.extend_from_slice(&part[..n]);
            }
        }
    }
    verify_offset(0, &back).expect("the same bytes");
    sending.join().expect("all was sent");
}

// Bytes in either direction keep a tunnel open. Without any, both of its connections are closed.
#[test]
fn an_idle_tunnel_ends_after_the_tunnel_timeout() {
    let origin = echoing();
    let edge = Setup::uncached(&origin)
        .limits("tunnel_timeout = \"8s\"")
        .logged("json")
        .start();
    let mut client = tunnel(&edge);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(9) {
        client.send_raw(b"ping").expect("sent");
        assert_eq!(client.read_some(4).expect("an echo"), b"ping");
    }
    assert_eq!(client.wait_closed(SOON).expect("a socket"), Closing::Fin);
    let over = |record: &Record| record.open_connections() == 0;
    assert!(origin.wait_for(over, SOON), "the origin's connection ends");
    let line = &edge.json_log(1)[0];
    assert_eq!(line["reason"], "tunnel-timeout", "{line}");
}

// The client sends bytes right after its request, before the 101. They must reach the origin
// through the tunnel.
#[test]
fn early_bytes_reach_the_tunnel() {
    let origin = echoing();
    let edge = Setup::uncached(&origin).start();
    let mut client = edge.client();
    let request =
        "GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly";
    client.send_raw(request.as_bytes()).expect("sent");
    assert_eq!(client.read_head().expect("a head").status, 101);
    assert_eq!(client.read_some(5).expect("an echo"), b"early");
}

// The origin responds to the Upgrade request without switching protocols. The client receives the
// response, and the connection stays open.
#[test]
fn a_refused_upgrade_is_a_normal_response() {
    let origin = serving("/tunnel", Resource::upgrade("other"));
    let edge = Setup::uncached(&origin).start();
    let mut client = edge.client();
    for _ in 0..2 {
        let reply = client.get("/tunnel", &ASK).expect("a reply");
        assert_eq!((reply.status, reply.text().as_str()), (426, "status 426\n"));
    }
}

// RFC 9110 15.5.22: a 426 names the required protocols in Upgrade, which Connection has to name
// (7.8). Other responses lose their Upgrade.
#[test]
fn a_426_keeps_its_upgrade() {
    let origin = origin();
    let requiring = |status| {
        Resource::status(status)
            .header("Upgrade", "HTTP/3.0, echo")
            .header("Connection", "Upgrade")
    };
    origin.serve("/x", requiring(426));
    origin.serve("/y", requiring(200));
    for edge in [
        Setup::uncached(&origin)
            .with_http1()
            .with_http1_servers()
            .start(),
        Setup::cached(&origin)
            .with_http1()
            .with_http1_servers()
            .start(),
    ] {
        let reply = edge.get("/x", &[]);
        assert_eq!(reply.status, 426);
        assert_eq!(reply.header_all("upgrade"), ["HTTP/3.0, echo"]);
        let options = reply.header_all("connection").join(",").to_lowercase();
        let options: Vec<_> = options.split(',').map(str::trim).collect();
        assert!(options.contains(&"upgrade"), "{options:?}");
        let other = edge.get("/y", &[]);
        assert_eq!((other.status, other.header("upgrade")), (200, None));
    }
}

// A request without `Connection: upgrade`, or with HTTP/1.0, reaches the origin without Upgrade.
#[test]
fn upgrade_requires_connection_upgrade() {
    let origin = echoing();
    let edge = Setup::uncached(&origin).start();
    assert_eq!(edge.get("/tunnel", &[("Upgrade", "echo")]).status, 426);
    let old = "GET /tunnel HTTP/1.0\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    let answer = edge.send_raw(old.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 426 "), "{answer}");
    assert!(
        origin
            .requests()
            .iter()
            .all(|seen| seen.header("upgrade").is_none())
    );
}

// The value `h2c` (HTTP/2 over cleartext) is removed from Upgrade, and other protocols are
// forwarded.
#[test]
fn h2c_upgrades_are_not_forwarded() {
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::uncached(&origin).start();
    for (asked, passed) in [("h2c", None), ("H2C, echo", Some("echo"))] {
        let fields = [("Connection", "Upgrade"), ("Upgrade", asked)];
        assert_eq!(edge.get("/x", &fields).status, 200);
        let seen = origin.requests().pop().expect("it was asked");
        assert_eq!(seen.header("upgrade"), passed);
        assert_eq!(seen.header("connection").is_some(), passed.is_some());
    }
}
