//! The options of a listening socket, which its connections inherit.

use rustix::event::{PollFd, PollFlags, Timespec};
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt;

/// Unanswered probes after which a connection is dead.
const PROBES: u32 = 4;

/// The options of a listening socket. The kernel doubles the buffer sizes for its own bookkeeping, and limits them to
/// `net.core.rmem_max` and `wmem_max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections that may wait to be accepted; `None`: as many as the kernel allows.
    pub backlog: Option<u32>,
    /// Whether a connection waits in the kernel until its first bytes arrive (TCP_DEFER_ACCEPT).
    pub defer: bool,
    /// Bytes of a connection's receive buffer (SO_RCVBUF); `None`: sized by the kernel.
    pub receive_buffer: Option<u32>,
    /// Bytes of its send buffer (SO_SNDBUF); `None`: sized by the kernel.
    pub send_buffer: Option<u32>,
    /// Time without a packet after which the other end is probed (SO_KEEPALIVE), four times within as long again.
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
    /// Sets the options, before `listen`: the size of the receive buffer decides over window scaling.
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

    /// The backlog for `listen`, which limits it to `net.core.somaxconn`.
    pub(super) fn backlog(&self) -> i32 {
        let backlog = self.backlog.map(i32::try_from);
        backlog.and_then(Result::ok).unwrap_or(i32::MAX)
    }
}

/// Lets connections wait in the kernel for their first bytes, for at most a second.
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

/// Whether none of these events has occurred.
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
    fn a_socket_has_the_options_it_was_given() {
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
