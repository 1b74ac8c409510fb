//! The byte stream of a client's connection, in clear text or with TLS.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, NamedGroup, RootCertStore, StreamOwned};

/// Settings of a client's TLS.
#[derive(Clone)]
pub struct ClientTls {
    /// The configuration. Connections with the same one resume one another's sessions.
    pub config: Arc<ClientConfig>,
    /// The name of the server, which the client sends and verifies.
    pub name: String,
}

impl ClientTls {
    /// Returns settings of a client that trusts this authority (a certificate in DER).
    pub fn trusting(authority: &[u8], name: &str) -> ClientTls {
        ClientTls {
            config: Arc::new(config(authority)),
            name: name.to_owned(),
        }
    }
}

/// Returns the configuration of a client that trusts this authority (a certificate in DER).
pub fn config(authority: &[u8]) -> ClientConfig {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    // As browsers do, the client prefers the group that withstands quantum computers.
    provider
        .kx_groups
        .sort_by_key(|group| group.name() != NamedGroup::X25519MLKEM768);
    config_with(authority, provider)
}

/// Returns the configuration of a client that trusts this authority (a certificate in DER), with the suites and groups
/// of this provider.
pub fn config_with(authority: &[u8], provider: CryptoProvider) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots
        .add(authority.to_vec().into())
        .expect("a certificate of an authority");
    ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for all versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientTls({})", self.name)
    }
}

/// Addresses to which all clients of this process use TLS.
static ENCRYPTED: LazyLock<Mutex<HashMap<SocketAddr, ClientTls>>> = LazyLock::new(Mutex::default);

/// Makes all clients use TLS on connections to this address from now on, unless their options say otherwise.
pub fn encrypt_all_to(address: SocketAddr, tls: ClientTls) {
    ENCRYPTED.lock().insert(address, tls);
}

/// Makes clients use no TLS on connections to this address, unless their options say otherwise.
pub fn encrypt_none_to(address: SocketAddr) {
    ENCRYPTED.lock().remove(&address);
}

/// Undoes `encrypt_all_to` with these settings. Nothing changes if another server has got the same address since then.
pub fn undo_encrypt_all_to(address: SocketAddr, tls: &ClientTls) {
    let mut encrypted = ENCRYPTED.lock();
    let is_same = |current: &ClientTls| Arc::ptr_eq(&current.config, &tls.config);
    if encrypted.get(&address).is_some_and(is_same) {
        encrypted.remove(&address);
    }
}

/// Whether clients use TLS on connections to this address, unless their options say otherwise.
pub fn encrypts_to(address: SocketAddr) -> bool {
    ENCRYPTED.lock().contains_key(&address)
}

pub(super) fn default_for(address: SocketAddr) -> Option<ClientTls> {
    ENCRYPTED.lock().get(&address).cloned()
}

/// Addresses to which all clients of this process speak HTTP/2.
static HTTP2: LazyLock<Mutex<HashMap<SocketAddr, Http2Mark>>> = LazyLock::new(Mutex::default);

/// A call of `speak_http2_to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Mark(u64);

/// Makes all clients speak HTTP/2 on connections to this address from now on, unless their options say otherwise.
pub fn speak_http2_to(address: SocketAddr) -> Http2Mark {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mark = Http2Mark(NEXT.fetch_add(1, Ordering::Relaxed));
    HTTP2.lock().insert(address, mark);
    mark
}

/// Makes clients speak HTTP/1.1 on connections to this address, unless their options say otherwise.
pub fn speak_http1_to(address: SocketAddr) {
    HTTP2.lock().remove(&address);
}

/// Undoes this call of `speak_http2_to`. Nothing changes if another server has got the same address since then.
pub fn undo_speak_http2_to(address: SocketAddr, mark: Http2Mark) {
    let mut marks = HTTP2.lock();
    if marks.get(&address) == Some(&mark) {
        marks.remove(&address);
    }
}

pub(super) fn speaks_http2_to(address: SocketAddr) -> bool {
    HTTP2.lock().contains_key(&address)
}

/// A connection to a server. The TLS handshake begins with the first read or write.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    pub(super) fn new(socket: TcpStream, tls: Option<&ClientTls>) -> io::Result<Stream> {
        let Some(tls) = tls else {
            return Ok(Stream::Plain(socket));
        };
        let name = ServerName::try_from(tls.name.clone()).map_err(io::Error::other)?;
        let session = ClientConnection::new(tls.config.clone(), name).map_err(io::Error::other)?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(session, socket))))
    }

    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => &tls.sock,
        }
    }

    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }

    pub(super) fn session(&self) -> Option<&ClientConnection> {
        match self {
            Stream::Plain(_) => None,
            Stream::Tls(tls) => Some(&tls.conn),
        }
    }

    /// Completes the handshake.
    pub(super) fn handshake(&mut self) -> io::Result<()> {
        let Stream::Tls(tls) = self else {
            return Ok(());
        };
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        Ok(())
    }

    /// Ends the sending direction with `close_notify`, if the connection has TLS.
    pub(super) fn notify_close(&mut self) -> io::Result<()> {
        if let Stream::Tls(tls) = self {
            tls.conn.send_close_notify();
            while tls.conn.wants_write() {
                tls.conn.write_tls(&mut tls.sock)?;
            }
        }
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(buf),
            Stream::Tls(tls) => match tls.read(buf) {
                // The server closed without `close_notify`. The framing of HTTP shows whether something is missing.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
                read => read,
            },
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(tls) => tls.flush(),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket().fmt(f)
    }
}
