//! TCP ports: whether this process may bind one, and which process listens on one.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use socket2::{Domain, Protocol, Socket, Type};

/// A process that listens on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Number of the process.
    pub pid: u32,
    /// Name of the program.
    pub name: String,
}

impl Owner {
    /// Describes the process with this number.
    pub fn of(pid: u32) -> Owner {
        Owner {
            pid,
            name: name(pid),
        }
    }

    /// Returns the command line of the process: its arguments, the program's name first.
    pub fn arguments(&self) -> Vec<String> {
        self.list("cmdline")
    }

    /// Returns the value of an environment variable of the process, as far as this user may see it.
    pub fn variable(&self, name: &str) -> Option<String> {
        let all = self.list("environ");
        let value = |entry: &String| Some(entry.strip_prefix(name)?.strip_prefix('=')?.to_owned());
        all.iter().find_map(value)
    }

    /// Returns the working folder of the process, if this user may see it.
    pub fn folder(&self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/cwd", self.pid)).ok()
    }

    /// Returns the texts in a file of the process's folder below /proc.
    fn list(&self, file: &str) -> Vec<String> {
        let bytes = fs::read(format!("/proc/{}/{file}", self.pid)).unwrap_or_default();
        let texts = bytes
            .split(|byte| *byte == 0)
            .filter(|text| !text.is_empty());
        texts
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .collect()
    }

    /// Whether the process runs the program of this process.
    pub fn is_this_program(&self) -> bool {
        self.name == name(std::process::id())
    }
}

/// Whether another process runs the program of this process.
pub fn runs_already() -> bool {
    let own = std::process::id();
    let mut others = pids().filter(|pid| *pid != own);
    others.any(|pid| Owner::of(pid).is_this_program())
}

/// Returns the numbers of all processes.
fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Binds an address for a moment, without listening. With `ipv6_only`, an IPv6 address does not include
/// IPv4 addresses.
///
/// # Errors
///
/// The address is in use, is not one of this machine, or needs a privilege.
pub fn try_bind(address: SocketAddr, ipv6_only: bool) -> io::Result<()> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(ipv6_only)?;
    }
    socket.bind(&address.into())
}

/// Whether an address is one of this machine.
pub fn is_here(address: IpAddr) -> bool {
    match try_bind(SocketAddr::new(address, 0), true) {
        Ok(()) => true,
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
    }
}

/// Returns the process that listens on a TCP port, as far as this user may see it.
pub fn owner(port: u16) -> Option<Owner> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let inodes: Vec<u64> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| listening(&table, port))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    pids().find(|pid| holds(*pid, &inodes)).map(Owner::of)
}

/// Returns the inodes of the sockets that listen on a port, from the text of `/proc/net/tcp`.
fn listening(table: &str, port: u16) -> Vec<u64> {
    /// State of a listening socket.
    const LISTEN: &str = "0A";
    let local = format!(":{port:04X}");
    let lines = table.lines().map(|line| line.split_ascii_whitespace());
    lines
        .filter_map(|mut fields| {
            let address = fields.nth(1)?;
            let state = fields.nth(1)?;
            let inode = fields.nth(5)?.parse().ok()?;
            (state == LISTEN && address.ends_with(&local)).then_some(inode)
        })
        .collect()
}

/// Whether a process has one of these sockets open.
fn holds(pid: u32, inodes: &[u64]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let inode = |path: &Path| {
        let target = fs::read_link(path).ok()?;
        let text = target.to_str()?.strip_prefix("socket:[")?;
        text.strip_suffix(']')?.parse::<u64>().ok()
    };
    let open = descriptors.filter_map(|entry| inode(&entry.ok()?.path()));
    open.into_iter().any(|inode| inodes.contains(&inode))
}

fn name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn the_process_that_listens_on_a_port_is_found() -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let found = owner(address.port()).map(|owner| owner.pid);
        assert_eq!(found, Some(std::process::id()));
        let used = try_bind(address, true).map_err(|error| error.kind());
        assert_eq!(used, Err(io::ErrorKind::AddrInUse));
        drop(listener);
        assert!(try_bind(address, true).is_ok());
        Ok(())
    }

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:0050 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0
   2: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1 0 100 0 0 10 0
";
        assert_eq!(listening(table, 8080), [11]);
        assert_eq!(listening(table, 80), [13]);
    }
}
