//! The exact error for which a server could not be used, for messages.

use std::fmt;

use crate::reason::Reason;
use crate::sys::connect::Errno;
use crate::tls;

/// The exact error for which a server could not be connected to, or not be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorDetail {
    /// TLS failed.
    Tls(tls::ConnectError),
    /// The system could not open the connection.
    System(Errno),
    /// The server answers HTTP/2 in HTTP/1.
    Http1,
    /// The server answers HTTP/1 in HTTP/2.
    Http2,
}

impl ErrorDetail {
    /// Whether the error belongs to failures with this reason.
    pub(super) fn explains(self, reason: Reason) -> bool {
        match self {
            ErrorDetail::Tls(_) => reason == Reason::TlsFailed,
            ErrorDetail::System(_) => reason == Reason::ConnectFailed,
            ErrorDetail::Http1 | ErrorDetail::Http2 => reason == Reason::BadHead,
        }
    }
}

impl fmt::Display for ErrorDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorDetail::Tls(error) => error.fmt(f),
            ErrorDetail::System(error) => error.fmt(f),
            ErrorDetail::Http1 => f.write_str("it answers in HTTP/1: write http:// for h2c://"),
            ErrorDetail::Http2 => f.write_str("it answers in HTTP/2: write h2c:// for http://"),
        }
    }
}
