//! Fronts of a test origin: a front accepts connections over TLS or a Unix socket, and passes their bytes on to the
//! origin over TCP. Each connection has two threads.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig, ServerConnection};

use crate::certificates::{Authority, Pair};
use crate::origin::Ending;

/// Most bytes that are passed on at once.
const PART: usize = 16 << 10;

/// A handshake that a front has completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The name that the client sent (SNI).
    pub name: Option<String>,
    /// Whether a session was resumed.
    pub resumed: bool,
    /// Whether the client has sent a certificate.
    pub certified: bool,
}

/// A front with TLS, which accepts connections until it is dropped.
pub struct TlsFront {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// A front on a Unix socket, which accepts connections until it is dropped.
pub struct UnixFront {
    path: PathBuf,
    stopped: Arc<AtomicBool>,
}

struct Shared {
    origin: SocketAddr,
    config: Mutex<Arc<ServerConfig>>,
    handshakes: Mutex<Vec<Handshake>>,
    cut: Mutex<Option<Cut>>,
    /// Whether the end of the origin's bytes is not announced by a close_notify.
    is_abrupt: AtomicBool,
    sent: AtomicU64,
    stopped: AtomicBool,
}

/// The early end of a connection, also in the middle of a handshake or a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Number of encrypted bytes, those of the handshake included, that are sent before.
    pub after: u64,
    /// The way in which the connection is closed. No close_notify is sent.
    pub ending: Ending,
}

/// Returns the TLS of a server with this certificate. With `clients`, clients need a certificate that this authority has
/// signed.
pub fn config(pair: &Pair, clients: Option<&Authority>) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for all versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let der = authority.der().into();
            roots.add(der).expect("a certificate of an authority");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().expect("one authority"))
        }
    };
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
    let chain: Result<Vec<_>, _> = chain.collect();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key in PEM");
    let config = builder.with_single_cert(chain.expect("certificates in PEM"), key);
    let mut config = config.expect("the key belongs to the certificate");
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Returns the same TLS for an origin that speaks HTTP/2, which clients can choose by ALPN.
pub fn with_http2(config: &ServerConfig) -> Arc<ServerConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

impl TlsFront {
    /// Starts a front of the origin at this address, on a free port.
    pub fn start(origin: SocketAddr, config: Arc<ServerConfig>) -> io::Result<TlsFront> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            origin,
            config: Mutex::new(config),
            handshakes: Mutex::default(),
            cut: Mutex::default(),
            is_abrupt: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let shared = accepting.clone();
                // An error ends the connection, which its client sees.
                thread::spawn(move || encrypted(stream, &shared));
            }
        });
        Ok(TlsFront { address, shared })
    }

    /// Returns the address of the front.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the front.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the completed handshakes, in their order.
    pub fn handshakes(&self) -> Vec<Handshake> {
        self.shared.handshakes.lock().clone()
    }

    /// Returns the number of completed handshakes.
    pub fn handshake_count(&self) -> usize {
        self.shared.handshakes.lock().len()
    }

    /// Ends each new connection in this way.
    pub fn set_cut(&self, cut: Option<Cut>) {
        *self.shared.cut.lock() = cut;
    }

    /// Sets whether connections end without a close_notify, so that an end of the origin's bytes looks like a truncation
    /// (RFC 8446 6.1).
    pub fn set_abrupt(&self, is_abrupt: bool) {
        self.shared.is_abrupt.store(is_abrupt, Ordering::Relaxed);
    }

    /// Returns the number of encrypted bytes sent so far.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Uses another configuration for new connections.
    pub fn set_config(&self, config: Arc<ServerConfig>) {
        *self.shared.config.lock() = config;
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl UnixFront {
    /// Starts a front of the origin at this address, on a socket with this path.
    pub fn start(origin: SocketAddr, path: &Path) -> io::Result<UnixFront> {
        let listener = UnixListener::bind(path)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let is_stopped = stopped.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if is_stopped.load(Ordering::Relaxed) {
                    return;
                }
                thread::spawn(move || plain(stream, origin));
            }
        });
        Ok(UnixFront {
            path: path.to_owned(),
            stopped,
        })
    }

    /// Returns the URL of the front.
    pub fn url(&self) -> String {
        format!("unix:{}", self.path.display())
    }
}

impl Drop for UnixFront {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        let _ = UnixStream::connect(&self.path);
    }
}

