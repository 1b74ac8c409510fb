//! The address at which a listener accepts connections.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An IP address and a port. Port 0 is a free port.
    Ip(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Returns the IP address and port, `None` for a Unix socket.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            ListenAddress::Ip(address) => Some(*address),
            ListenAddress::Unix(_) => None,
        }
    }

    /// Whether only clients on this machine can connect.
    pub fn is_local(&self) -> bool {
        self.ip().is_none_or(|address| address.ip().is_loopback())
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> ListenAddress {
        ListenAddress::Ip(address)
    }
}

impl From<PathBuf> for ListenAddress {
    fn from(path: PathBuf) -> ListenAddress {
        ListenAddress::Unix(path)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Ip(address) => address.fmt(f),
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
