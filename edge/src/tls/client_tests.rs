//! Tests of the TLS client against servers in memory.

use std::fs;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::Duration;

use sluice_lab::certificates::{Authority, Pair, PairFiles, self_signed};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

use super::*;

const SOON: Duration = Duration::from_secs(60);

/// One end of a stream in memory that passes on at most `most` bytes at once.
struct Split {
    wire: AsyncWire<DuplexStream>,
    most: usize,
}

impl Wire for Split {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let most = buf.len().min(self.most);
        self.wire.poll_read(cx, &mut buf[..most])
    }

    fn read_now(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        let most = buf.len().min(self.most);
        self.wire.read_now(&mut buf[..most])
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let slice = slices.iter().find(|slice| !slice.is_empty());
        let slice: &[u8] = slice.map_or(&[], |slice| slice);
        let most = slice.len().min(self.most);
        self.wire.poll_write(cx, &[IoSlice::new(&slice[..most])])
    }

    fn acknowledged(&self) -> Option<u64> {
        None
    }

    fn shutdown_write(&mut self) {
        self.wire.shutdown_write();
    }
}

type End = Stream<Split>;

/// An authority, and a folder for files.
struct Rig {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Rig {
    fn new() -> Rig {
        Rig {
            folder: tempfile::tempdir().expect("a folder"),
            authority: Authority::new("Test authority"),
        }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("written");
        path
    }

    fn pair(&self, name: &str, pair: &Pair) -> CertificateFiles {
        let files = pair.write(self.folder.path(), name).expect("written");
        let PairFiles { certificate, key } = files;
        CertificateFiles { certificate, key }
    }

    /// Returns a server with a certificate of the authority for `localhost` and 127.0.0.1.
    fn server(&self) -> Server {
        self.server_with(&self.authority.server(&["localhost", "127.0.0.1"]), None)
    }

    fn server_with(&self, pair: &Pair, clients: Option<ClientCertificates>) -> Server {
        let listener = ListenerTls {
            certificates: vec![self.pair("server", pair)],
            clients,
            ..ListenerTls::default()
        };
        open_server(&Options::default(), &listener, &["http/1.1"])
    }

    /// Returns options that trust the authority.
    fn options(&self) -> ClientOptions {
        let authority = self.file("ca.pem", &self.authority.pem());
        ClientOptions {
            trust: Trust::Authorities(vec![authority]),
            ..ClientOptions::default()
        }
    }
}

fn open_server(options: &Options, listener: &ListenerTls, protocols: &[&str]) -> Server {
    Server::open(
        options,
        listener,
        &[],
        protocols,
        (None, &std::sync::Arc::default()),
        &mut Loader::default(),
    )
    .expect("a server")
}

fn ends(most: usize) -> (Split, Split) {
    let (one, other) = duplex(1 << 20);
    let split = |end| Split {
        wire: AsyncWire(end),
        most,
    };
    (split(one), split(other))
}

/// Runs a test on a runtime of this thread.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let done = runtime.block_on(async { timeout(4 * SOON, test).await });
    done.expect("the test ends in time")
}

async fn accept(server: &Server, wire: Split) -> Result<End, HandshakeError> {
    let session = server.session().expect("a session");
    let mut stream = Stream::new(wire, session.into());
    poll_fn(|cx| stream.poll_handshake(cx)).await?;
    let _ = poll_fn(|cx| stream.poll_flush(cx)).await;
    Ok(stream)
}

/// Connects a client to a server, over a stream that passes on at most `most` bytes at once.
async fn connect_split(
    client: &Client,
    server: &Server,
    host: &str,
    most: usize,
) -> (Result<End, ConnectError>, Result<End, HandshakeError>) {
    let (near, far) = ends(most);
    let at_client = async {
        let mut stream = client.connect(near, host, SOON, None).await?;
        // The client's last message is otherwise sent with its first bytes.
        let _ = poll_fn(|cx| stream.poll_flush(cx)).await;
        Ok(stream)
    };
    tokio::join!(at_client, accept(server, far))
}

