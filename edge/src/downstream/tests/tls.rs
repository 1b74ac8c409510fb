//! Tests of TLS over memory: every byte can be split, delayed or damaged.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use sluice_lab::certificates::{Authority, Issued};
use sluice_lab::client::tls_config;

use super::*;
use crate::tls::{CertificateFiles, Incomplete, ListenerTls, Loader, Server, Terms};

/// Returns the configurations of a server and of a client that trusts it.
fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let authority = Authority::new("Test authority");
    let pair = authority.server(&["localhost"]);
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
    let chain: Result<Vec<_>, _> = chain.collect();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain.expect("a chain"), key)
        .expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().into()).expect("a root");
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

const TERMS: Terms = Terms {
    listener: 0,
    policy: [0; 32],
};

/// A TLS server's transport, and a client at the other end of the wire.
struct Ends {
    server: Transport,
    client: ClientConnection,
    wire: Transport,
}

/// Moves ciphertext between the client and the wire in both directions. Returns whether any byte moved.
fn exchange(client: &mut ClientConnection, wire: &mut Transport) -> bool {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut moved = false;
    while client.wants_write() {
        match client.write_tls(&mut Wire(wire, &mut cx)) {
            Ok(_) => moved = true,
            Err(_) => break,
        }
    }
    while let Ok(1..) = client.read_tls(&mut Wire(wire, &mut cx)) {
        moved = true;
        client.process_new_packets().expect("valid records");
    }
    moved
}

struct Wire<'a, 'c>(&'a mut Transport, &'a mut Context<'c>);

impl Read for Wire<'_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.0.poll_read(self.1, buf) {
            Poll::Ready(read) => read,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Wire<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.poll_write(self.1, &[IoSlice::new(bytes)], false) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Ends {
    /// Completes a handshake over a wire that holds `room` bytes in each direction.
    fn connected(room: usize) -> Ends {
        let (server, client) = configs();
        let (mut near, wire) = Transport::pair(room);
        let session = ServerConnection::new(server).expect("a session");
        near.encrypt(session, Incomplete::default(), TERMS, Arc::default());
        let name = ServerName::try_from("localhost").expect("a name");
        let mut ends = Ends {
            server: near,
            client: ClientConnection::new(client, name).expect("a session"),
            wire,
        };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        loop {
            exchange(&mut ends.client, &mut ends.wire);
            let tls = ends.server.tls().expect("TLS");
            match tls.poll_handshake(&mut cx) {
                Poll::Ready(result) => {
                    result.expect("a handshake");
                    return ends;
                }
                Poll::Pending => {}
            }
        }
    }

    /// Writes all of `data` with the server, and returns what the client gets.
    fn sent(&mut self, data: &[u8]) -> Vec<u8> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let (mut rest, mut got) = (data, Vec::new());
        let mut buf = [0; 4096];
        while got.len() < data.len() {
            if !rest.is_empty() {
                // The pieces are cut at odd places.
                let (a, b) = rest.split_at(rest.len() / 3);
                let slices = [IoSlice::new(a), IoSlice::new(b)];
                if let Poll::Ready(n) = self.server.poll_write(&mut cx, &slices, false) {
                    rest = &rest[n.expect("written")..];
                }
            }
            exchange(&mut self.client, &mut self.wire);
            while let Ok(n @ 1..) = self.client.reader().read(&mut buf) {
                got.extend_from_slice(&buf[..n]);
            }
        }
        assert!(rest.is_empty(), "all bytes arrived, so all are reported");
        got
    }

    /// Writes all of `data` with the client, and returns what the server gets.
    fn received(&mut self, data: &[u8], room: usize) -> Vec<u8> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let (mut rest, mut got) = (data, Vec::new());
        let mut buf = vec![0; room];
        while got.len() < data.len() {
            if !rest.is_empty() {
                let n = self.client.writer().write(rest).expect("encrypted");
                rest = &rest[n..];
            }
            exchange(&mut self.client, &mut self.wire);
            while let Poll::Ready(n) = self.server.poll_read(&mut cx, &mut buf) {
                got.extend_from_slice(&buf[..n.expect("read")]);
            }
        }
        got
    }
}

