//! The socket of a connection with HTTP/2, with or without TLS.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};

use super::super::response::Failure;
use super::super::slot::connect_failure;
use super::super::socket::{self, Sources};
use super::super::tls::{Secrets, Session};

/// A socket that does not block.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: OwnedFd,
    session: Option<Session>,
    /// Whether a byte was sent, so that the connection was made.
    is_connected: bool,
    /// Whether the server is known to have chosen HTTP/2 in the handshake.
    is_agreed: bool,
}

impl Link {
    /// Begins to connect.
    pub(super) fn open(
        target: &SocketAddr,
        sources: &mut Sources,
        secrets: Option<&Secrets>,
    ) -> Result<Link, Failure> {
        let session = match secrets {
            Some(secrets) => Some(secrets.session().ok_or(Failure::Tls)?),
            None => None,
        };
        Ok(Link {
            socket: socket::connect(target, sources)?,
            is_agreed: session.is_none(),
            session,
            is_connected: false,
        })
    }

    /// Whether the connection was made. The handshake of TLS may not be complete.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Sends bytes, and removes those that were sent. Returns whether the socket took all of them. During a handshake,
    /// bytes may remain although the socket takes more.
    pub(super) fn write(&mut self, out: &mut Vec<u8>) -> Result<bool, Failure> {
        if let Some(session) = &mut self.session {
            let taken = session.write(&self.socket, out);
            let taken = taken.map_err(|error| self.failure(&error))?;
            out.drain(..taken);
            let session = self.session.as_ref();
            let is_sent = !session.is_some_and(Session::has_unsent);
            let must_wait = session.is_some_and(Session::is_handshaking);
            self.is_connected |= is_sent;
            return Ok(is_sent && (must_wait || out.is_empty()));
        }
        while !out.is_empty() {
            match net::send(&self.socket, out, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    self.is_connected = true;
                    out.drain(..sent);
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failure(&error.into())),
            }
        }
        Ok(true)
    }

    /// Reads received bytes. Returns `None` if no bytes are available, and 0 at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Failure> {
        let Some(session) = &mut self.session else {
            return match net::recv(self.socket.as_fd(), buffer, RecvFlags::empty()) {
                Ok((_, count)) => Ok(Some(count)),
                Err(Errno::AGAIN | Errno::INTR) => Ok(None),
                Err(error) => Err(self.failure(&error.into())),
            };
        };
        let read = session.read(&self.socket, buffer);
        if !self.is_agreed && !session.is_handshaking() {
            if !session.is_http2() {
                return Err(Failure::Tls);
            }
            self.is_agreed = true;
        }
        read.map_err(|error| self.failure(&error))
    }

    /// Whether the last read found all bytes that had arrived. If not, the socket causes no event for the others.
    pub(super) fn is_drained(&self) -> bool {
        self.session.as_ref().is_none_or(Session::is_drained)
    }

    /// Returns the failure of a connection that could not be made, or has ended.
    fn failure(&self, error: &io::Error) -> Failure {
        match error.raw_os_error() {
            Some(code) if !self.is_connected => {
                connect_failure(Errno::from_raw_os_error(code), self.cut())
            }
            _ => self.cut(),
        }
    }

    /// Returns the failure of a connection that has ended.
    fn cut(&self) -> Failure {
        let session = self.session.as_ref();
        match session.is_some_and(Session::is_handshaking) {
            true => Failure::Tls,
            false => Failure::Closed,
        }
    }
}