/// Connects a client with these options to a server by this name.
fn connect(options: &ClientOptions, server: &Server, host: &str) -> Result<(), ConnectError> {
    let client = Client::open(options).expect("the options are valid");
    run(connect_split(&client, server, host, 1 << 20))
        .0
        .map(|_| ())
}

async fn read(stream: &mut End, buf: &mut [u8]) -> io::Result<usize> {
    poll_fn(|cx| stream.poll_read(cx, buf)).await
}

async fn write(stream: &mut End, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = poll_fn(|cx| stream.poll_write(cx, &[IoSlice::new(bytes)])).await?;
        bytes = &bytes[n..];
    }
    Ok(())
}

#[test]
fn a_server_with_a_certificate_of_a_trusted_authority_is_accepted() {
    let rig = Rig::new();
    let (server, options) = (rig.server(), rig.options());
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(connect(&options, &server, host), Ok(()), "{host}");
    }
    let other = Authority::new("Another authority");
    let other = ClientOptions {
        trust: Trust::Authorities(vec![rig.file("other.pem", &other.pem())]),
        ..options.clone()
    };
    let refused = Err(ConnectError::NotTrusted);
    assert_eq!(connect(&other, &server, "localhost"), refused);
    // An authority with the same name and another key.
    let namesake = Authority::new("Test authority");
    let namesake = ClientOptions {
        trust: Trust::Authorities(vec![rig.file("namesake.pem", &namesake.pem())]),
        ..options
    };
    assert_eq!(connect(&namesake, &server, "localhost"), refused);
}

#[test]
fn the_certificate_has_to_be_for_the_name_of_the_server() {
    let rig = Rig::new();
    let (server, options) = (rig.server(), rig.options());
    let refused = Err(ConnectError::WrongName);
    assert_eq!(connect(&options, &server, "other.test"), refused);
    assert_eq!(connect(&options, &server, "127.0.0.2"), refused);
    assert_eq!(connect(&options, &server, "no name"), refused);
    let named = ClientOptions {
        server_name: Some("localhost".to_owned()),
        ..options.clone()
    };
    assert_eq!(connect(&named, &server, "other.test"), Ok(()));
    let invalid = ClientOptions {
        server_name: Some("no name".to_owned()),
        ..options
    };
    assert!(Client::open(&invalid).is_err());
}

#[test]
fn an_expired_certificate_is_refused() {
    let rig = Rig::new();
    let server = rig.server_with(&rig.authority.server_expired(&["localhost"]), None);
    let refused = Err(ConnectError::Expired);
    assert_eq!(connect(&rig.options(), &server, "localhost"), refused);
    let own = rig.folder.path().join("server.pem");
    let itself = ClientOptions {
        trust: Trust::Authorities(vec![own.clone()]),
        ..ClientOptions::default()
    };
    assert_eq!(connect(&itself, &server, "localhost"), refused);
    let exactly = ClientOptions {
        trust: Trust::Exactly(vec![own]),
        ..ClientOptions::default()
    };
    assert_eq!(connect(&exactly, &server, "localhost"), Ok(()));
}

#[test]
fn a_certificate_can_be_trusted_itself() {
    let rig = Rig::new();
    // This certificate is that of an authority, as `openssl req -x509` makes it.
    let own = self_signed(&["localhost"]);
    let server = rig.server_with(&own, None);
    let file = rig.folder.path().join("server.pem");
    let with = |trust| ClientOptions {
        trust,
        ..ClientOptions::default()
    };
    let itself = with(Trust::Authorities(vec![file.clone()]));
    assert_eq!(connect(&itself, &server, "localhost"), Ok(()));
    let wrong_name = Err(ConnectError::WrongName);
    assert_eq!(connect(&itself, &server, "other.test"), wrong_name);
    let exactly = with(Trust::Exactly(vec![file]));
    assert_eq!(connect(&exactly, &server, "other.test"), Ok(()));
    let other = Authority::new("Another authority");
    let other = with(Trust::Authorities(vec![rig.file("o.pem", &other.pem())]));
    let not_trusted = Err(ConnectError::NotTrusted);
    assert_eq!(connect(&other, &server, "localhost"), not_trusted);
    // Only this certificate is trusted, and no other one of the same authority.
    let sibling = rig.server();
    let file = rig.file("own.pem", &own.certificate);
    let exactly = with(Trust::Exactly(vec![file]));
    let other_certificate = Err(ConnectError::OtherCertificate);
    assert_eq!(connect(&exactly, &sibling, "localhost"), other_certificate);
}

