//! The client of an admin connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::http::ClientId;

/// The client of an admin connection, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client over TCP.
    Ip(SocketAddr),
    /// A client of a Unix socket, with its user's id.
    Unix(Option<u32>),
}

/// A client to which failed tries are charged: an IPv4 address, an IPv6 network, or a user of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Charged {
    /// The number of an address or network.
    Network(u64),
    /// The id of a user.
    User(Option<u32>),
}

impl Peer {
    /// Whether the client is on this machine.
    pub fn is_local(self) -> bool {
        match self {
            Peer::Ip(address) => is_loopback(address.ip()),
            Peer::Unix(_) => true,
        }
    }

    /// Returns the client to which failed tries are charged.
    pub fn charged(self) -> Charged {
        match self {
            Peer::Ip(address) => Charged::Network(ClientId::of(address.ip()).number()),
            Peer::Unix(user) => Charged::User(user),
        }
    }
}

/// Whether only this machine can have this address. An IPv4 address mapped into IPv6 counts as IPv4.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Without the port, which tells nothing about the client.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Ip(address) => address.ip().to_canonical().fmt(f),
            Peer::Unix(Some(user)) => write!(f, "unix, user {user}"),
            Peer::Unix(None) => f.write_str("unix"),
        }
    }
}
