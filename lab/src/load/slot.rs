//! A connection slot of the load generator: its socket and the state of the current response.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, sockopt};

use super::chunks::Chunks;
use super::head::{Body, Head, Parsed, parse};
use super::range::ContentRange;
use super::response::{Expected, Failure};
use super::socket::{self, Sources};
use super::targets::Chosen;
use super::tls::{Secrets, Session};
use crate::offset;

/// Maximum number of bytes per read while a response head is expected.
const HEAD_READ: usize = 16 << 10;
/// Maximum number of reads from one connection before other events are handled.
pub(super) const READS_MAX: usize = 32;

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
    /// A body is being received that ends with the connection; `length` of its bytes have arrived.
    UntilClose { length: u64 },
}

/// Result of reading from a connection slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    /// The response is complete. `close`: whether the connection can't be used any more.
    Whole {
        length: u64,
        close: bool,
    },
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) socket: Option<OwnedFd>,
    /// The connection's TLS, if the load has any.
    session: Option<Session>,
    pub(super) state: State,
    /// Time from which latency counts: when the request was sent, or in an open loop its scheduled time.
    pub(super) began: Instant,
    /// The current request.
    pub(super) chosen: Chosen,
    /// Time at which the connection was begun.
    pub(super) connecting_since: Instant,
    /// The range that the current response has.
    pub(super) range: ContentRange,
    /// The first failure of the current response. The rest of the response is received nevertheless, so that the
    /// connection can be used again.
    pub(super) failure: Option<Failure>,
    /// Whether the session may have bytes that have not been read, for which the socket causes no event.
    pub(super) has_more: bool,
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
            state: State::Absent,
            began: now,
            chosen: Chosen::default(),
            connecting_since: now,
            range: ContentRange::Missing,
            failure: None,
            has_more: false,
            answered: 0,
            good: 0,
            partial: Vec::new(),
        }
    }

    /// Begins to connect to the server.
    pub(super) fn connect(
        &mut self,
        target: &SocketAddr,
        sources: &mut Sources,
        secrets: Option<&Secrets>,
    ) -> Result<(), Failure> {
        self.connecting_since = Instant::now();
        let socket = socket::connect(target, sources)?;
        self.session = match secrets {
            Some(secrets) => Some(secrets.session().ok_or(Failure::Tls)?),
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
        let socket = self.socket.as_ref().ok_or(Failure::Closed)?;
        self.partial.clear();
        self.failure = None;
        if self.state == State::Idle {
            // Also if sending fails, the slot has a request, which is sent again on another connection.
            self.state = State::Head;
        }
        if let Some(session) = &mut self.session {
            return match session.send(socket, request) {
                Ok(true) => {
                    session.sent();
                    self.state = State::Head;
                    Ok(())
                }
                Ok(false) if self.state == State::Connecting => Ok(()),
                Err(error) if self.state == State::Connecting => {
                    Err(match error.raw_os_error().map(Errno::from_raw_os_error) {
                        Some(error) => connect_failure(error, Failure::Tls),
                        None => Failure::Tls,
                    })
                }
                _ => Err(self.cut()),
            };
        }
        match net::send(socket, request, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == request.len() => {
                self.state = State::Head;
                Ok(())
            }
            Err(Errno::AGAIN) if self.state == State::Connecting => Ok(()),
            Err(error) if self.state == State::Connecting => {
                Err(connect_failure(error, Failure::Closed))
            }
            _ => Err(self.cut()),
        }
    }

    /// Reads received bytes, up to a maximum, and processes them as the state of the slot requires. With TLS, reads
    /// several times and sets `has_more` if bytes may be left, because the socket says nothing about decrypted bytes.
    ///
    /// Errors: the first failure of the response, after which the connection can't be used any more.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        expected: &Expected,
    ) -> Result<Progress, Failure> {
        let progress = self.receive_several(buffer, expected);
        progress.map_err(|failure| self.failure.unwrap_or(failure))
    }

    fn receive_several(
        &mut self,
        buffer: &mut [u8],
        expected: &Expected,
    ) -> Result<Progress, Failure> {
        self.has_more = false;
        for _ in 0..READS_MAX {
            let progress = self.receive_some(buffer, expected)?;
            let is_drained = self.session.as_ref().is_none_or(Session::is_drained);
            if is_drained || progress != Progress::Waiting {
                return Ok(progress);
            }
        }
        self.has_more = true;
        Ok(Progress::Waiting)
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
            State::UntilClose { length } => self.receive_until_close(length, buffer, expected),
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
        self.head(bytes, expected)
    }

    /// Processes the received bytes from the beginning of a response on. Interim responses are skipped.
    fn head(&mut self, mut bytes: &[u8], expected: &Expected) -> Result<Progress, Failure> {
        let head = loop {
            match parse(bytes) {
                Parsed::Whole(head) if is_interim(&head) => bytes = &bytes[head.end..],
                Parsed::Whole(head) => break head,
                Parsed::Malformed => return Err(Failure::Malformed),
                Parsed::Partial => {
                    self.partial = bytes.to_vec();
                    return Ok(Progress::Waiting);
                }
            }
        };
        self.range = head.range;
        self.check(expected.check_head(self.chosen, head.status, head.range));
        let body = &bytes[head.end..];
        let length = match head.body {
            Body::Length(length) => length,
            Body::Chunked => return self.chunks(Chunks::new(), head.close, body, expected),
            Body::UntilClose => return self.until_close(0, body, expected),
        };
        self.check(expected.check_length(self.chosen, self.range, length));
        let left = length
            .checked_sub(body.len() as u64)
            .ok_or(Failure::Length)?;
        self.verify(expected, 0, body);
        self.state = State::Body {
            length,
            left,
            close: head.close,
        };
        Ok(self.progress())
    }

    fn receive_until_close(
        &mut self,
        length: u64,
        buffer: &mut [u8],
        expected: &Expected,
    ) -> Result<Progress, Failure> {
        match self.read_or_end(buffer, body_flags(expected))? {
            None => Ok(Progress::Waiting),
            Some(0) => {
                self.check(expected.check_length(self.chosen, self.range, length));
                Ok(Progress::Whole {
                    length,
                    close: true,
                })
            }
            Some(count) => self.until_close(length, &buffer[..count], expected),
        }
    }

    /// Processes received bytes of a body that ends with the connection.
    fn until_close(
        &mut self,
        length: u64,
        bytes: &[u8],
        expected: &Expected,
    ) -> Result<Progress, Failure> {
        self.verify(expected, length, bytes);
        let length = length + bytes.len() as u64;
        self.state = State::UntilClose { length };
        Ok(Progress::Waiting)
    }

    /// Decodes received bytes of a chunked body.
    fn chunks(
        &mut self,
        mut chunks: Chunks,
        close: bool,
        bytes: &[u8],
        expected: &Expected,
    ) -> Result<Progress, Failure> {
        let whole = chunks
            .feed(bytes, |at, content| self.verify(expected, at, content))
            .map_err(|_| Failure::Malformed)?;
        self.state = State::Chunked { chunks, close };
        if !whole {
            return Ok(Progress::Waiting);
        }
        let length = chunks.length;
        self.check(expected.check_length(self.chosen, self.range, length));
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
        let Some(count) = self.read(&mut buffer[..most], body_flags(expected))? else {
            return Ok(Progress::Waiting);
        };
        self.verify(expected, length - left, &buffer[..count]);
        let left = left.saturating_sub(count as u64);
        self.state = State::Body {
            length,
            left,
            close,
        };
        Ok(self.progress())
    }

    /// Records the outcome of a check, unless the response has failed already.
    fn check(&mut self, outcome: Result<(), Failure>) {
        self.failure = self.failure.or(outcome.err());
    }

    /// Compares these bytes of the body, from position `at` on, with the offset body if that is expected.
    fn verify(&mut self, expected: &Expected, at: u64, bytes: &[u8]) {
        if expected.verify && self.failure.is_none() {
            let first = self.chosen.range.map_or(0, |(first, _)| first);
            let verified = offset::verify_offset(first.saturating_add(at), bytes);
            self.check(verified.map_err(|_| Failure::Content));
        }
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
        match self.read_or_end(buffer, flags)? {
            Some(0) => Err(self.cut()),
            read => Ok(read),
        }
    }

    /// Reads from the socket. Returns `None` if no bytes are available, and 0 if the server has closed the connection
    /// in an orderly way.
    fn read_or_end(
        &mut self,
        buffer: &mut [u8],
        flags: RecvFlags,
    ) -> Result<Option<usize>, Failure> {
        let socket = self.socket.as_ref().ok_or(Failure::Closed)?;
        if let Some(session) = &mut self.session {
            return session.read(socket, buffer).map_err(|_| self.cut());
        }
        match net::recv(socket.as_fd(), buffer, flags) {
            Ok((_, count)) => Ok(Some(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(_) => Err(self.cut()),
        }
    }

    /// Returns the failure of a connection that has ended.
    fn cut(&self) -> Failure {
        if self.session.as_ref().is_some_and(Session::is_handshaking) {
            return Failure::Tls;
        }
        let untouched = matches!(self.state, State::Head | State::Idle) && self.partial.is_empty();
        match untouched && self.answered > 0 {
            true => Failure::Stale,
            false => Failure::Closed,
        }
    }

    /// Returns the failure of a connection that could not be made; `None` if it may still be made.
    pub(super) fn connect_failure(&self) -> Option<Failure> {
        match self.socket.as_ref().map(sockopt::socket_error) {
            Some(Ok(Err(error))) => Some(connect_failure(error, Failure::Closed)),
            _ => None,
        }
    }

    /// Closes the socket.
    pub(super) fn close(&mut self) {
        self.session = None;
        self.socket = None;
        self.state = State::Absent;
        self.has_more = false;
        self.partial.clear();
    }

    /// Whether a request is in progress on this slot.
    pub(super) fn busy(&self) -> bool {
        !matches!(self.state, State::Absent | State::Idle)
    }
}

/// Whether another head follows this one.
fn is_interim(head: &Head) -> bool {
    (100..200).contains(&head.status) && head.status != 101
}

/// Returns the flags for reading a body. On TCP sockets, MSG_TRUNC makes the kernel discard the bytes, which saves
/// copying them.
fn body_flags(expected: &Expected) -> RecvFlags {
    match expected.verify {
        true => RecvFlags::empty(),
        false => RecvFlags::TRUNC,
    }
}

/// Returns the failure of the first write on a connection: `closed` if the connection was made and then closed.
pub(super) fn connect_failure(error: Errno, closed: Failure) -> Failure {
    match error {
        Errno::CONNRESET | Errno::PIPE => closed,
        _ => Failure::Connect(error),
    }
}
