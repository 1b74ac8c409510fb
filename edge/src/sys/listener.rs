//! Listening sockets: one per worker and listener.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::task::{Context, Poll, ready};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags};
use socket2::{Domain, Protocol, Socket, Type};

use super::Address;
use super::listen_address::ListenAddress;
use super::listen_options::{ListenOptions, is_without};
use super::net::Accepted;
use super::socket_file::{Permitted, SocketFile};
use super::watch::Watch;

/// A listener that is bound: its sockets, which accept connections at the same address.
pub struct Bound {
    /// One socket for each worker.
    pub sockets: Vec<Listener>,
    /// The address. If the configured port is 0, this is the port that the kernel has chosen.
    pub address: ListenAddress,
    /// The file of a Unix socket.
    pub file: Option<SocketFile>,
}

/// A listening socket of one worker.
pub struct Listener {
    io: Watch,
    local: Address,
    sized: bool,
}

impl Listener {
    /// Binds one listener, with a socket for each of `workers` workers.
    ///
    /// # Errors
    ///
    /// The address is in use or not available, or the kernel refuses an option.
    pub fn bind(
        address: &ListenAddress,
        options: &ListenOptions,
        workers: usize,
    ) -> io::Result<Bound> {
        match address {
            ListenAddress::Ip(address) => bind_ip(*address, options, workers),
            ListenAddress::Unix(path) => bind_unix(path, options, workers),
        }
    }

    fn new(fd: OwnedFd, options: &ListenOptions) -> io::Result<Listener> {
        let local = address_of(Some(rustix::net::getsockname(&fd)?));
        Ok(Listener {
            io: Watch::Unregistered(fd),
            local,
            sized: options.send_buffer.is_some(),
        })
    }

    /// Returns the address at which the socket listens.
    #[cfg(test)]
    pub fn local(&self) -> Address {
        self.local
    }

