//! TLS of the load generator's connections.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use serde::{Deserialize, Serialize};

use super::trust;

/// Maximum number of reads from the socket in search of decrypted bytes. Records may have none.
const SEARCH_MAX: usize = 32;
/// The name of HTTP/2 over TLS (RFC 9113 3.2).
pub(super) const HTTP2: &[u8] = b"h2";

/// TLS of a load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadTls {
    /// File with the certificate of the server's authority in DER, or with those of several authorities in PEM. An
    /// empty path accepts every certificate.
    pub authority: PathBuf,
    /// Name of the server.
    pub name: String,
    /// Group of the key exchange, such as `X25519`; `None`: the client's preferred group.
    pub group: Option<String>,
    /// Whether connections resume earlier sessions.
    pub resumed: bool,
}

impl LoadTls {
    /// Checks the settings without a connection.
    ///
    /// # Errors
    ///
    /// The file can't be read or has no certificate, or the group or the name of the server is invalid.
    pub fn check(&self) -> anyhow::Result<()> {
        Secrets::of(self, Protocol::Http1).map(drop)
    }
}

/// The protocol that the client offers in the handshake (ALPN).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP/1.1, without an offer.
    Http1,
    Http2,
}

/// The client's side of TLS, which all connections of a load share.
#[derive(Debug, Clone)]
pub(super) struct Secrets {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Secrets {
    pub(super) fn of(tls: &LoadTls, protocol: Protocol) -> anyhow::Result<Secrets> {
        let mut provider = trust::provider();
        if let Some(group) = &tls.group {
            provider
                .kx_groups
                .retain(|one| format!("{:?}", one.name()) == *group);
            anyhow::ensure!(!provider.kx_groups.is_empty(), "unknown group {group}");
        }
        let mut config = trust::config(&tls.authority, provider)?;
        if !tls.resumed {
            config.resumption = Resumption::disabled();
        }
        if protocol == Protocol::Http2 {
            config.alpn_protocols = vec![HTTP2.to_vec()];
        }
        Ok(Secrets {
            config: Arc::new(config),
            name: ServerName::try_from(tls.name.clone()).context("the name of the server")?,
        })
    }

    /// Returns the client's side of a new connection.
    pub(super) fn connection(&self) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(self.config.clone(), self.name.clone())
    }

    /// Begins a session.
    pub(super) fn session(&self) -> Option<Session> {
        Some(Session {
            connection: Box::new(self.connection().ok()?),
            is_queued: false,
            is_drained: false,
        })
    }
}

/// The TLS session of one connection.
#[derive(Debug)]
pub(super) struct Session {
    connection: Box<ClientConnection>,
    /// Whether the current request has been encrypted or waits for the end of the handshake.
    is_queued: bool,
    /// Whether the last read found that the socket has no bytes.
    is_drained: bool,
}

impl Session {
    /// Sends a request, or continues to send it. Returns whether all available bytes were sent.
    pub(super) fn send(&mut self, socket: &OwnedFd, request: &[u8]) -> io::Result<bool> {
        if !self.is_queued {
            self.connection.writer().write_all(request)?;
            self.is_queued = true;
        }
        self.flush(socket)
    }

    /// Takes as many of these bytes as there is room for, and sends them. Returns the number of taken bytes; fewer than
    /// all if the socket takes no more now.
    pub(super) fn write(&mut self, socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = 0;
        loop {
            let count = self.connection.writer().write(&bytes[taken..])?;
            taken += count;
            if !self.flush(socket)? || count == 0 || taken == bytes.len() {
                return Ok(taken);
            }
        }
    }

    /// Whether encrypted bytes wait for the socket.
    pub(super) fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether the last read found all bytes that had arrived.
    pub(super) fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// Whether the handshake is not complete.
    pub(super) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the server has chosen HTTP/2. Valid after the handshake.
    pub(super) fn is_http2(&self) -> bool {
        self.connection.alpn_protocol() == Some(HTTP2)
    }

    /// Marks the current request as sent.
    pub(super) fn sent(&mut self) {
        self.is_queued = false;
    }

    fn flush(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Wire(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads decrypted bytes. Returns `None` if no bytes were found, and 0 after an announced end. Unless
    /// [`Session::is_drained`], more bytes may be found although the socket causes no event.
    ///
    /// Errors: a failed handshake, a violation of the protocol, or an end that was not announced.
    pub(super) fn read(
        &mut self,
        socket: &OwnedFd,
        buffer: &mut [u8],
    ) -> io::Result<Option<usize>> {
        self.is_drained = false;
        for _ in 0..SEARCH_MAX {
            match self.connection.reader().read(buffer) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match self.connection.read_tls(&mut Wire(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.flush(socket)?;
                    self.is_drained = true;
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
            let processed = self.connection.process_new_packets();
            // After an error, this sends the alert.
            let flushed = self.flush(socket);
            processed.map_err(io::Error::other)?;
            flushed?;
        }
        Ok(None)
    }
}

/// A non-blocking socket as a reader and writer.
struct Wire<'a>(&'a OwnedFd);

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match net::recv(self.0.as_fd(), buffer, RecvFlags::empty()) {
            Ok((_, count)) => Ok(count),
            Err(Errno::INTR) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
