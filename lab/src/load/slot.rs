//! A connection of the load generator: its socket and the state of its response.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt,
};

use super::chunks::Chunks;
use super::head::{Parsed, parse};
use crate::offset;

/// Maximum bytes per read while a head is expected.
const HEAD_READ: usize = 16 << 10;

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// There is no socket.
    Absent,
    /// The connection is being made; the request is sent when the socket is writable.
    Connecting,
    /// The connection is open and has no request.
    Idle,
    /// The request has been sent; the head of the response is expected.
    Head,
    /// The body is being received; `left` bytes are missing.
    Body { length: u64, left: u64, close: bool },
    /// A chunked body is being received.
    Chunked { chunks: Chunks, close: bool },
}

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    Connect,
    Closed,
    /// A reused connection was closed before any byte of the response. The request is sent again.
    Stale,
    Timeout,
    /// The status was this one and not the expected one.
    Status(u16),
    Length,
    Malformed,
    Content,
}

/// Result of reading from a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    /// The response is complete. `close` says whether the server will close the connection.
    Whole {
        length: u64,
        close: bool,
    },
}

/// The expected response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) status: u16,
    pub(super) length: Option<u64>,
    pub(super) verify: bool,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) socket: Option<OwnedFd>,
    pub(super) state: State,
    /// Time at which the request was sent, or its scheduled time.
    pub(super) began: Instant,
    /// Number of the request.
    pub(super) number: u64,
    /// Number of responses on the present socket (`answered`), and of good responses on all sockets (`good`).
    pub(super) answered: u64,
    pub(super) good: u64,
    /// A head that has been received in part.
    partial: Vec<u8>,
}

impl Slot {
    pub(super) fn new(now: Instant) -> Slot {
        Slot {
            socket: None,
            state: State::Absent,
            began: now,
            number: 0,
            answered: 0,
            good: 0,
            partial: Vec::new(),
        }
    }

    /// Begins to connect.
    pub(super) fn connect(
        &mut self,
        target: &SocketAddr,
        source: Option<SocketAddr>,
    ) -> Result<(), Failure> {
        let family = match target {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
            .map_err(|_| Failure::Connect)?;
        if let Some(source) = source {
            // SO_REUSEADDR permits a port whose earlier connection is in TIME_WAIT.
            sockopt::set_socket_reuseaddr(&socket, true).map_err(|_| Failure::Connect)?;
            net::bind(&socket, &source).map_err(|_| Failure::Connect)?;
        }
        // TCP_NODELAY sends each request at once. If the kernel refuses the option, requests only take longer.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        match net::connect(&socket, target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(_) => return Err(Failure::Connect),
        }
        self.socket = Some(socket);
        self.state = State::Connecting;
        self.answered = 0;
        Ok(())
    }

