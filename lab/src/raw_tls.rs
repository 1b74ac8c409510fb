//! A TLS client that sends any records after its handshake: empty ones, or handshake messages within a session.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, ContentType, ProtocolVersion,
    RootCertStore, SupportedCipherSuite, SupportedProtocolVersion,
};
use socket2::{Domain, Socket, Type};

/// Longest wait for the server in a handshake.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Length of the part of a TLS 1.2 nonce that is not sent (RFC 5288 3).
const SALT_BYTES: usize = 4;

/// A connection on which the handshake is complete.
pub struct RawTls {
    socket: TcpStream,
    encrypter: Box<dyn MessageEncrypter>,
    /// Number of the next record.
    sequence: u64,
}

/// Returns the configuration of clients that speak this version of TLS with AES-128, and trust this authority (a
/// certificate in DER).
pub fn config(authority: &[u8], version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let mut provider = default_provider();
    provider.cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ];
    let mut roots = RootCertStore::empty();
    roots
        .add(authority.to_vec().into())
        .expect("a certificate of an authority");
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .expect("a suite for each version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    Arc::new(config)
}

/// Opens a connection from this address, or from one that the kernel chooses.
pub fn connect(address: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if let Some(source) = source {
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    socket.connect_timeout(&address.into(), TIMEOUT)?;
    let socket = TcpStream::from(socket);
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    Ok(socket)
}

impl RawTls {
    /// Completes a handshake with the server of this name, with a configuration of [`config`].
    pub fn handshake(
        mut socket: TcpStream,
        config: &Arc<ClientConfig>,
        name: &str,
    ) -> io::Result<RawTls> {
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let mut session = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
        while session.is_handshaking() || session.wants_write() {
            session.complete_io(&mut socket)?;
        }
        let suite = session.negotiated_cipher_suite();
        let suite = suite.ok_or(ErrorKind::NotConnected)?;
        let secrets = session
            .dangerous_extract_secrets()
            .map_err(io::Error::other)?;
        let (sequence, secrets) = secrets.tx;
        let mut tls = RawTls {
            socket,
            encrypter: encrypter(suite, secrets).ok_or(ErrorKind::Unsupported)?,
            sequence: 0,
        };
        // The cipher checks the order of nonces, so it has to see those of the records that were sent in the handshake.
        while tls.sequence < sequence {
            tls.seal(ContentType::ApplicationData, b"")?;
        }
        Ok(tls)
    }

    /// Sends these records in one write.
    pub fn send(&mut self, records: &[(ContentType, &[u8])]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for (typ, payload) in records {
            bytes.extend(self.seal(*typ, payload)?);
        }
        self.socket.write_all(&bytes)
    }

    /// Encrypts the next record.
    fn seal(&mut self, typ: ContentType, payload: &[u8]) -> io::Result<Vec<u8>> {
        let record = OutboundPlainMessage {
            typ,
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(payload),
        };
        let sealed = self.encrypter.encrypt(record, self.sequence);
        self.sequence += 1;
        Ok(sealed.map_err(io::Error::other)?.encode())
    }

    /// Waits until the server closes the connection. Returns false after ten seconds without a byte.
    pub fn wait_closed(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                }
            }
        }
    }

    /// Returns the socket.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }
}

fn encrypter(
    suite: SupportedCipherSuite,
    secrets: ConnectionTrafficSecrets,
) -> Option<Box<dyn MessageEncrypter>> {
    let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
        return None;
    };
    Some(match suite {
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.encrypter(key, iv),
        SupportedCipherSuite::Tls12(suite) => {
            let (salt, explicit) = iv.as_ref().split_at_checked(SALT_BYTES)?;
            suite.aead_alg.encrypter(key, salt, explicit)
        }
    })
}