/// Returns the TLS of a listener, and the configuration of a client that trusts its certificate.
fn listener() -> (Arc<Server>, Arc<ClientConfig>) {
    let issued = Issued::new("Test authority", &["localhost"]).expect("a writable folder");
    let listener = ListenerTls {
        certificates: vec![CertificateFiles {
            certificate: issued.files.certificate.clone(),
            key: issued.files.key.clone(),
        }],
        ..ListenerTls::default()
    };
    let options = crate::tls::Options::default();
    let server = Server::open(
        &options,
        &listener,
        &[],
        &["http/1.1"],
        (None, &Arc::default()),
        &mut Loader::default(),
    );
    let client = tls_config(&issued.authority.der());
    (Arc::new(server.expect("a certificate")), Arc::new(client))
}

/// Begins a handshake with a worker, and completes it while the worker drains. Returns the client and its wire.
async fn handshake_while_draining(
    bench: &Bench,
    drained: std::pin::Pin<&mut impl Future<Output = ()>>,
) -> (ClientConnection, Transport) {
    let (server, config) = listener();
    bench.worker.serve(Serving {
        tls: Arc::from([Some(server)]),
        ..serving(Options::default(), |_| ok("x;"))
    });
    let mut setup = (*ConnectionSetup::plain()).clone();
    setup.tls = true;
    let mut wire = bench.client_of(1 << 20, &Arc::new(setup)).socket;
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(config, name).expect("a session");
    exchange(&mut client, &mut wire);
    run_tasks().await;
    let begun = poll_once(drained).await;
    assert!(begun.is_pending());
    while client.is_handshaking() || client.wants_write() {
        exchange(&mut client, &mut wire);
        run_tasks().await;
    }
    assert_eq!(bench.counters.tls_handshakes.get(), 1);
    (client, wire)
}

/// Lets the worker's tasks run until they wait.
async fn run_tasks() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

async fn poll_once<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

#[test]
fn a_request_after_a_handshake_during_a_drain_is_answered() {
    on_worker(async {
        let bench = Bench::new(|_| ok("x;"));
        let mut drained = std::pin::pin!(bench.worker.drain(Duration::from_secs(30)));
        let (mut client, mut wire) = handshake_while_draining(&bench, drained.as_mut()).await;
        assert_eq!(
            bench.worker.connections(),
            1,
            "the client has sent no request"
        );
        client.writer().write_all(GET.as_bytes()).expect("queued");
        exchange(&mut client, &mut wire);
        run_tasks().await;
        exchange(&mut client, &mut wire);
        let mut reply = [0; 4096];
        let n = client.reader().read(&mut reply).expect("a reply");
        let reply = String::from_utf8_lossy(&reply[..n]);
        assert!(reply.contains("connection: close\r\n"), "{reply}");
        drop(wire);
        drained.await;
    });
}

#[test]
fn a_drain_waits_only_briefly_for_a_request_after_a_handshake() {
    on_worker(async {
        let bench = Bench::new(|_| ok("x;"));
        let mut drained = std::pin::pin!(bench.worker.drain(Duration::from_secs(30)));
        let _ends = handshake_while_draining(&bench, drained.as_mut()).await;
        assert_eq!(bench.worker.connections(), 1);
        bench.advance_s(2);
        drained.await;
        assert_eq!(bench.worker.connections(), 0);
    });
}

