//! Faults that a test origin can inject into a response.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The way in which a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Closed with a FIN.
    Fin,
    /// Closed with a reset, as after a crash.
    Reset,
}

/// The way in which a response breaks at one of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// The connection is closed in place of the byte.
    End(Ending),
    /// Nothing is sent any more, and the connection stays open.
    Stall,
    /// A NUL is sent in place of the byte, and then the rest. No head and no framing may contain one.
    Nul,
}

/// A fault of a response. Numbers of bytes refer to the body of the response, not to the whole resource.
///
/// Faults of the syntax of HTTP/1.1 (`At`, `RawHead`, `Head`, `Chunk`) have no effect with HTTP/2, and those of streams have
/// none with HTTP/1.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Reads the request and never responds.
    NeverAnswer,
    /// Reads the request head and closes the connection.
    EndBeforeHead(Ending),
    /// Reads the request head and closes the connection, but only for the second and later requests of a connection.
    EndBeforeHeadOnReuse(Ending),
    /// Closes the connection after a number of body bytes.
    CutBody {
        /// Number of body bytes sent before the close.
        after: u64,
        /// The way in which the connection is closed.
        ending: Ending,
    },
    /// Sends a number of body bytes, then nothing, and keeps the connection open.
    StallBody {
        /// Number of body bytes sent.
        after: u64,
    },
    /// Sends a number of head bytes, then nothing, and keeps the connection open.
    StallHead {
        /// Number of head bytes sent.
        after: usize,
    },
    /// Breaks at one byte of the response as it is sent, with its head and its framing.
    At {
        /// Number of bytes before the break.
        byte: u64,
        /// The way in which the response breaks.
        how: Break,
    },
    /// Sends head and body in small writes with pauses between them.
    Drip {
        /// Number of bytes per write.
        bytes: usize,
        /// Pause between two writes.
        every: Duration,
    },
    /// Sends the head at once, and the body in small writes with pauses between them.
    DripBody {
        /// Number of bytes per write.
        bytes: usize,
        /// Pause between two writes.
        every: Duration,
    },
    /// Sends a Content-Length that is too large by this many bytes, then closes the connection.
    LengthTooLong(u64),
    /// Sends these bytes after the end of the body.
    ExtraBytes(Vec<u8>),
    /// Replaces or adds Content-Range with this value.
    ContentRange(String),
    /// Omits Content-Range from a 206.
    NoContentRange,
    /// Responds with a range that begins this many bytes after the requested one, with the matching Content-Range.
    ShiftRange(i64),
    /// Responds with at most this many bytes of the requested range, with the matching Content-Range.
    ShortRange(u64),
    /// Responds with up to this many bytes more than requested, with the matching Content-Range.
    LongRange(u64),
    /// Responds to a single range with a multipart/byteranges body of one part.
    AlwaysMultipart,
    /// Responds to every range request with 416.
    Unsatisfiable,
    /// Replaces the whole head with these bytes; the body follows unchanged.
    RawHead(Vec<u8>),
    /// Sends a response head with this violation.
    Head(BrokenHead),
    /// Sends a chunked body with this violation, after the first chunk if there is one.
    Chunk(BadChunk),
    /// Refuses the stream before anything is done for it (REFUSED_STREAM, RFC 9113 8.7).
    RefuseStream,
    /// Resets the stream after a number of body bytes.
    ResetStream {
        /// Number of body bytes sent before the reset.
        after: u64,
        /// Error code of RST_STREAM.
        code: u32,
    },
    /// Sends GOAWAY with this error code in place of the response, and closes the connection.
    GoAway(u32),
}

/// Violation of HTTP in a response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenHead {
    /// The head consists of bytes that are not HTTP.
    Garbage,
    /// Lines of the head end in LF without CR.
    BareLf,
    /// A header value contains a CR.
    BareCr,
    /// A header line has no colon.
    NoColon,
    /// A header line has a space between name and colon.
    SpaceBeforeColon,
    /// A header value contains a NUL.
    Nul,
    /// A header continues on a second line (obs-fold).
    ObsFold,
    /// A header has this many bytes.
    Huge(usize),
    /// The head has this many headers.
    ManyFields(usize),
    /// The status is not a number.
    BadStatus,
    /// The status has only two digits.
    ShortStatus,
    /// The status line has a protocol version that does not exist.
    BadVersion,
    /// The head has two Content-Length headers with different values.
    DifferingLengths,
    /// The head has both Content-Length and `Transfer-Encoding: chunked`, and the body is chunked.
    LengthAndChunked,
    /// Content-Length is not a number.
    BadLength,
    /// Content-Length is negative.
    NegativeLength,
    /// Content-Length is a number of more than 64 bits.
    OverflowingLength,
    /// Transfer-Encoding names a coding that does not exist.
    UnknownCoding,
    /// Transfer-Encoding names another coding after `chunked`.
    ChunkedNotFinal,
    /// The head has so many headers that it seems endless.
    Endless,
}

/// Violation of HTTP in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadChunk {
    /// A chunk size is not hexadecimal.
    NotHex,
    /// A chunk size is negative.
    Negative,
    /// A chunk size has more than 64 bits.
    Overflow,
    /// A chunk-size line is empty.
    Empty,
    /// A chunk-size line ends in LF without CR.
    BareLf,
    /// The content of a chunk is not followed by CRLF.
    NoCrlf,
    /// A chunk has an extension of this many bytes.
    Extension(usize),
    /// The connection is closed in place of the last chunk.
    NoLast,
    /// A trailer line has no colon.
    BadTrailer,
    /// The trailer section has this many bytes.
    HugeTrailer(usize),
}

/// A fault, and the number of further requests that it applies to.
#[derive(Debug, Clone)]
pub(super) struct Armed {
    fault: Fault,
    left: Option<Arc<AtomicU32>>,
}

impl Armed {
    pub(super) fn always(fault: Fault) -> Armed {
        Armed { fault, left: None }
    }

    pub(super) fn times(times: u32, fault: Fault) -> Armed {
        Armed {
            fault,
            left: Some(Arc::new(AtomicU32::new(times))),
        }
    }

    /// Returns the fault if it applies to this request. `reused`: whether the connection has had an earlier request.
    pub(super) fn fire(&self, reused: bool) -> Option<Fault> {
        if matches!(self.fault, Fault::EndBeforeHeadOnReuse(_)) && !reused {
            return None;
        }
        if let Some(left) = &self.left {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .ok()?;
        }
        Some(self.fault.clone())
    }
}
