//! The reasons for which TLS with a server fails.

use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

use super::stream::HandshakeError;

/// The reason for which TLS with a server failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// No trusted authority has signed the server's certificate.
    NotTrusted,
    /// The server's certificate is none of those that are expected.
    OtherCertificate,
    /// The server's certificate has expired.
    Expired,
    /// The server's certificate is not valid yet.
    NotValidYet,
    /// The server's certificate is for other names.
    WrongName,
    /// The server's certificate can't be used: it is malformed, revoked, or not for servers.
    Certificate,
    /// Client and server have no version of TLS in common.
    Version,
    /// Client and server have no cipher suite, group or signature scheme in common.
    Parameters,
    /// Client and server have no protocol in common (ALPN).
    Protocol,
    /// The server does not know the name that the client sent (SNI).
    UnknownName,
    /// The server wants a client certificate, or another one.
    ClientCertificate,
    /// The server refused the connection with another alert.
    ByServer,
    /// The server does not speak TLS.
    NotTls,
    /// The server broke the rules of TLS.
    Malformed,
    /// The handshake took too long.
    Timeout,
    /// The server closed the connection.
    Closed,
    /// The client failed.
    Internal,
}

impl ConnectError {
    /// Returns the reason for an error of rustls.
    pub fn of(error: &Error) -> ConnectError {
        match error {
            Error::InvalidCertificate(error) => ConnectError::of_certificate(error),
            Error::NoCertificatesPresented | Error::UnsupportedNameType => {
                ConnectError::Certificate
            }
            Error::PeerIncompatible(
                PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
            ) => ConnectError::Version,
            Error::PeerIncompatible(_) => ConnectError::Parameters,
            Error::NoApplicationProtocol => ConnectError::Protocol,
            Error::AlertReceived(alert) => ConnectError::of_alert(*alert),
            // The first byte is the type of a record (RFC 8446 5.1).
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => ConnectError::NotTls,
            Error::InvalidMessage(_)
            | Error::PeerMisbehaved(_)
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. }
            | Error::DecryptError
            | Error::PeerSentOversizedRecord => ConnectError::Malformed,
            _ => ConnectError::Internal,
        }
    }

    /// Returns the reason if an error of reading or writing is one of TLS.
    pub fn of_io(error: &io::Error) -> Option<ConnectError> {
        let inner = error.get_ref()?.downcast_ref()?;
        Some(ConnectError::of(inner))
    }

    fn of_certificate(error: &CertificateError) -> ConnectError {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                ConnectError::Expired
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                ConnectError::NotValidYet
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                ConnectError::WrongName
            }
            CertificateError::ApplicationVerificationFailure => ConnectError::OtherCertificate,
            // Another authority with the name of a trusted one gives `BadSignature`. `Other` is the certificate of an
            // authority, as `openssl req -x509` makes it for a server.
            CertificateError::UnknownIssuer
            | CertificateError::BadSignature
            | CertificateError::Other(_) => ConnectError::NotTrusted,
            _ => ConnectError::Certificate,
        }
    }

    fn of_alert(alert: AlertDescription) -> ConnectError {
        use AlertDescription as Alert;
        match alert {
            Alert::CloseNotify => ConnectError::Closed,
            Alert::ProtocolVersion => ConnectError::Version,
            Alert::HandshakeFailure | Alert::InsufficientSecurity => ConnectError::Parameters,
            Alert::NoApplicationProtocol => ConnectError::Protocol,
            Alert::UnrecognisedName => ConnectError::UnknownName,
            Alert::CertificateRequired
            | Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied => ConnectError::ClientCertificate,
            _ => ConnectError::ByServer,
        }
    }

    /// Returns a description, to be read after the name of the server.
    pub fn text(self) -> &'static str {
        match self {
            ConnectError::NotTrusted => "its certificate is not trusted",
            ConnectError::OtherCertificate => "its certificate is not the configured one",
            ConnectError::Expired => "its certificate has expired",
            ConnectError::NotValidYet => "its certificate is not valid yet",
            ConnectError::WrongName => "its certificate is for other names",
            ConnectError::Certificate => "its certificate can't be used",
            ConnectError::Version => "it supports only other versions of TLS",
            ConnectError::Parameters => {
                "there is no cipher suite, group or signature scheme that both sides support"
            }
            ConnectError::Protocol => "it supports only other protocols (ALPN)",
            ConnectError::UnknownName => "it does not know this name (SNI)",
            ConnectError::ClientCertificate => "it refused the client certificate, or wants one",
            ConnectError::ByServer => "it refused the TLS handshake",
            ConnectError::NotTls => "it does not speak TLS",
            ConnectError::Malformed => "it broke the rules of TLS",
            ConnectError::Timeout => "the TLS handshake took too long",
            ConnectError::Closed => "it closed the connection in the TLS handshake",
            ConnectError::Internal => "TLS failed on this side",
        }
    }
}

impl From<HandshakeError> for ConnectError {
    fn from(error: HandshakeError) -> ConnectError {
        match error {
            HandshakeError::Closed => ConnectError::Closed,
            HandshakeError::Failed(error) => ConnectError::of(&error),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for ConnectError {}
