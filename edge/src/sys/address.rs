//! The address of one end of a connection.

use std::fmt;
use std::net::{AddrParseError, IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// The address of one end of a connection, over TCP or a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// An IP address and a port.
    Ip(SocketAddr),
    /// A Unix socket on this machine. Clients of Unix sockets have no address of their own.
    Unix,
}

impl Address {
    /// Returns the IP address. For a Unix socket, this is 127.0.0.1, since the client is on this machine.
    pub fn ip(self) -> IpAddr {
        match self {
            Address::Ip(address) => address.ip(),
            Address::Unix => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Returns the port; 0 for a Unix socket.
    pub fn port(self) -> u16 {
        match self {
            Address::Ip(address) => address.port(),
            Address::Unix => 0,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Ip(address)
    }
}

impl<I: Into<IpAddr>> From<(I, u16)> for Address {
    fn from(address: (I, u16)) -> Address {
        Address::Ip(address.into())
    }
}

impl FromStr for Address {
    type Err = AddrParseError;

    /// Parses an IP address with a port.
    fn from_str(text: &str) -> Result<Address, AddrParseError> {
        text.parse().map(Address::Ip)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(address) => address.fmt(f),
            Address::Unix => f.write_str("unix:"),
        }
    }
}