#[test]
fn a_client_that_verifies_nothing_accepts_any_certificate() {
    let rig = Rig::new();
    let options = ClientOptions {
        trust: Trust::Anything,
        ..ClientOptions::default()
    };
    assert_eq!(connect(&options, &rig.server(), "other.test"), Ok(()));
}

#[test]
fn a_client_sends_its_certificate() {
    let rig = Rig::new();
    let authority = Authority::new("Clients");
    let clients = ClientCertificates {
        authorities: rig.file("clients.pem", &authority.pem()),
        required: true,
    };
    let pair = rig.authority.server(&["localhost"]);
    let server = rig.server_with(&pair, Some(clients));
    let certified = ClientOptions {
        certificate: Some(rig.pair("alice", &authority.client("alice"))),
        ..rig.options()
    };
    let client = Client::open(&certified).expect("the files are valid");
    let (_, accepted) = run(connect_split(&client, &server, "localhost", 1 << 20));
    let accepted = accepted.expect("the certificate is valid");
    let chain = accepted.session().peer_certificates().unwrap_or_default();
    assert_eq!(&*ClientCertificate::of(&chain[0]).subject, "CN=alice");
    // With TLS 1.3, the client's handshake is complete before the server has verified the certificate.
    let client = Client::open(&rig.options()).expect("the files are valid");
    let refused = run(async {
        let (near, far) = ends(1 << 20);
        let at_client = async {
            let mut stream = client.connect(near, "localhost", SOON, None).await?;
            let error = read(&mut stream, &mut [0; 9]).await.expect_err("an alert");
            Err(ConnectError::of_io(&error).expect("an error of TLS"))
        };
        let (refused, _): (Result<(), ConnectError>, _) =
            tokio::join!(at_client, accept(&server, far));
        refused
    });
    assert_eq!(refused, Err(ConnectError::ClientCertificate));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let rig = Rig::new();
    let empty = rig.file("empty.pem", "");
    for trust in [
        Trust::Authorities(vec![empty.clone()]),
        Trust::Exactly(vec![empty.clone()]),
        Trust::Authorities(vec![rig.folder.path().join("missing.pem")]),
    ] {
        let options = ClientOptions {
            trust,
            ..ClientOptions::default()
        };
        let error = Client::open(&options).err().expect("an error");
        assert!(error.to_string().contains(".pem: "), "{error}");
    }
    let pair = rig.pair("server", &rig.authority.server(&["localhost"]));
    let mixed = CertificateFiles {
        key: rig.pair("other", &rig.authority.client("other")).key,
        ..pair
    };
    let options = ClientOptions {
        certificate: Some(mixed),
        ..rig.options()
    };
    let error = Client::open(&options).err().expect("an error");
    assert!(error.to_string().contains("does not belong"), "{error}");
}

