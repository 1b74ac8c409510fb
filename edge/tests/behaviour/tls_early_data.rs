//! Data that a client sends with its first message, since another server with the same name permitted it (0-RTT). Sluice
//! never accepts such data, and skips it (RFC 8446 4.2.10).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, HandshakeKind, RootCertStore, ServerConfig,
    ServerConnection, StreamOwned,
};
use sluice_lab::certificates::Authority;

use crate::harness::{Edge, Setup, eventually, fresh, serving, setup};

/// Most bytes of early data that the other server permits.
const PERMITTED: u32 = 16 << 10;
/// Length of an upload that takes many records.
const UPLOAD: usize = 1_000_000;

/// Passes ciphertext on. Returns whether there was any.
fn pass(from: &mut Connection, to: &mut Connection) -> bool {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).expect("a buffer");
    }
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        to.read_tls(&mut rest).expect("room");
        to.process_new_packets().expect("valid records");
    }
    !bytes.is_empty()
}

fn name() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

/// Returns the configuration of a client that has a session of another server, which permits early data. The client
/// prefers the first group of the provider.
fn client_config(first_group: &'static dyn rustls::crypto::SupportedKxGroup) -> Arc<ClientConfig> {
    let authority = Authority::new("Another authority");
    let pair = authority.server(&["localhost"]);
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
    let chain: Result<Vec<_>, _> = chain.collect();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
    let mut provider = default_provider();
    provider.kx_groups = vec![first_group, kx_group::X25519];
    // The client can offer the session again in a second hello only if the edge chooses a suite with the same hash.
    provider.cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256];
    let provider = Arc::new(provider);
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain.expect("a chain"), key)
        .expect("a certificate");
    server.max_early_data_size = PERMITTED;
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().into()).expect("a root");
    let own = CertificateDer::from_pem_slice(setup::authority_pem().as_bytes());
    roots.add(own.expect("a certificate")).expect("a root");
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.enable_early_data = true;
    let client = Arc::new(client);
    let session = ClientConnection::new(client.clone(), name()).expect("a session");
    let mut near = Connection::from(session);
    let session = ServerConnection::new(Arc::new(server)).expect("a session");
    let mut far = Connection::from(session);
    while pass(&mut near, &mut far) | pass(&mut far, &mut near) {}
    client
}

/// Sends these bytes, the first message of a client with this much early data, and then a request with an upload.
/// Returns the kind of the handshake.
fn upload_after(
    edge: &Edge,
    config: &Arc<ClientConfig>,
    before: &[u8],
    early: usize,
) -> Option<HandshakeKind> {
    let mut session = ClientConnection::new(config.clone(), name()).expect("a session");
    let mut data = session.early_data().expect("a session that permits it");
    data.write_all(&vec![b'x'; early]).expect("permitted");
    let mut bytes = before.to_vec();
    while session.wants_write() {
        session.write_tls(&mut bytes).expect("a buffer");
    }
    assert!(bytes.len() > early);
    let mut socket = TcpStream::connect(edge.http).expect("accepted");
    socket.set_nodelay(true).expect("set");
    socket.write_all(&bytes).expect("sent");
    let mut stream = StreamOwned::new(session, socket);
    let head = format!(
        "POST /pass/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {UPLOAD}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("a handshake");
    stream.write_all(&vec![b'x'; UPLOAD]).expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(!stream.conn.is_early_data_accepted());
    stream.conn.handshake_kind()
}

/// Uploads after early data of several lengths, each sent in one write after these bytes.
fn upload_after_early_data(
    edge: &Edge,
    config: impl Fn() -> Arc<ClientConfig>,
    before: &[u8],
    kind: HandshakeKind,
) {
    let lengths = [1, 3_000, 5_000, 16_000];
    for early in lengths {
        let found = upload_after(edge, &config(), before, early);
        assert_eq!(found, Some(kind), "{early}");
    }
    let handshakes = lengths.len() as u64;
    assert_eq!(edge.counter("tls_handshakes"), handshakes);
    assert_eq!(
        edge.counter("requests"),
        handshakes,
        "early data is no request"
    );
    eventually("no memory is held", || edge.counter("tls_memory_now") == 0);
}

#[test]
fn early_data_is_skipped() {
    let origin = serving("/pass/x", fresh(10));
    let edge = Setup::cached(&origin).encrypted().workers(1).start();
    let config = || client_config(kx_group::X25519MLKEM768);
    upload_after_early_data(&edge, config, b"", HandshakeKind::Full);
}

#[test]
fn early_data_is_skipped_before_a_second_hello() {
    let origin = serving("/pass/x", fresh(10));
    let setup = Setup::cached(&origin).encrypted().workers(1);
    let edge = setup.tables("[tls]\ngroups = [\"X25519\"]\n").start();
    let config = || client_config(kx_group::SECP384R1);
    upload_after_early_data(&edge, config, b"", HandshakeKind::FullWithHelloRetryRequest);
}

// The buffer in which the header of the balancer arrives also holds the hello and early data.
#[test]
fn early_data_is_skipped_after_a_header_of_the_proxy_protocol() {
    const LINE: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.2 40000 443\r\n";
    let origin = serving("/pass/x", fresh(10));
    let setup = Setup::cached(&origin).encrypted().workers(1);
    let listener = "[[listener]]\nproxy_protocol = \"any\"\ntrusted = \"127.0.0.1\"\n";
    let text = setup.text().replace("[[listener]]\n", listener);
    let edge = Setup::of_text(text).start();
    let config = || client_config(kx_group::X25519MLKEM768);
    upload_after_early_data(&edge, config, LINE, HandshakeKind::Full);
}

#[test]
fn sluice_permits_no_early_data() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin).encrypted().workers(1).start();
    let mut config = (*setup::tls().config).clone();
    config.enable_early_data = true;
    let config = Arc::new(config);
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let mut session = ClientConnection::new(config.clone(), name()).expect("a session");
        assert!(session.early_data().is_none());
        let socket = TcpStream::connect(edge.http).expect("accepted");
        let mut stream = StreamOwned::new(session, socket);
        let request = b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("sent");
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).expect("a reply");
        assert_eq!(stream.conn.handshake_kind(), Some(kind));
    }
}
