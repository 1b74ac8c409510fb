//! Which connections a server still has, as the kernel's table of sockets tells (proc_net_tcp): clients that do not read
//! don't learn of their end.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use rustix::net::SocketAddrAny;

/// Places in a line of the table.
const LOCAL: usize = 1;
const REMOTE: usize = 2;
const STATE: usize = 3;
const INODE: usize = 9;

/// The state of an open connection.
const ESTABLISHED: &str = "01";

/// The other ends of connections that a process has accepted at this address and not closed.
pub(super) fn held_by(server: SocketAddr) -> io::Result<HashSet<SocketAddr>> {
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    Ok(held_in(&table, server))
}

fn held_in(table: &str, server: SocketAddr) -> HashSet<SocketAddr> {
    let lines = table.lines().skip(1);
    lines.filter_map(|line| held(line, server)).collect()
}

fn held(line: &str, server: SocketAddr) -> Option<SocketAddr> {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(LOCAL)?;
    let remote = fields.nth(REMOTE - LOCAL - 1)?;
    let state = fields.nth(STATE - REMOTE - 1)?;
    // A socket that nobody has open, or has accepted, has none.
    let inode = fields.nth(INODE - STATE - 1)?;
    let open = state == ESTABLISHED && inode != "0" && parse(local)? == server;
    open.then(|| parse(remote)).flatten()
}

/// An address as the table has it: the four bytes as one number of this machine, in hexadecimal digits.
fn parse(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let address = u32::from_str_radix(address, 16).ok()?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let address = Ipv4Addr::from(address.to_ne_bytes());
    Some(SocketAddr::V4(SocketAddrV4::new(address, port)))
}

/// An Internet address, if it is one.
pub(super) fn address(any: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(any).ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_is_held_until_the_server_closes_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let server = listener.local_addr().expect("bound");
        let client = TcpStream::connect(server).expect("it listens");
        let ours = client.local_addr().expect("connected");
        assert!(!held_by(server).expect("a table").contains(&ours));
        let (accepted, _) = listener.accept().expect("one waits");
        assert_eq!(held_by(server).expect("a table"), HashSet::from([ours]));
        drop(accepted);
        assert!(held_by(server).expect("a table").is_empty());
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        let server = "127.0.0.1:80".parse().expect("an address");
        assert!(held_in("", server).is_empty());
        assert!(held_in("head\nx\n 1: zz 1 2\n", server).is_empty());
    }
}