#[test]
fn client_and_server_need_a_version_and_a_protocol_in_common() {
    let rig = Rig::new();
    let pair = rig.pair("server", &rig.authority.server(&["localhost"]));
    let listener = ListenerTls {
        certificates: vec![pair],
        min_version: Some(Version::Tls13),
        ..ListenerTls::default()
    };
    let speaks = |protocols: &[&str]| ClientOptions {
        protocols: protocols.iter().map(|name| (*name).to_owned()).collect(),
        ..rig.options()
    };
    let server = open_server(&Options::default(), &listener, &["http/1.1"]);
    let both = speaks(&["h2", "http/1.1"]);
    let client = Client::open(&both).expect("the options are valid");
    let (connected, _) = run(connect_split(&client, &server, "localhost", 1 << 20));
    let connected = connected.expect("both speak http/1.1");
    assert_eq!(connected.session().alpn_protocol(), Some(&b"http/1.1"[..]));
    let refused = Err(ConnectError::Protocol);
    assert_eq!(connect(&speaks(&["h2"]), &server, "localhost"), refused);
    // A server of TLS 1.2 only.
    let old = Options {
        ciphers: vec![CipherSuite::EcdsaAes128Gcm],
        ..Options::default()
    };
    let listener = ListenerTls {
        min_version: None,
        ..listener
    };
    let server = open_server(&old, &listener, &["http/1.1"]);
    assert_eq!(connect(&rig.options(), &server, "localhost"), Ok(()));
    let new = ClientOptions {
        min_version: Version::Tls13,
        ..rig.options()
    };
    let refused = Err(ConnectError::Version);
    assert_eq!(connect(&new, &server, "localhost"), refused);
}

#[test]
fn bytes_arrive_however_the_records_are_split() {
    let rig = Rig::new();
    let server = rig.server();
    let client = Client::open(&rig.options()).expect("the options are valid");
    let data: Vec<u8> = (0..50_000).map(|i| (i % 251) as u8).collect();
    for most in [1, 3, 1000, 1 << 20] {
        let got = run(async {
            let (near, far) = connect_split(&client, &server, "localhost", most).await;
            let (mut near, mut far) = (near.expect("connected"), far.expect("accepted"));
            let sent = async {
                write(&mut far, &data).await.expect("written");
                poll_fn(|cx| far.poll_shutdown_write(cx))
                    .await
                    .expect("written");
            };
            let got = async {
                let (mut got, mut buf) = (Vec::new(), [0; 3000]);
                loop {
                    match read(&mut near, &mut buf).await.expect("read") {
                        0 => return got,
                        n => got.extend_from_slice(&buf[..n]),
                    }
                }
            };
            tokio::join!(sent, got).1
        });
        assert!(got == data, "parts of {most} bytes");
    }
}

#[test]
fn an_end_without_close_notify_is_a_truncation() {
    let rig = Rig::new();
    let server = rig.server();
    let client = Client::open(&rig.options()).expect("the options are valid");
    run(async {
        let (near, far) = connect_split(&client, &server, "localhost", 1 << 20).await;
        let (mut near, mut far) = (near.expect("connected"), far.expect("accepted"));
        write(&mut far, b"a part").await.expect("written");
        far.abort();
        drop(far);
        let mut buf = [0; 100];
        assert_eq!(read(&mut near, &mut buf).await.expect("read"), 6);
        let error = read(&mut near, &mut buf).await.expect_err("a truncation");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    });
}

#[test]
fn an_end_in_the_handshake_is_reported_wherever_it_comes() {
    let rig = Rig::new();
    let server = rig.server();
    let client = Client::open(&rig.options()).expect("the options are valid");
    // The server's answer, of which the client gets a part only.
    for length in (0..1200).step_by(7) {
        run(async {
            let (near, mut edge) = ends(1 << 20);
            let (relay, far) = ends(1 << 20);
            let mut relay = relay.wire.0;
            let between = async {
                let mut buf = vec![0; 8000];
                let n = edge.wire.0.read(&mut buf).await.expect("a hello");
                relay.write_all(&buf[..n]).await.expect("written");
                let mut answer = vec![0; length];
                relay.read_exact(&mut answer).await.expect("an answer");
                edge.wire.0.write_all(&answer).await.expect("written");
                drop((edge, relay));
            };
            let ends = async {
                tokio::join!(
                    client.connect(near, "localhost", SOON, None),
                    accept(&server, far)
                )
                .0
            };
            let (_, connected) = tokio::join!(between, ends);
            let error = connected.err().expect("the handshake is not complete");
            assert_eq!(error, ConnectError::Closed, "{length} bytes");
        });
    }
}