#[test]
fn a_drain_ends_a_handshake_without_a_byte_at_once() {
    on_worker(async {
        let bench = Bench::new(|_| ok("x;"));
        bench.worker.serve(Serving {
            tls: Arc::from([Some(listener().0)]),
            ..serving(Options::default(), |_| ok("x;"))
        });
        let mut setup = (*ConnectionSetup::plain()).clone();
        setup.tls = true;
        let _client = bench.client_of(1 << 20, &Arc::new(setup));
        run_tasks().await;
        assert_eq!(bench.counters.tls_handshakes_now.get(), 1);
        bench.worker.drain(Duration::from_secs(30)).await;
        assert_eq!(bench.counters.tls_handshakes_failed.get(), 0);
    });
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

#[test]
fn bytes_arrive_in_order_however_few_fit_on_the_wire() {
    for (room, most) in [
        (1, 20_001),
        (7, 20_001),
        (100, 50_001),
        (5_000, 100_001),
        (1 << 20, 100_001),
    ] {
        let mut ends = Ends::connected(room);
        for length in [1, 8 << 10, most] {
            let data = pattern(length);
            assert!(ends.sent(&data) == data, "{length} bytes over {room}");
        }
    }
}

#[test]
fn requests_arrive_in_order_however_little_is_read_at_once() {
    for (room, at_once, length) in [
        (1, 5, 20_001),
        (50, 16 << 10, 50_001),
        (1 << 20, 100, 150_001),
        (1 << 20, 16 << 10, 150_001),
    ] {
        let mut ends = Ends::connected(room);
        let data = pattern(length);
        assert!(ends.received(&data, at_once) == data, "{room} {at_once}");
    }
}

#[test]
fn the_end_is_announced_and_a_reset_is_not() {
    let mut ends = Ends::connected(1 << 20);
    drop(ends.server);
    exchange(&mut ends.client, &mut ends.wire);
    assert_eq!(ends.client.reader().read(&mut [0; 8]).expect("the end"), 0);

    let mut ends = Ends::connected(1 << 20);
    ends.server.withhold_end();
    drop(ends.server);
    exchange(&mut ends.client, &mut ends.wire);
    assert!(ends.client.reader().read(&mut [0; 8]).is_err());

    let mut ends = Ends::connected(1 << 20);
    ends.server.reset_on_drop();
    drop(ends.server);
    exchange(&mut ends.client, &mut ends.wire);
    assert!(ends.client.reader().read(&mut [0; 8]).is_err());
}

#[test]
fn an_end_that_is_not_announced_is_an_error() {
    let mut ends = Ends::connected(1 << 20);
    exchange(&mut ends.client, &mut ends.wire);
    ends.wire.shutdown_write();
    let mut cx = Context::from_waker(std::task::Waker::noop());
    match ends.server.poll_read(&mut cx, &mut [0; 8]) {
        Poll::Ready(Err(error)) => assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_end_waits_for_room_on_the_wire() {
    let mut ends = Ends::connected(64);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let data = pattern(5_000);
    assert!(ends.sent(&data) == data);
    // Fills the wire, which has room for fewer bytes than the record takes.
    let written = ends
        .server
        .poll_write(&mut cx, &[IoSlice::new(&data[..50])], false);
    assert!(!matches!(written, Poll::Ready(Err(_))));
    assert!(!ends.server.ends_at_once());
    assert!(ends.server.poll_shutdown_write(&mut cx).is_pending());
    while ends.server.poll_shutdown_write(&mut cx).is_pending() {
        exchange(&mut ends.client, &mut ends.wire);
    }
    assert!(ends.server.ends_at_once());
    exchange(&mut ends.client, &mut ends.wire);
    let mut got = Vec::new();
    ends.client
        .reader()
        .read_to_end(&mut got)
        .expect("the announced end");
    assert_eq!(got, data[..50]);
}

#[test]
fn after_a_panic_the_end_is_not_announced() {
    let mut ends = Ends::connected(1 << 20);
    exchange(&mut ends.client, &mut ends.wire);
    let server = ends.server;
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _server = server;
        panic!("in the task of the connection");
    }));
    assert!(panic.is_err());
    exchange(&mut ends.client, &mut ends.wire);
    assert!(ends.client.reader().read(&mut [0; 8]).is_err());
}

