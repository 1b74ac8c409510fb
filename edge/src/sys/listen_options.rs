//! What a listening socket is set to; its connections inherit it.

use rustix::event::{PollFd, PollFlags, Timespec};
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt;

/// Probes without an answer after which a connection is dead.
const PROBES: u32 = 4;

/// How a listening socket is set up. The buffers are what the kernel is told: it takes twice as
/// much, for its own bookkeeping, and no more than `net.core.rmem_max` and `wmem_max` allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections that may wait to be accepted; as many as the kernel allows where this is `None`.
    pub backlog: Option<u32>,
    /// Whether a connection waits in the kernel until its first bytes are there (TCP_DEFER_ACCEPT).
    pub defer: bool,
    /// Bytes of a connection's receive buffer (SO_RCVBUF); sized by the kernel where `None`.
    pub receive_buffer: Option<u32>,
    /// Bytes of its send buffer (SO_SNDBUF); sized by the kernel where `None`.
    pub send_buffer: Option<u32>,
    /// After how long without a packet the other end is probed (SO_KEEPALIVE), then four times
    /// within as long again.
    pub keepalive: Option<Duration>,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions {
            backlog: None,
            defer: true,
            receive_buffer: None,
            send_buffer: None,
            keepalive: None,
        }
    }
}

impl ListenOptions {
    /// Sets what has to be there before `listen`: the receive buffer decides over window scaling.
    pub(super) fn apply(&self, fd: &OwnedFd) -> io::Result<()> {
        if let Some(bytes) = self.receive_buffer {
            sockopt::set_socket_recv_buffer_size(fd, bytes as usize)?;
        }
        if let Some(bytes) = self.send_buffer {
            sockopt::set_socket_send_buffer_size(fd, bytes as usize)?;
        }
        if let Some(idle) = self.keepalive {
            let interval = (idle / PROBES).max(Duration::from_secs(1));
            sockopt::set_socket_keepalive(fd, true)?;
            sockopt::set_tcp_keepidle(fd, idle.max(Duration::from_secs(1)))?;
            sockopt::set_tcp_keepintvl(fd, interval)?;
            sockopt::set_tcp_keepcnt(fd, PROBES)?;
        }
        match self.defer {
            true => defer_accept(fd),
            false => Ok(()),
        }
    }

    /// As `listen` takes it, which cuts it down to `net.core.somaxconn`.
    pub(super) fn backlog(&self) -> i32 {
        let backlog = self.backlog.map(i32::try_from);
        backlog.and_then(Result::ok).unwrap_or(i32::MAX)
    }
}

/// Lets connections wait in the kernel for their first bytes, a second at most.
fn defer_accept(fd: &OwnedFd) -> io::Result<()> {
    let seconds: c_int = 1;
    // SAFETY: the descriptor is open, and the pointer is to a `c_int` of the length given, which
    // the call only reads.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast::<c_void>(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether there is none of these events now.
pub(super) fn is_without(fd: &OwnedFd, events: PollFlags) -> bool {
    let mut polled = [PollFd::new(fd, events)];
    let found = rustix::event::poll(&mut polled, Some(&Timespec::default()));
    matches!(found, Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType};

    #[test]
    fn a_socket_is_what_it_was_told() {
        let fd = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("one");
        let listening = ListenOptions {
            backlog: Some(7),
            receive_buffer: Some(64 << 10),
            send_buffer: Some(32 << 10),
            keepalive: Some(Duration::from_secs(60)),
            ..ListenOptions::default()
        };
        listening.apply(&fd).expect("the kernel takes it");
        assert_eq!(sockopt::socket_recv_buffer_size(&fd), Ok(128 << 10));
        assert_eq!(sockopt::socket_send_buffer_size(&fd), Ok(64 << 10));
        assert_eq!(sockopt::socket_keepalive(&fd), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&fd), Ok(Duration::from_secs(60)));
        assert_eq!(sockopt::tcp_keepintvl(&fd), Ok(Duration::from_secs(15)));
        assert_eq!(listening.backlog(), 7);
        assert_eq!(ListenOptions::default().backlog(), i32::MAX);
    }
}