    /// Sends the request. A socket's buffer always has room for one request. If the connection is not established
    /// yet, nothing happens.
    pub(super) fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        let socket = self.socket.as_ref().ok_or(Failure::Connect)?;
        self.partial.clear();
        match net::send(socket, request, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == request.len() => {
                self.state = State::Head;
                Ok(())
            }
            Err(Errno::AGAIN) if self.state == State::Connecting => Ok(()),
            _ if self.state == State::Connecting => Err(Failure::Connect),
            _ => Err(self.cut()),
        }
    }

    /// Reads a bounded number of the received bytes.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        expected: &Expected,
    ) -> Result<Progress, Failure> {
        match self.state {
            State::Head => self.receive_head(buffer, expected),
            State::Body { .. } => self.receive_body(buffer, expected),
            State::Chunked { chunks, close } => {
                let Some(count) = self.read(buffer, RecvFlags::empty())? else {
                    return Ok(Progress::Waiting);
                };
                self.chunks(chunks, close, &buffer[..count], expected)
            }
            // No response is expected now, so the event is most likely the end of the connection.
            _ => Err(Failure::Stale),
        }
    }

    fn receive_head(
        &mut self,
        buffer: &mut [u8],
        expected: &Expected,
    ) -> Result<Progress, Failure> {
        let Some(count) = self.read(&mut buffer[..HEAD_READ], RecvFlags::empty())? else {
            return Ok(Progress::Waiting);
        };
        let joined;
        let bytes = if self.partial.is_empty() {
            &buffer[..count]
        } else {
            self.partial.extend_from_slice(&buffer[..count]);
            joined = std::mem::take(&mut self.partial);
            &joined[..]
        };
        let head = match parse(bytes) {
            Parsed::Whole(head) => head,
            Parsed::Malformed => return Err(Failure::Malformed),
            Parsed::Partial => {
                self.partial = bytes.to_vec();
                return Ok(Progress::Waiting);
            }
        };
        if head.status != expected.status {
            return Err(Failure::Status(head.status));
        }
        let body = &bytes[head.end..];
        let Some(length) = head.length else {
            return self.chunks(Chunks::new(), head.close, body, expected);
        };
        if expected.length.is_some_and(|expected| expected != length) {
            return Err(Failure::Length);
        }
        let left = length
            .checked_sub(body.len() as u64)
            .ok_or(Failure::Length)?;
        if expected.verify && offset::verify_offset(0, body).is_err() {
            return Err(Failure::Content);
        }
        self.state = State::Body {
            length,
            left,
            close: head.close,
        };
        Ok(self.progress())
    }

    /// Decodes a part of a chunked body.
    fn chunks(
        &mut self,
        mut chunks: Chunks,
        close: bool,
        bytes: &[u8],
        expected: &Expected,
    ) -> Result<Progress, Failure> {
        let mut right = true;
        let whole = chunks
            .feed(bytes, |at, content| {
                right &= !expected.verify || offset::verify_offset(at, content).is_ok();
            })
            .map_err(|_| Failure::Malformed)?;
        if !right {
            return Err(Failure::Content);
        }
        self.state = State::Chunked { chunks, close };
        if !whole {
            return Ok(Progress::Waiting);
        }
        let length = chunks.length;
        if expected.length.is_some_and(|expected| expected != length) {
            return Err(Failure::Length);
        }
        self.state = State::Body {
            length,
            left: 0,
            close,
        };
        Ok(self.progress())
    }

    fn receive_body(
        &mut self,
        buffer: &mut [u8],
        expected: &Expected,
    ) -> Result<Progress, Failure> {
        let State::Body {
            length,
            left,
            close,
        } = self.state
        else {
            return Ok(Progress::Waiting);
        };
        let most = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        // On TCP sockets, MSG_TRUNC discards the bytes in the kernel and saves the copy.
        let flags = match expected.verify {
            true => RecvFlags::empty(),
            false => RecvFlags::TRUNC,
        };
        let Some(count) = self.read(&mut buffer[..most], flags)? else {
            return Ok(Progress::Waiting);
        };
        if expected.verify && offset::verify_offset(length - left, &buffer[..count]).is_err() {
            return Err(Failure::Content);
        }
        let left = left.saturating_sub(count as u64);
        self.state = State::Body {
            length,
            left,
            close,
        };
        Ok(self.progress())
    }

    fn progress(&mut self) -> Progress {
        match self.state {
            State::Body {
                length,
                left: 0,
                close,
            } => {
                self.state = State::Idle;
                self.answered += 1;
                Progress::Whole { length, close }
            }
            _ => Progress::Waiting,
        }
    }

    /// Reads from the socket; `None` if no bytes are available.
    fn read(&self, buffer: &mut [u8], flags: RecvFlags) -> Result<Option<usize>, Failure> {
        let socket = self.socket.as_ref().ok_or(Failure::Closed)?;
        match net::recv(socket.as_fd(), buffer, flags) {
            Ok((_, 0)) => Err(self.cut()),
            Ok((_, count)) => Ok(Some(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(_) => Err(self.cut()),
        }
    }

    fn cut(&self) -> Failure {
        let untouched = matches!(self.state, State::Head | State::Idle) && self.partial.is_empty();
        match untouched && self.answered > 0 {
            true => Failure::Stale,
            false => Failure::Closed,
        }
    }

    /// Closes the socket.
    pub(super) fn close(&mut self) {
        self.socket = None;
        self.state = State::Absent;
        self.partial.clear();
    }

    /// Whether a request is in progress.
    pub(super) fn busy(&self) -> bool {
        !matches!(self.state, State::Absent | State::Idle)
    }
}
