//! Receives a response: reads bytes from the transport, parses the head, and splits the content
//! into frames.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::ReadBuf;

use super::response::{self, Parsed};
use crate::handler::{Fault, Frame};
use crate::http::Method;
use crate::http::chunked::{Decoded, Decoder};
use crate::http2::frame::{FrameHeader, kind};
use crate::reason::Reason;
use crate::upstream::inbound::{Content, Step};
use crate::upstream::transport::Transport;

/// Largest single read in bytes, for large bodies. A connection keeps a buffer of this size while
/// its origin sends fast enough to fill it.
const READ_MAX: usize = 128 << 10;
/// Size in bytes of the first read of an exchange.
const READ_MIN: usize = 8 << 10;
/// Longest trailer section, in bytes.
const TRAILERS_MAX: usize = 16 << 10;
/// Most interim heads (1xx) in one exchange.
const INTERIM_MAX: usize = 64;

/// Bytes that were received and not used yet, and the state of decoding them.
pub(super) struct Incoming {
    buffer: BytesMut,
    /// Size of the next read, in bytes.
    size: usize,
    /// Length that the buffer had when it was last searched for a complete head, without success.
    searched: usize,
    /// Number of interim heads of this exchange so far, and then their total bytes.
    interim: usize,
    interim_bytes: usize,
    decoding: Decoding,
}

enum Decoding {
    Sized(u64),
    Chunked(Box<Decoder>),
    UntilClose,
    /// All content has been taken.
    Ended,
}

impl Incoming {
    pub(super) fn new() -> Incoming {
        Incoming {
            buffer: BytesMut::new(),
            size: READ_MIN,
            searched: 0,
            interim: 0,
            interim_bytes: 0,
            decoding: Decoding::Ended,
        }
    }

    /// Whether all of a response has been taken and nothing was received after it.
    pub(super) fn is_clean(&self) -> bool {
        self.buffer.is_empty() && self.has_ended()
    }

