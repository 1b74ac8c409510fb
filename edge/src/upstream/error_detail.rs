//! The exact error for which a server could not be connected to, for messages.

use std::fmt;

use crate::reason::Reason;
use crate::sys::connect::Errno;
use crate::tls;

/// The exact error for which a server could not be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorDetail {
    /// TLS failed.
    Tls(tls::ConnectError),
    /// The system could not open the connection.
    System(Errno),
}

impl ErrorDetail {
    /// Whether the error belongs to failures with this reason.
    pub(super) fn explains(self, reason: Reason) -> bool {
        match self {
            ErrorDetail::Tls(_) => reason == Reason::TlsFailed,
            ErrorDetail::System(_) => reason == Reason::ConnectFailed,
        }
    }
}

impl fmt::Display for ErrorDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorDetail::Tls(error) => error.fmt(f),
            ErrorDetail::System(error) => error.fmt(f),
        }
    }
}