#[test]
fn tickets_are_sent_before_the_end_of_the_input_is_acted_on() {
    let mut ends = Ends::connected(1 << 20);
    ends.client.send_close_notify();
    exchange(&mut ends.client, &mut ends.wire);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let read = ends.server.poll_read(&mut cx, &mut [0; 8]);
    assert!(matches!(read, Poll::Ready(Ok(0))));
    assert!(exchange(&mut ends.client, &mut ends.wire), "the tickets");
}

#[test]
fn a_small_response_is_one_record_and_a_large_one_begins_with_small_ones() {
    let mut ends = Ends::connected(1 << 20);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    exchange(&mut ends.client, &mut ends.wire);
    let mut lengths = |length: usize| {
        let data = pattern(length);
        let mut rest = &data[..];
        let mut wire = Vec::new();
        let mut buf = vec![0; 64 << 10];
        while !rest.is_empty() {
            if let Poll::Ready(n) = ends
                .server
                .poll_write(&mut cx, &[IoSlice::new(rest)], false)
            {
                rest = &rest[n.expect("written")..];
            }
            while let Poll::Ready(Ok(n @ 1..)) = ends.wire.poll_read(&mut cx, &mut buf) {
                wire.extend_from_slice(&buf[..n]);
            }
        }
        let mut records = Vec::new();
        let mut left = &wire[..];
        while let [_, _, _, a, b, ..] = left {
            let length = usize::from(u16::from_be_bytes([*a, *b]));
            // Each record has a byte for its type and a tag of 16 bytes (RFC 8446 5.2).
            records.push(length - 17);
            left = &left[5 + length..];
        }
        records
    };
    // The first write also carries the tickets.
    let first = lengths(100);
    assert_eq!(first.last(), Some(&100));
    assert_eq!(lengths(5_300), [5_300]);
    let large = lengths(100_000);
    assert_eq!(large[..2], [4 << 10, 4 << 10]);
    assert_eq!(large.iter().max(), Some(&(16 << 10)));
}

#[test]
fn a_connection_may_end_after_any_byte() {
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let (server, client) = configs();
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut whole = 0;
    loop {
        let (mut near, mut wire) = Transport::pair(1 << 20);
        let session = ServerConnection::new(server.clone()).expect("a session");
        near.encrypt(session, Incomplete::default(), TERMS, Arc::default());
        let name = ServerName::try_from("localhost").expect("a name");
        let mut session = ClientConnection::new(client.clone(), name).expect("a session");
        session.writer().write_all(REQUEST).expect("queued");
        let (mut left, mut got, mut buf) = (whole, 0, [0; 64]);
        let is_complete = loop {
            let mut bytes = Vec::new();
            while session.wants_write() {
                session.write_tls(&mut bytes).expect("a buffer");
            }
            let sent = bytes.len().min(left);
            if sent > 0 {
                let mut wire = Wire(&mut wire, &mut cx);
                wire.write_all(&bytes[..sent]).expect("room");
            }
            left -= sent;
            if sent < bytes.len() {
                wire.shutdown_write();
            }
            let tls = near.tls().expect("TLS");
            match tls.poll_handshake(&mut cx) {
                Poll::Pending => {}
                Poll::Ready(Err(_)) => break false,
                Poll::Ready(Ok(())) => match near.poll_read(&mut cx, &mut buf) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(0)) => panic!("the truncated stream looks complete"),
                    Poll::Ready(Ok(n)) => got += n,
                    Poll::Ready(Err(error)) => {
                        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                        break false;
                    }
                },
            }
            if got == REQUEST.len() {
                break true;
            }
            while let Ok(1..) = session.read_tls(&mut Wire(&mut wire, &mut cx)) {
                session.process_new_packets().expect("valid records");
            }
        };
        if is_complete {
            break;
        }
        whole += 1;
    }
    assert!(whole > 300, "handshake and request take {whole} bytes");
}