    /// Whether all of the content has been taken.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.decoding, Decoding::Ended)
    }

    /// Whether the content has a declared length, of which some is still to be received.
    pub(super) fn is_sized(&self) -> bool {
        matches!(self.decoding, Decoding::Sized(_))
    }

    /// Frees the buffer, which an idle connection does not need.
    pub(super) fn trim(&mut self) {
        *self = Incoming::new();
    }

    /// Reads more bytes into the buffer. Returns 0 when the server has closed the connection.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
    ) -> Poll<io::Result<usize>> {
        if self.buffer.capacity() - self.buffer.len() < self.size {
            self.buffer.reserve(self.size);
        }
        let room = self.buffer.capacity() - self.buffer.len();
        let n = ready!(transport.poll_read_buffer(cx, &mut self.buffer))?;
        if n == room {
            self.size = (self.size * 2).min(READ_MAX);
        } else if n < self.size / 4 {
            self.size = (self.size / 2).max(READ_MIN);
        }
        Poll::Ready(Ok(n))
    }

    /// Whether `room` may be filled with content directly from the transport: nothing is buffered,
    /// and at least as many bytes of content follow as fit.
    pub(super) fn may_fill(&self, room: &ReadBuf<'_>) -> bool {
        let enough = |left| left >= room.remaining() as u64;
        self.buffer.is_empty() && matches!(self.decoding, Decoding::Sized(left) if enough(left))
    }

    /// Reads content directly into `room`, which `may_fill` must have allowed. Returns 0 when the
    /// server has closed the connection.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let n = ready!(transport.poll_read(cx, room))?;
        if let Decoding::Sized(left) = &mut self.decoding {
            *left = left.saturating_sub(n as u64);
            if *left == 0 {
                self.decoding = Decoding::Ended;
            }
        }
        Poll::Ready(Ok(n))
    }

    /// Takes the head from the buffer if it is complete. `most` limits the bytes of all heads of an
    /// exchange together, interim ones included.
    pub(super) fn head(&mut self, method: &Method, most: usize) -> Result<Option<Parsed>, Fault> {
        // A head is parsed again only after a line end, so that a head that arrives byte by byte is
        // not parsed for each byte.
        let new = self.buffer.get(self.searched..).unwrap_or_default();
        let worth_it = self.searched == 0 || memchr::memchr(b'\n', new).is_some();
        let parsed = match worth_it && !self.buffer.is_empty() {
            true => response::parse(method, &self.buffer)?,
            false => None,
        };
        let length = parsed.as_ref().map_or(self.buffer.len(), |r| r.length);
        let most = most.saturating_sub(self.interim_bytes);
        if length > most || (parsed.is_none() && length == most) {
            return Err(Reason::BadHead.into());
        }
        self.searched = match &parsed {
            Some(_) => 0,
            None => length,
        };
        if let Some(parsed) = &parsed {
            self.buffer.advance(length);
            self.count(parsed)?;
            self.decoding = match parsed.head.content {
                Content::None { .. } => Decoding::Ended,
                Content::Sized(length) => Decoding::Sized(length),
                Content::Delimited => Decoding::Chunked(Box::new(
                    Decoder::new(TRAILERS_MAX, response::trailers).padded(),
                )),
                Content::UntilClose => Decoding::UntilClose,
            };
        }
        Ok(parsed)
    }

    /// Whether the received bytes begin with a SETTINGS frame, as a server's connection of HTTP/2 does (RFC 9113 3.4).
    pub(super) fn is_http2(&self) -> bool {
        let first = self.buffer.first_chunk().map(FrameHeader::parse);
        first.is_some_and(|frame| {
            frame.kind == kind::SETTINGS && frame.stream == 0 && frame.flags == 0
        })
    }

    /// Counts an interim head and checks the limits: an origin that sends interim heads endlessly
    /// would keep the worker busy.
    fn count(&mut self, parsed: &Parsed) -> Result<(), Fault> {
        if matches!(parsed.head.status, 101 | 200..) {
            (self.interim, self.interim_bytes) = (0, 0);
            return Ok(());
        }
        self.interim += 1;
        self.interim_bytes += parsed.length;
        match self.interim > INTERIM_MAX {
            true => Err(Reason::BadHead.into()),
            false => Ok(()),
        }
    }

    /// Takes the next frame out of the buffer.
    pub(super) fn step(&mut self) -> Result<Step, Fault> {
        match &mut self.decoding {
            Decoding::Ended => return Ok(Step::End),
            _ if self.buffer.is_empty() => return Ok(Step::More),
            Decoding::UntilClose => {}
            Decoding::Sized(left) => {
                let n = usize::try_from(*left).unwrap_or(usize::MAX);
                let n = n.min(self.buffer.len());
                *left -= n as u64;
                if *left == 0 {
                    self.decoding = Decoding::Ended;
                }
                return Ok(self.data(n));
            }
            Decoding::Chunked(decoder) => {
                let (used, length) = match decoder.decode(&self.buffer) {
                    Err(_) => return Err(Reason::BadBody.into()),
                    Ok(Decoded::More) => {
                        self.buffer.clear();
                        return Ok(Step::More);
                    }
                    Ok(Decoded::Data(used, data)) => (used, data.len()),
                    Ok(Decoded::End(used, trailers)) => {
                        self.buffer.advance(used);
                        self.decoding = Decoding::Ended;
                        return Ok(match trailers.is_empty() {
                            true => Step::End,
                            false => Step::Frame(Frame::Trailers(trailers)),
                        });
                    }
                };
                self.buffer.advance(used - length);
                return Ok(self.data(length));
            }
        }
        Ok(self.data(self.buffer.len()))
    }

    fn data(&mut self, n: usize) -> Step {
        Step::Frame(Frame::Data(self.buffer.split_to(n).freeze()))
    }

    /// Handles that the server has closed the connection: a fault unless the close is the content's
    /// regular end.
    pub(super) fn close(&mut self) -> Result<(), Fault> {
        match std::mem::replace(&mut self.decoding, Decoding::Ended) {
            Decoding::UntilClose | Decoding::Ended => Ok(()),
            _ => Err(Reason::BodyCut.into()),
        }
    }

    /// Returns the bytes that were received and not used.
    pub(super) fn into_rest(self) -> Bytes {
        self.buffer.freeze()
    }
}
