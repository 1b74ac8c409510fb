//! A single handshake of TLS with the settings of a load, for the reason of its failure. A load only counts failures.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustls::{AlertDescription, CertificateError, ClientConnection, Error};

use super::tls::{HTTP2, LoadTls, Protocol, Secrets};

/// Longest wait for a connection or for bytes.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Time after which the handshake is given up.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// The error of a server's certificate that is that of an authority. rustls has no variant for it.
const AUTHORITY: &str = "CaUsedAsEndEntity";

/// The kind of a failed handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// The connection could not be made, or ended before the handshake was complete.
    Connection,
    /// The server's bytes are not TLS.
    NoTls,
    /// The server has not agreed to HTTP/2.
    NoHttp2,
    /// No trusted authority signed the certificate.
    UnknownIssuer,
    /// The server's certificate is that of an authority.
    Authority,
    /// The certificate has other names than the URL.
    Name,
    /// The certificate has expired, or is not valid yet.
    Expired,
    /// The certificate is not accepted for another reason.
    Certificate,
    /// Any other failure.
    Other,
}

/// A failed handshake.
#[derive(Debug)]
pub struct HandshakeError {
    /// The kind of the failure.
    pub kind: HandshakeFailure,
    /// The reason, in words of the TLS library or of the system.
    pub reason: String,
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".to_owned(),
            _ => error.to_string(),
        };
        HandshakeError {
            kind: HandshakeFailure::Connection,
            reason,
        }
    }
}

impl From<Error> for HandshakeError {
    fn from(error: Error) -> HandshakeError {
        let kind = match &error {
            Error::InvalidMessage(_) => HandshakeFailure::NoTls,
            Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
                HandshakeFailure::NoHttp2
            }
            Error::InvalidCertificate(error) => of_certificate(error),
            _ => HandshakeFailure::Other,
        };
        HandshakeError {
            kind,
            reason: error.to_string(),
        }
    }
}

fn of_certificate(error: &CertificateError) -> HandshakeFailure {
    match error {
        CertificateError::UnknownIssuer => HandshakeFailure::UnknownIssuer,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            HandshakeFailure::Name
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => HandshakeFailure::Expired,
        CertificateError::Other(other) if other.to_string().contains(AUTHORITY) => {
            HandshakeFailure::Authority
        }
        _ => HandshakeFailure::Certificate,
    }
}

impl LoadTls {
    /// Makes one connection to the server and completes the handshake of TLS. With `is_http2`, the client offers only
    /// HTTP/2, to which the server has to agree.
    ///
    /// # Errors
    ///
    /// The settings are invalid, no connection can be made, the handshake takes more than 5 s, or it fails.
    pub fn handshake(&self, target: SocketAddr, is_http2: bool) -> Result<(), HandshakeError> {
        let protocol = match is_http2 {
            true => Protocol::Http2,
            false => Protocol::Http1,
        };
        let secrets = Secrets::of(self, protocol).map_err(|error| HandshakeError {
            kind: HandshakeFailure::Other,
            reason: format!("{error:#}"),
        })?;
        let mut connection = secrets.connection()?;
        let mut socket = TcpStream::connect_timeout(&target, WAIT_MAX)?;
        socket.set_read_timeout(Some(WAIT_MAX))?;
        socket.set_write_timeout(Some(WAIT_MAX))?;
        complete(&mut connection, &mut socket)?;
        match is_http2 && connection.alpn_protocol() != Some(HTTP2) {
            false => Ok(()),
            true => Err(HandshakeError {
                kind: HandshakeFailure::NoHttp2,
                reason: "the server did not choose HTTP/2".to_owned(),
            }),
        }
    }
}

fn complete(
    connection: &mut ClientConnection,
    socket: &mut TcpStream,
) -> Result<(), HandshakeError> {
    let end = Instant::now() + HANDSHAKE_MAX;
    while connection.is_handshaking() {
        while connection.wants_write() {
            connection.write_tls(socket)?;
        }
        if Instant::now() > end {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        if connection.wants_read() && connection.read_tls(socket)? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        connection.process_new_packets()?;
    }
    Ok(())
}
