//! Errors of the test client, and the ends of connections that it observes.

use std::fmt;
use std::io::{self, ErrorKind};

/// Reason why a reply could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// No bytes of the reply arrived within the timeout.
    Timeout,
    /// The connection was closed before a response head was complete. The value contains the bytes received, which are
    /// none in HTTP/2.
    Closed(Vec<u8>),
    /// The connection, or the stream of HTTP/2, was reset before a response head was complete.
    Reset,
    /// The response violates RFC 9112 or RFC 9113. The text describes the violation.
    Malformed(String),
    /// Another I/O error occurred on the connection.
    Io(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Timeout => write!(out, "no bytes arrived within the timeout"),
            ReadError::Closed(bytes) => {
                write!(out, "closed after {:?}", String::from_utf8_lossy(bytes))
            }
            ReadError::Reset => write!(out, "reset"),
            ReadError::Malformed(what) => write!(out, "malformed: {what}"),
            ReadError::Io(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => ReadError::Timeout,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => ReadError::Reset,
            _ => ReadError::Io(error),
        }
    }
}

/// Result of waiting for the server to close the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// The server has closed the connection with a FIN.
    Fin,
    /// The server has reset the connection.
    Reset,
    /// The server has sent more bytes, which can be read.
    Data,
    /// The connection stayed open and silent for the whole time.
    Open,
}
