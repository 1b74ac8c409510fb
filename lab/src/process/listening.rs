//! The owner of a listening TCP socket, as the files in /proc show it.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// State of a listening socket in /proc/net/tcp.
const LISTEN: &str = "0A";

/// The owner of the socket that listens on an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// No socket listens on the address.
    Nobody,
    /// The asked processes.
    Own,
    /// Another process.
    Other,
}

/// Returns the owner of the sockets that listen on this address, in the network namespace of the first of these
/// processes. A process whose descriptors this user may not see counts as the owner.
pub(super) fn owner(address: SocketAddr, processes: &[u32]) -> Owner {
    let Some(first) = processes.first() else {
        return Owner::Nobody;
    };
    let tables =
        ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/{first}/net/{name}")));
    let tables = tables.map(Result::unwrap_or_default);
    let lines = tables.iter().flat_map(|table| table.lines());
    let inodes: HashSet<u64> = lines.filter_map(|line| inode(line, address)).collect();
    if inodes.is_empty() {
        return Owner::Nobody;
    }
    let mut own = HashSet::new();
    for process in processes {
        match sockets(*process) {
            Some(sockets) => own.extend(sockets),
            None => return Owner::Own,
        }
    }
    match inodes.is_subset(&own) {
        true => Owner::Own,
        false => Owner::Other,
    }
}

/// Returns the inode of the socket in this line of a table, if the socket listens on the address.
fn inode(line: &str, address: SocketAddr) -> Option<u64> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let local = socket_address(words.get(1)?)?;
    let is_match = local.port() == address.port()
        && (local.ip().to_canonical() == address.ip() || reaches(local.ip(), address.ip()));
    let listens = *words.get(3)? == LISTEN;
    (is_match && listens).then(|| words.get(9)?.parse().ok())?
}

/// Whether a socket at a wildcard address gets connections to `ip`. A socket of IPv6 usually gets those of IPv4, too.
fn reaches(wildcard: IpAddr, ip: IpAddr) -> bool {
    match wildcard {
        IpAddr::V4(own) => own == Ipv4Addr::UNSPECIFIED && ip.is_ipv4(),
        IpAddr::V6(own) => own == Ipv6Addr::UNSPECIFIED,
    }
}

/// Returns the inodes of a process's sockets; `None` if this user may not see them. A process that has ended has none.
fn sockets(process: u32) -> Option<HashSet<u64>> {
    let entries = match fs::read_dir(format!("/proc/{process}/fd")) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
        Err(_) => return Some(HashSet::new()),
        Ok(entries) => entries,
    };
    let links = entries.flatten().map(|entry| fs::read_link(entry.path()));
    let inode = |link: std::path::PathBuf| {
        let name = link.to_str()?.strip_prefix("socket:[")?;
        name.strip_suffix(']')?.parse().ok()
    };
    Some(links.flatten().filter_map(inode).collect())
}

/// Parses an address of /proc/net/tcp or tcp6, such as `0100007F:1F90`. The words of an address are in the byte order of
/// the machine.
pub(crate) fn socket_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |index: usize| {
        let digits = address.get(8 * index..8 * index + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip: IpAddr = match address.len() {
        8 => word(0)?.into(),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index)?);
            }
            bytes.into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn addresses_of_both_families_are_read() {
        let read = |text| socket_address(text).map(|address| address.to_string());
        // The kernel writes the words as numbers of the machine.
        let (four, six) = match cfg!(target_endian = "little") {
            true => ("0100007F:1F90", "00000000000000000000000001000000:0050"),
            false => ("7F000001:1F90", "00000000000000000000000000000001:0050"),
        };
        assert_eq!(read(four).as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(read(six).as_deref(), Some("[::1]:80"));
        for wrong in [
            "",
            "0100007F",
            "0100007F:",
            "01:50",
            "é100007:0050",
            "0100007G:0050",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn own_sockets_and_those_of_others_are_told_apart() {
        let own = std::process::id();
        for listen in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
            let listener = std::net::TcpListener::bind(listen).expect("a free port");
            let port = listener.local_addr().expect("an address").port();
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            assert_eq!(owner(address, &[own]), Owner::Own, "{listen}");
            // The first process has the same namespace and not the socket.
            let mut child = std::process::Command::new("sleep")
                .arg("1000")
                .spawn()
                .expect("sleep is installed");
            assert_eq!(owner(address, &[child.id()]), Owner::Other, "{listen}");
            assert_eq!(owner(address, &[child.id(), own]), Owner::Own, "{listen}");
            drop(listener);
            // A process that another test is about to start may have the socket for a moment.
            let until = Instant::now() + Duration::from_secs(60);
            while owner(address, &[own]) != Owner::Nobody {
                assert!(Instant::now() < until, "{listen}");
                std::thread::yield_now();
            }
            child.kill().expect("alive");
            child.wait().expect("our own child");
        }
    }
}