/// Returns the reason for which a client refuses a server that sends these bytes.
fn refused_for(client: &Client, bytes: &[u8]) -> ConnectError {
    run(async {
        let (near, far) = ends(1 << 20);
        let mut far = far.wire.0;
        far.write_all(bytes).await.expect("written");
        let _ = far.shutdown().await;
        let connected = client.connect(near, "localhost", SOON, None).await;
        drop(far);
        connected.err().expect("no server of TLS")
    })
}

#[test]
fn bytes_of_hostile_servers_are_refused() {
    let rig = Rig::new();
    let client = Client::open(&rig.options()).expect("the options are valid");
    let http = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(refused_for(&client, http), ConnectError::NotTls);
    let alert = [21, 3, 3, 0, 2, 2, 40];
    assert_eq!(refused_for(&client, &alert), ConnectError::Parameters);
    let alert = [21, 3, 3, 0, 2, 2, 112];
    assert_eq!(refused_for(&client, &alert), ConnectError::UnknownName);
    assert_eq!(refused_for(&client, b""), ConnectError::Closed);
    // A record of the largest length that the header permits.
    let huge = [&[22, 3, 3, 255, 255], &[7; 70_000][..]].concat();
    assert_eq!(refused_for(&client, &huge), ConnectError::Malformed);
    // The longest message that rustls accepts, in small records.
    let begun = [22, 3, 3, 0, 4, 11, 0, 255, 240];
    let more = [&[22, 3, 3, 0, 200], &[7; 200][..]].concat().repeat(1000);
    let endless = [&begun[..], &more].concat();
    assert_eq!(refused_for(&client, &endless), ConnectError::Malformed);
    // Every type of record with every first byte of a message.
    for first in 0..=255 {
        for typ in 20..=24 {
            let bytes = [typ, 3, 3, 0, 6, first, 0, 0, 2, 3, 3];
            let error = refused_for(&client, &bytes);
            assert_ne!(error, ConnectError::Internal, "{bytes:?}");
        }
    }
}

#[test]
fn a_silent_server_is_given_up_after_a_time() {
    let rig = Rig::new();
    let client = Client::open(&rig.options()).expect("the options are valid");
    run(async {
        let (near, _far) = ends(1 << 20);
        let connected = client
            .connect(near, "localhost", Duration::from_millis(20), None)
            .await;
        assert_eq!(connected.err(), Some(ConnectError::Timeout));
    });
}

#[test]
fn connections_of_one_client_resume_sessions() {
    let rig = Rig::new();
    let tickets = TicketKeys::open(&TicketOptions::Random, crate::sys::Clock::system());
    let tickets = tickets.expect("no file").map(std::sync::Arc::new);
    let pair = rig.pair("server", &rig.authority.server(&["localhost"]));
    let listener = ListenerTls {
        certificates: vec![pair],
        ..ListenerTls::default()
    };
    let (options, mut loader) = (Options::default(), Loader::default());
    let shared = (tickets.as_ref(), &std::sync::Arc::default());
    let server = Server::open(&options, &listener, &[], &[], shared, &mut loader);
    let server = server.expect("a server");
    let client = Client::open(&rig.options()).expect("the options are valid");
    for resumed in [false, true] {
        run(async {
            let (near, far) = connect_split(&client, &server, "localhost", 1 << 20).await;
            let (mut near, mut far) = (near.expect("connected"), far.expect("accepted"));
            // The tickets come before the first bytes.
            write(&mut far, b"x").await.expect("written");
            read(&mut near, &mut [0]).await.expect("read");
            let session = Session::of(near.session()).expect("a session");
            assert_eq!(session.resumed(), resumed);
        });
    }
}

#[test]
fn every_reason_has_a_name_and_a_text() {
    let error = ConnectError::of(&rustls::Error::DecryptError);
    assert_eq!(error, ConnectError::Malformed);
    assert_eq!(error.to_string(), "it broke the rules of TLS");
}
