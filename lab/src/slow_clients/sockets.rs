//! Lists the connections that a server has open, with sock_diag(7), because a client that does not read is not
//! notified of their end. In contrast to /proc/net/tcp, the kernel does not list all sockets in TIME_WAIT.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, netlink, recv,
    send, socket_with,
};

/// Length in bytes of the header of each netlink message.
const HEAD: usize = 16;
const QUESTION: usize = 56;
const ANSWER: usize = 72;

/// Types of messages (linux/netlink.h, linux/sock_diag.h).
const ERROR: u16 = 2;
const DONE: u16 = 3;
const BY_FAMILY: u16 = 20;

/// Flags of a request for all matching sockets.
const REQUEST_DUMP: u16 = 0x301;

/// IPv4, TCP, and the state of an established connection (linux/tcp.h).
const INET: u8 = 2;
const TCP: u8 = 6;
const ESTABLISHED: u32 = 1;

/// Offsets of the fields in a reply (linux/inet_diag.h).
const SOURCE_PORT: usize = 4;
const PEER_PORT: usize = 6;
const SOURCE: usize = 8;
const PEER: usize = 24;
const INODE: usize = 68;

/// Maximum length in bytes of a message from the kernel.
const BUFFER: usize = 64 << 10;

/// Returns the client addresses of connections that a process has accepted at this address and not closed.
///
/// Errors: the kernel can't list sockets.
pub(super) fn held_by(server: SocketAddr) -> io::Result<HashSet<SocketAddr>> {
    let SocketAddr::V4(server) = server else {
        return Err(io::Error::other("only IPv4 addresses are supported"));
    };
    let flags = SocketFlags::CLOEXEC;
    let kernel = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        flags,
        Some(netlink::SOCK_DIAG),
    )?;
    send(&kernel, &request(server.port()), SendFlags::empty())?;
    let mut held = HashSet::new();
    let mut buffer = vec![0; BUFFER];
    while read_messages(&kernel, &mut buffer, server, &mut held)? {}
    Ok(held)
}

/// Returns a request for established connections with this local port. Ports are in network byte order, all other
/// numbers in native order.
fn request(port: u16) -> Vec<u8> {
    let length = (HEAD + QUESTION) as u32;
    let mut message = Vec::new();
    message.extend_from_slice(&length.to_ne_bytes());
    message.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    message.extend_from_slice(&REQUEST_DUMP.to_ne_bytes());
    message.resize(HEAD, 0);
    message.extend_from_slice(&[INET, TCP, 0, 0]);
    message.extend_from_slice(&(1u32 << ESTABLISHED).to_ne_bytes());
    message.extend_from_slice(&port.to_be_bytes());
    message.resize(HEAD + QUESTION, 0);
    message
}

/// Reads the messages that are available. Returns false after the last one.
fn read_messages(
    kernel: &OwnedFd,
    buffer: &mut [u8],
    server: SocketAddrV4,
    held: &mut HashSet<SocketAddr>,
) -> io::Result<bool> {
    let (_, count) = recv(kernel, &mut *buffer, RecvFlags::empty())?;
    let mut rest = &buffer[..count.min(buffer.len())];
    let cut = || io::Error::other("incomplete message from the kernel");
    if rest.is_empty() {
        return Err(cut());
    }
    while !rest.is_empty() {
        let length = u32::from_ne_bytes(bytes(rest, 0).ok_or_else(cut)?) as usize;
        let kind = u16::from_ne_bytes(bytes(rest, 4).ok_or_else(cut)?);
        let message = rest.get(HEAD..length).ok_or_else(cut)?;
        match kind {
            DONE => return Ok(false),
            ERROR => {
                let code = i32::from_ne_bytes(bytes(message, 0).ok_or_else(cut)?);
                return Err(io::Error::from_raw_os_error(-code));
            }
            _ => held.extend(client_of(message, server)),
        }
        // Messages are aligned to multiples of four.
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(true)
}

/// Returns the client address of a connection that a process has open at this address.
fn client_of(answer: &[u8], server: SocketAddrV4) -> Option<SocketAddr> {
    let answer = answer.get(..ANSWER)?;
    let port = |place| Some(u16::from_be_bytes(bytes(answer, place)?));
    let address = |place| Some(Ipv4Addr::from(bytes::<4>(answer, place)?));
    let ours = SocketAddrV4::new(address(SOURCE)?, port(SOURCE_PORT)?);
    // Connections that wait to be accepted, and closed ones, have no inode.
    let inode = u32::from_ne_bytes(bytes(answer, INODE)?);
    let peer = SocketAddrV4::new(address(PEER)?, port(PEER_PORT)?);
    (ours == server && inode != 0).then_some(SocketAddr::V4(peer))
}

fn bytes<const N: usize>(from: &[u8], place: usize) -> Option<[u8; N]> {
    from.get(place..place + N)?.try_into().ok()
}

/// Returns the IP address and port; `None` for other kinds of addresses.
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
        if let Err(error) = held_by(server) {
            eprintln!("skipped: {error}");
            return;
        }
        let first = TcpStream::connect(server).expect("it listens");
        assert!(held_by(server).expect("an answer").is_empty());
        let mut accepted = vec![listener.accept().expect("one waits")];
        let mut clients = vec![first];
        // More connections than fit into one message of the kernel.
        while accepted.len() < 500 {
            clients.push(TcpStream::connect(server).expect("it listens"));
            accepted.push(listener.accept().expect("one waits"));
        }
        let ends = clients.iter().map(|one| one.local_addr());
        let ends: HashSet<_> = ends.collect::<Result<_, _>>().expect("connected");
        assert_eq!(held_by(server).expect("an answer"), ends);
        let (_, last) = accepted.pop().expect("500");
        let held = held_by(server).expect("an answer");
        assert!(held.len() == 499 && !held.contains(&last));
    }

    #[test]
    fn an_incomplete_message_is_an_error() {
        let server = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80);
        let mut answer = vec![0; ANSWER];
        answer[SOURCE..SOURCE + 4].copy_from_slice(&[127, 0, 0, 1]);
        answer[SOURCE_PORT + 1] = 80;
        assert_eq!(client_of(&answer, server), None);
        answer[INODE] = 1;
        answer[PEER] = 10;
        let peer = "10.0.0.0:0".parse().expect("an address");
        assert_eq!(client_of(&answer, server), Some(peer));
        assert_eq!(client_of(&answer[..ANSWER - 1], server), None);
    }
}
