//! The options of a listening socket, which its connections inherit.

use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt;

use super::socket_option;

/// Number of unanswered keepalive probes after which the kernel closes a connection.
const PROBES: u32 = 4;

/// Options of a listening socket. The kernel doubles the buffer sizes for its own bookkeeping, and limits them to `net.core.rmem_max` and
/// `wmem_max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Maximum number of connections that wait to be accepted; `None`: as many as the kernel allows.
    pub backlog: Option<u32>,
    /// Whether a connection is accepted only when its first bytes have arrived (TCP_DEFER_ACCEPT).
    pub defer_accept: bool,
    /// Size of a connection's receive buffer in bytes (SO_RCVBUF); `None`: chosen by the kernel.
    pub receive_buffer: Option<u32>,
    /// Size of a connection's send buffer in bytes (SO_SNDBUF); `None`: chosen by the kernel.
    pub send_buffer: Option<u32>,
    /// Time without a packet after which the kernel probes the other end (SO_KEEPALIVE). The kernel closes the connection if four probes,
    /// spread over as much time again, are not answered.
    pub tcp_keepalive: Option<Duration>,
    /// Whether an IPv6 socket accepts only IPv6 connections (IPV6_V6ONLY).
    pub ipv6_only: bool,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions {
            backlog: None,
            defer_accept: true,
            receive_buffer: None,
            send_buffer: None,
            tcp_keepalive: None,
            ipv6_only: true,
        }
    }
}

impl ListenOptions {
    /// Sets the options of any socket. Called before `listen`, since the kernel then chooses the window scaling by the size of the receive
    /// buffer.
    pub(super) fn apply(&self, fd: &OwnedFd) -> io::Result<()> {
        if let Some(bytes) = self.receive_buffer {
            sockopt::set_socket_recv_buffer_size(fd, bytes as usize)?;
        }
        if let Some(bytes) = self.send_buffer {
            sockopt::set_socket_send_buffer_size(fd, bytes as usize)?;
        }
        Ok(())
    }

    /// Sets the options that only TCP sockets have.
    pub(super) fn apply_tcp(&self, fd: &OwnedFd) -> io::Result<()> {
        if let Some(idle) = self.tcp_keepalive {
            let interval = (idle / PROBES).max(Duration::from_secs(1));
            sockopt::set_socket_keepalive(fd, true)?;
            sockopt::set_tcp_keepidle(fd, idle.max(Duration::from_secs(1)))?;
            sockopt::set_tcp_keepintvl(fd, interval)?;
            sockopt::set_tcp_keepcnt(fd, PROBES)?;
        }
        match self.defer_accept {
            true => defer_accept(fd),
            false => Ok(()),
        }
    }

    /// Returns the backlog to pass to `listen`; the kernel limits it to `net.core.somaxconn`.
    pub(super) fn backlog(&self) -> i32 {
        let backlog = self.backlog.map(i32::try_from);
        backlog.and_then(Result::ok).unwrap_or(i32::MAX)
    }
}

/// Sets TCP_DEFER_ACCEPT: a connection is accepted when its first bytes have arrived, or after about a second.
fn defer_accept(fd: &OwnedFd) -> io::Result<()> {
    let seconds = 1;
    socket_option::set(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// Whether none of these events has occurred on the descriptor.
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
            tcp_keepalive: Some(Duration::from_secs(60)),
            ..ListenOptions::default()
        };
        listening.apply(&fd).expect("the kernel takes it");
        listening.apply_tcp(&fd).expect("the kernel takes it");
        assert_eq!(sockopt::socket_recv_buffer_size(&fd), Ok(128 << 10));
        assert_eq!(sockopt::socket_send_buffer_size(&fd), Ok(64 << 10));
        assert_eq!(sockopt::socket_keepalive(&fd), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&fd), Ok(Duration::from_secs(60)));
        assert_eq!(sockopt::tcp_keepintvl(&fd), Ok(Duration::from_secs(15)));
        assert_eq!(listening.backlog(), 7);
        assert_eq!(ListenOptions::default().backlog(), i32::MAX);
    }
}