    /// Refuses new connections from now on, if that is possible: to a Unix socket. Connections that wait already can still be accepted.
    pub fn refuse_more(&mut self) {
        if let (Address::Unix, Ok(fd)) = (self.local, self.io.fd()) {
            // Other workers share the socket, and one of them may have done this already.
            let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Read);
        }
    }

    /// Waits until there may be a connection to accept. The caller then calls `accept` until it returns `None`.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.io.watched()?.poll_read_ready(cx))?.retain_ready();
        Poll::Ready(Ok(()))
    }

    /// Whether a connection waits to be accepted. If not, `poll_readable` waits for one.
    ///
    /// # Errors
    ///
    /// The system failed.
    pub fn has_waiting(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        // The guard is taken before the system call. If a connection arrives during the call, the guard therefore doesn't clear the
        // readiness that the new connection sets.
        let watched = self.io.watched()?;
        let guard = match watched.poll_read_ready(cx) {
            Poll::Ready(guard) => Some(guard?),
            Poll::Pending => None,
        };
        let waits = !is_without(watched.get_ref(), PollFlags::IN);
        if let Some(mut guard) = guard.filter(|_| !waits) {
            guard.clear_ready();
        }
        Ok(waits)
    }

    /// Accepts the next waiting connection; returns `None` if there is none.
    pub fn accept(&mut self, cx: &mut Context<'_>) -> io::Result<Option<Accepted>> {
        // The guard is taken before the system call. If a connection arrives during the call, the guard therefore doesn't clear the
        // readiness that the new connection sets.
        let guard = match &self.io {
            Watch::Registered(fd) => match fd.poll_read_ready(cx) {
                Poll::Ready(guard) => Some(guard?),
                Poll::Pending => None,
            },
            _ => None,
        };
        loop {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match rustix::net::acceptfrom_with(self.io.fd()?, flags) {
                Ok((fd, address)) => return self.accepted(fd, address_of(address)).map(Some),
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => {}
                Err(Errno::AGAIN) => {
                    if let Some(mut guard) = guard {
                        guard.clear_ready();
                    }
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn accepted(&self, fd: OwnedFd, address: Address) -> io::Result<Accepted> {
        let local = match self.local.ip().is_unspecified() {
            true => address_of(Some(rustix::net::getsockname(&fd)?)),
            false => self.local,
        };
        let sized = self.sized;
        Ok(Accepted {
            fd,
            address,
            local,
            sized,
        })
    }
}

/// Creates an IP socket for each worker, all bound to the same port (SO_REUSEPORT). The kernel distributes connections among these sockets.
fn bind_ip(address: SocketAddr, options: &ListenOptions, workers: usize) -> io::Result<Bound> {
    let mut address = available(address, options.ipv6_only);
    // Without this check, a program of the same user that listens with SO_REUSEPORT would get a part of the connections.
    let probe = tcp_socket(address, options.ipv6_only)?;
    probe.bind(&address.into())?;
    rustix::net::listen(&probe, 1)?;
    drop(probe);
    let mut sockets = Vec::with_capacity(workers);
    for _ in 0..workers {
        let socket = tcp_socket(address, options.ipv6_only)?;
        socket.set_reuse_port(true)?;
        // Accepted sockets inherit TCP_NODELAY, so no call per connection is needed.
        socket.set_tcp_nodelay(true)?;
        socket.bind(&address.into())?;
        let fd = OwnedFd::from(socket);
        options.apply(&fd)?;
        options.apply_tcp(&fd)?;
        rustix::net::listen(&fd, options.backlog())?;
        let listener = Listener::new(fd, options)?;
        // If the configured port is 0, the kernel chooses the first socket's port, and the other sockets get the same.
        if let Address::Ip(bound) = listener.local {
            address = bound;
        }
        sockets.push(listener);
    }
    Ok(Bound {
        sockets,
        address: address.into(),
        file: None,
    })
}

/// Returns the address to bind: on a machine without IPv6, all addresses are those of IPv4.
fn available(address: SocketAddr, ipv6_only: bool) -> SocketAddr {
    let is_all = address.is_ipv6() && address.ip().is_unspecified() && !ipv6_only;
    if !is_all {
        return address;
    }
    let lacks_ipv6 = match tcp_socket(address, false) {
        Ok(socket) => matches!(
            socket
                .bind(&address.into())
                .map_err(|error| Errno::from_io_error(&error)),
            Err(Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
        ),
        Err(error) => Errno::from_io_error(&error) == Some(Errno::AFNOSUPPORT),
    };
    match lacks_ipv6 {
        true => (Ipv4Addr::UNSPECIFIED, address.port()).into(),
        false => address,
    }
}

/// Creates a socket for this address, in non-blocking mode. With `ipv6_only`, an IPv4 address with the same port stays free.
fn tcp_socket(address: SocketAddr, ipv6_only: bool) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(ipv6_only)?;
    }
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// Binds a single listening socket, in non-blocking mode. An IPv6 socket accepts only IPv6 connections.
///
/// # Errors
///
/// The address is in use or not available.
pub fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = tcp_socket(address, true)?;
    socket.bind(&address.into())?;
    rustix::net::listen(&socket, ListenOptions::default().backlog())?;
    Ok(socket.into())
}

/// Creates a single Unix socket, in non-blocking mode, to which only root and the user with these ids, or that of this process, may
/// connect.
///
/// # Errors
///
/// A process listens at the path, another kind of file is there, or the folder can't be written.
pub fn bind_private(
    path: &Path,
    owner: Option<(u32, u32)>,
) -> io::Result<(UnixListener, SocketFile)> {
    let backlog = ListenOptions::default().backlog();
    let (fd, file) = SocketFile::listen(path, backlog, Permitted::Owner(owner))?;
    Ok((fd.into(), file))
}

/// Creates a Unix socket that all workers share: each has a descriptor of its own for the same socket.
fn bind_unix(path: &Path, options: &ListenOptions, workers: usize) -> io::Result<Bound> {
    let (fd, file) = SocketFile::listen(path, options.backlog(), Permitted::Everybody)?;
    options.apply(&fd)?;
    let sockets = (0..workers).map(|_| Listener::new(fd.try_clone()?, options));
    Ok(Bound {
        sockets: sockets.collect::<io::Result<_>>()?,
        address: path.to_owned().into(),
        file: Some(file),
    })
}

/// Converts an address from the kernel's form. All sockets here are IP or Unix sockets, and a Unix client usually has no address.
fn address_of(address: Option<SocketAddrAny>) -> Address {
    match address.map(SocketAddr::try_from) {
        Some(Ok(address)) => Address::Ip(address),
        _ => Address::Unix,
    }
}

/// Whether accepting failed because descriptors or memory ran out. The connection stays in the queue, so accepting again at once would fail
/// in an endless loop.
pub fn is_exhausted(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}
