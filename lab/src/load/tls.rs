//! TLS of the load generator's connections.

use std::fs;
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

use crate::client::tls_config;

/// TLS of a load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadTls {
    /// File with the certificate of the server's authority, in DER.
    pub authority: PathBuf,
    /// Name of the server.
    pub name: String,
    /// Group of the key exchange, such as `X25519`; `None`: the client's preferred group.
    pub group: Option<String>,
    /// Whether connections resume earlier sessions.
    pub resumed: bool,
}

/// The client's side of TLS, which all connections of a load share.
#[derive(Debug, Clone)]
pub(super) struct Secrets {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Secrets {
    pub(super) fn of(tls: &LoadTls) -> anyhow::Result<Secrets> {
        let mut config = tls_config(&fs::read(&tls.authority)?);
        if let Some(group) = &tls.group {
            let mut provider = (**config.crypto_provider()).clone();
            provider
                .kx_groups
                .retain(|one| format!("{:?}", one.name()) == *group);
            anyhow::ensure!(!provider.kx_groups.is_empty(), "unknown group {group}");
            config = crate::client::tls_config_with(&fs::read(&tls.authority)?, provider);
        }
        if !tls.resumed {
            config.resumption = Resumption::disabled();
        }
        Ok(Secrets {
            config: Arc::new(config),
            name: ServerName::try_from(tls.name.clone()).context("the name of the server")?,
        })
    }

    /// Begins a session.
    pub(super) fn session(&self) -> Option<Session> {
        let connection = ClientConnection::new(self.config.clone(), self.name.clone()).ok()?;
        Some(Session {
            connection: Box::new(connection),
            is_queued: false,
        })
    }
}

/// The TLS session of one connection.
#[derive(Debug)]
pub(super) struct Session {
    connection: Box<ClientConnection>,
    /// Whether the current request has been encrypted or waits for the end of the handshake.
    is_queued: bool,
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

    /// Reads decrypted bytes. Returns `None` if no bytes are available, and 0 at the end.
    pub(super) fn read(
        &mut self,
        socket: &OwnedFd,
        buffer: &mut [u8],
    ) -> io::Result<Option<usize>> {
        loop {
            match self.connection.reader().read(buffer) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(0)),
                Err(error) => return Err(error),
            }
            match self.connection.read_tls(&mut Wire(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.flush(socket)?;
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
            self.connection
                .process_new_packets()
                .map_err(io::Error::other)?;
            self.flush(socket)?;
        }
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