/// Passes on the bytes of a connection in both directions.
fn plain(client: UnixStream, origin: SocketAddr) -> io::Result<()> {
    let origin = TcpStream::connect(origin)?;
    let (mut from_origin, mut to_client) = (origin.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from_origin, &mut to_client);
        let _ = to_client.shutdown(Shutdown::Write);
    });
    let (mut from_client, mut to_origin) = (client, origin);
    io::copy(&mut from_client, &mut to_origin)?;
    to_origin.shutdown(Shutdown::Write)
}

/// The client's end of a TLS connection. Two threads use it.
struct Session {
    connection: ServerConnection,
    client: TcpStream,
    cut: Option<Cut>,
    shared: Arc<Shared>,
}

impl Session {
    /// Writes all encrypted bytes, up to the cut.
    fn flush(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut bytes)?;
        }
        let left = self.cut.map_or(u64::MAX, |cut| cut.after);
        let length = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.client.write_all(&bytes[..length])?;
        let sent = length as u64;
        self.shared.sent.fetch_add(sent, Ordering::Relaxed);
        match &mut self.cut {
            Some(cut) if length < bytes.len() => {
                cut.after = 0;
                self.end()
            }
            Some(cut) => {
                cut.after -= sent;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Ends the connection before its time. Returns an error, which ends both threads.
    fn end(&self) -> io::Result<()> {
        if self.cut.is_some_and(|cut| cut.ending == Ending::Reset) {
            // With a linger time of zero, the close of the last descriptor sends a reset.
            socket2::SockRef::from(&self.client).set_linger(Some(Duration::ZERO))?;
            // Wakes the thread that reads, which sends nothing.
            self.client.shutdown(Shutdown::Read)?;
        } else {
            self.client.shutdown(Shutdown::Both)?;
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

/// Passes on the bytes of a connection in both directions. If that fails, the connection to the origin ends as well.
fn encrypted(client: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let mut origin = None;
    let passed = pass_on(client, shared, &mut origin);
    if let (Err(_), Some(origin)) = (&passed, origin) {
        // The other thread may be reading from it.
        origin.shutdown(Shutdown::Both)?;
    }
    passed
}

/// Completes a handshake, and passes on what the client sends after it. A second thread passes on what the origin sends.
fn pass_on(
    mut client: TcpStream,
    shared: &Arc<Shared>,
    origin: &mut Option<TcpStream>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    let config = shared.config.lock().clone();
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let session = Arc::new(Mutex::new(Session {
        connection,
        client: client.try_clone()?,
        cut: *shared.cut.lock(),
        shared: shared.clone(),
    }));
    let mut received = vec![0; PART];
    loop {
        let n = client.read(&mut received)?;
        let mut plain = Vec::new();
        let mut locked = session.lock();
        let mut bytes = &received[..n];
        while !bytes.is_empty() {
            locked.connection.read_tls(&mut bytes)?;
            let processed = locked.connection.process_new_packets();
            locked.flush()?;
            let left = processed.map_err(io::Error::other)?;
            let start = plain.len();
            plain.resize(start + left.plaintext_bytes_to_read(), 0);
            locked.connection.reader().read_exact(&mut plain[start..])?;
        }
        let is_complete = !locked.connection.is_handshaking();
        if is_complete && origin.is_none() {
            shared.handshakes.lock().push(handshake(&locked.connection));
            let opened = TcpStream::connect(shared.origin)?;
            let (from_origin, session) = (opened.try_clone()?, session.clone());
            thread::spawn(move || respond(from_origin, &session));
            *origin = Some(opened);
        }
        drop(locked);
        match origin {
            Some(origin) if n == 0 => return origin.shutdown(Shutdown::Write),
            Some(origin) => origin.write_all(&plain)?,
            None if n == 0 => return Ok(()),
            None => {}
        }
    }
}

/// Encrypts the origin's bytes.
fn respond(mut origin: TcpStream, session: &Mutex<Session>) -> io::Result<()> {
    let mut received = vec![0; PART];
    loop {
        let n = origin.read(&mut received)?;
        let mut session = session.lock();
        if n == 0 {
            if !session.shared.is_abrupt.load(Ordering::Relaxed) {
                session.connection.send_close_notify();
            }
            session.flush()?;
            return session.client.shutdown(Shutdown::Write);
        }
        session.connection.writer().write_all(&received[..n])?;
        session.flush()?;
    }
}

fn handshake(connection: &ServerConnection) -> Handshake {
    Handshake {
        name: connection.server_name().map(str::to_owned),
        resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        certified: connection.peer_certificates().is_some(),
    }
}
