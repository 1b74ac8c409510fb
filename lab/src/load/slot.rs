//! A connection slot of the load generator: its socket and the state of the current response.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt,
};

use super::chunks::Chunks;
use super::head::{Parsed, parse};
use super::tls::{Secrets, Session};
use crate::offset;

/// Maximum number of bytes per read while a response head is expected.
const HEAD_READ: usize = 16 << 10;

/// State of a connection slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The slot has no socket.
    Absent,
    /// The connection is being made. The request is sent when the socket is writable.
    Connecting,
    /// The connection is open and no request is in progress.
    Idle,
    /// A request has been sent, and the response head is expected.
    Head,
    /// A body with Content-Length is being received; `left` of its `length` bytes are missing.
    Body { length: u64, left: u64, close: bool },
    /// A chunked body is being received.
    Chunked { chunks: Chunks, close: bool },
}

/// Reason why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    Connect,
    Closed,
    /// The server closed a reused connection before any byte of the response arrived. The request is sent again.
    Stale,
    Timeout,
    /// The status was not the expected one. The value is the received status.
    Status(u16),
    Length,
    Malformed,
    Content,
}

/// Result of reading from a connection slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    /// The response is complete. `close`: whether the server is going to close the connection.
    Whole {
        length: u64,
        close: bool,
    },
}

/// Properties that a response must have to be counted as good.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) status: u16,
    pub(super) length: Option<u64>,
    pub(super) verify: bool,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) socket: Option<OwnedFd>,
    /// The connection's TLS, if the load has any.
    session: Option<Session>,
    /// Whether the last read found no bytes.
    found_nothing: bool,
    pub(super) state: State,
    /// Time from which latency counts: when the request was sent, or in an open loop its scheduled time.
    pub(super) began: Instant,
    /// Number of the current request within the load, counted from 0.
    pub(super) number: u64,
    /// Numbers of responses on the current socket (`answered`), and of good responses on all sockets of this slot
    /// (`good`).
    pub(super) answered: u64,
    pub(super) good: u64,
    /// Received bytes of a response head that is not complete yet.
    partial: Vec<u8>,
}

impl Slot {
    pub(super) fn new(now: Instant) -> Slot {
        Slot {
            socket: None,
            session: None,
            found_nothing: false,
            state: State::Absent,
            began: now,
            number: 0,
            answered: 0,
            good: 0,
            partial: Vec::new(),
        }
    }

    /// Begins to connect to the server.
    pub(super) fn connect(
        &mut self,
        target: &SocketAddr,
        source: Option<SocketAddr>,
        secrets: Option<&Secrets>,
    ) -> Result<(), Failure> {
        let family = match target {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
            .map_err(|_| Failure::Connect)?;
        if let Some(source) = source {
            // Without SO_REUSEADDR, a port could not be bound while an earlier connection from it is in TIME_WAIT.
            sockopt::set_socket_reuseaddr(&socket, true).map_err(|_| Failure::Connect)?;
            net::bind(&socket, &source).map_err(|_| Failure::Connect)?;
        }
        // Each request is a single write, so TCP_NODELAY only saves time. If the kernel refuses it, that is no failure.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        match net::connect(&socket, target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(_) => return Err(Failure::Connect),
        }
        self.session = match secrets {
            Some(secrets) => Some(secrets.session().ok_or(Failure::Connect)?),
            None => None,
        };
        self.socket = Some(socket);
        self.state = State::Connecting;
        self.answered = 0;
        Ok(())
    }

    /// Sends the request in one write: the socket's buffer always has space for one request. Does nothing while the
    /// connection is not established.
    pub(super) fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        let socket = self.socket.as_ref().ok_or(Failure::Connect)?;
        self.partial.clear();
        if let Some(session) = &mut self.session {
            return match session.send(socket, request) {
                Ok(true) => {
                    session.sent();
                    self.state = State::Head;
                    Ok(())
                }
                Ok(false) if self.state == State::Connecting => Ok(()),
                _ if self.state == State::Connecting => Err(Failure::Connect),
                _ => Err(self.cut()),
            };
        }
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

    /// Reads received bytes, up to a maximum, and processes them as the state of the slot requires. With TLS, reads
    /// until no bytes are available, because the socket says nothing about decrypted bytes that have not been read.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        expected: &Expected,
    ) -> Result<Progress, Failure> {
        loop {
            let progress = self.receive_some(buffer, expected)?;
            if self.session.is_none() || self.found_nothing || progress != Progress::Waiting {
                return Ok(progress);
            }
        }
    }

    fn receive_some(
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
            // No bytes are expected in this state, so the event is most likely the close of the connection.
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

    /// Decodes received bytes of a chunked body.
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
        // On TCP sockets, MSG_TRUNC makes the kernel discard the bytes, which saves copying them.
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

    /// Reads from the socket. Returns `None` if no bytes are available.
    fn read(&mut self, buffer: &mut [u8], flags: RecvFlags) -> Result<Option<usize>, Failure> {
        let socket = self.socket.as_ref().ok_or(Failure::Closed)?;
        if let Some(session) = &mut self.session {
            let read = session.read(socket, buffer);
            self.found_nothing = matches!(read, Ok(None));
            return match read {
                Ok(Some(0)) | Err(_) => Err(self.cut()),
                Ok(read) => Ok(read),
            };
        }
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
        self.session = None;
        self.socket = None;
        self.state = State::Absent;
        self.partial.clear();
    }

    /// Whether a request is in progress on this slot.
    pub(super) fn busy(&self) -> bool {
        !matches!(self.state, State::Absent | State::Idle)
    }
}
