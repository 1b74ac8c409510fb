//! The sockets of a load, and the addresses from which they connect.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::LoadPlan;
use super::response::Failure;
use super::schedule::Turn;

/// First port of connections whose source address the load generator chooses. These ports are free, because servers
/// listen on other addresses.
const FIRST_PORT: u16 = 1024;
const PORTS: u32 = 64_000;
/// Maximum number of source addresses.
const SOURCES: u32 = 1 << 16;

/// Fewest and most sources that are tried for one connection.
const TRIES_MIN: u32 = 16;
const TRIES_MAX: u32 = 1024;

/// Begins to connect to a server, from the next of these sources that is free.
pub(super) fn connect(target: &SocketAddr, sources: &mut Sources) -> Result<OwnedFd, Failure> {
    let mut connected = connect_from(target, sources.next());
    for _ in 1..sources.tries() {
        match connected {
            Err(Errno::ADDRINUSE | Errno::ADDRNOTAVAIL) => {
                connected = connect_from(target, sources.next());
            }
            _ => break,
        }
    }
    connected.map_err(Failure::Connect)
}

fn connect_from(target: &SocketAddr, source: Option<SocketAddr>) -> Result<OwnedFd, Errno> {
    let family = match target {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    if let Some(source) = source {
        // Without SO_REUSEADDR, a port could not be bound while an earlier connection from it is in TIME_WAIT.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        net::bind(&socket, &source)?;
    }
    // Each request is a single write, so TCP_NODELAY only saves time. If the kernel refuses it, that is no failure.
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    match net::connect(&socket, target) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// The source addresses and ports of the next connections.
#[derive(Debug)]
pub(super) struct Sources {
    /// Number of addresses; 0: the kernel chooses the address.
    count: u32,
    next: u32,
}

impl Sources {
    /// Returns the sources of one thread. Consecutive loads begin at different ports, so that they don't collide with
    /// connections in TIME_WAIT of an earlier load.
    pub(super) fn new(plan: &LoadPlan, turn: Turn) -> Sources {
        let count = match plan.target {
            SocketAddr::V4(_) => plan.sources.min(SOURCES),
            SocketAddr::V6(_) => 0,
        };
        let apart = u64::from(PORTS) * u64::from(count.max(1)) / turn.threads;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let first = now.map_or(0, |now| now.subsec_nanos());
        let next = u64::from(first) + apart * turn.number;
        Sources {
            count,
            next: next as u32,
        }
    }

    /// Returns the number of sources that are tried for one connection.
    fn tries(&self) -> u32 {
        match self.count {
            0 => 1,
            count => count.clamp(TRIES_MIN, TRIES_MAX),
        }
    }

    /// Returns the source of the next connection; `None` if the kernel chooses it. Ports are counted up here, because
    /// the kernel takes much longer to find a free port while thousands of connections are in TIME_WAIT.
    pub(super) fn next(&mut self) -> Option<SocketAddr> {
        if self.count == 0 {
            return None;
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let address = Ipv4Addr::from(0x7f01_0001 + number % self.count);
        let port = FIRST_PORT + (number / self.count % PORTS) as u16;
        Some(SocketAddr::from((address, port)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The first of these sources has an address that the other tests do not use.
    fn sources(count: u32) -> Sources {
        Sources {
            count,
            next: 30_000,
        }
    }

    fn port_of(address: SocketAddr) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("bound");
        (listener, address)
    }

    #[test]
    fn a_source_without_a_free_port_is_passed_over() {
        let (server, target) = port_of(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let mut all = sources(40_000);
        // The ports of two sources are in use.
        let used: Vec<SocketAddr> = (0..2).filter_map(|_| all.next()).collect();
        let _listeners: Vec<TcpListener> = used.iter().map(|one| port_of(*one).0).collect();
        let next = all.next();
        let socket = connect(&target, &mut sources(40_000)).expect("the third source is free");
        let (_, peer) = server.accept().expect("a connection");
        assert_eq!(Some(peer), next);
        drop(socket);
    }

    #[test]
    fn a_connection_fails_if_no_source_is_free() {
        let (_server, target) = port_of(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let mut one = Sources {
            count: 1,
            next: 40_000,
        };
        let taken = (0..TRIES_MIN).filter_map(|_| one.next());
        let _listeners: Vec<TcpListener> = taken.map(|one| port_of(one).0).collect();
        let mut one = Sources {
            count: 1,
            next: 40_000,
        };
        let failed = connect(&target, &mut one).expect_err("no source is free");
        assert_eq!(failed, Failure::Connect(Errno::ADDRINUSE));
        assert!(
            connect(&target, &mut one).is_ok(),
            "the next source is free"
        );
    }
}
