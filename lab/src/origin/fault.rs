//! Faults that a test origin can inject into a response.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With a FIN.
    Fin,
    /// With a reset, as after a crash.
    Reset,
}

/// A fault. Byte counts refer to the body of the response, not to the whole resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Reads the request and never responds.
    NeverAnswer,
    /// Reads the request head and closes the connection.
    EndBeforeHead(Ending),
    /// Like `EndBeforeHead`, but only for the second and later requests of a connection.
    EndBeforeHeadOnReuse(Ending),
    /// Closes the connection after a number of body bytes.
    CutBody {
        /// Body bytes sent before the close.
        after: u64,
        /// How the connection is closed.
        ending: Ending,
    },
    /// Sends a number of body bytes, then nothing, and keeps the connection open.
    StallBody {
        /// Body bytes sent before the stall.
        after: u64,
    },
    /// Sends a number of head bytes, then nothing, and keeps the connection open.
    StallHead {
        /// Head bytes sent before the stall.
        after: usize,
    },
    /// Sends head and body in small writes with pauses between them.
    Drip {
        /// Bytes per write.
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
    /// Sends a head with this protocol violation.
    Head(BrokenHead),
    /// Sends a chunked body with this protocol violation, after the first chunk if there is one.
    Chunk(BadChunk),
}

/// Violations in a response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenHead {
    /// Bytes that are not HTTP.
    Garbage,
    /// Lines end in LF without CR.
    BareLf,
    /// A CR within a header value.
    BareCr,
    /// A header line without a colon.
    NoColon,
    /// A space between header name and colon.
    SpaceBeforeColon,
    /// A NUL in a header value.
    Nul,
    /// A folded header (obs-fold).
    ObsFold,
    /// A header of this many bytes.
    Huge(usize),
    /// This many headers.
    ManyFields(usize),
    /// A status that is not a number.
    BadStatus,
    /// A status of two digits.
    ShortStatus,
    /// A status line with a protocol version that does not exist.
    BadVersion,
    /// Two different Content-Length headers.
    DifferingLengths,
    /// Content-Length and Transfer-Encoding: chunked (the body is chunked).
    LengthAndChunked,
    /// A Content-Length that is not a number.
    BadLength,
    /// A negative Content-Length.
    NegativeLength,
    /// A Content-Length of more than 64 bits.
    OverflowingLength,
    /// A Transfer-Encoding that does not exist.
    UnknownCoding,
    /// A Transfer-Encoding in which chunked is not last.
    ChunkedNotFinal,
    /// A head with so many headers that it seems endless.
    Endless,
}

/// Violations in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadChunk {
    /// A chunk size that is not hexadecimal.
    NotHex,
    /// A negative chunk size.
    Negative,
    /// A chunk size of more than 64 bits.
    Overflow,
    /// An empty chunk-size line.
    Empty,
    /// A chunk-size line that ends in LF without CR.
    BareLf,
    /// Chunk data that is not followed by CRLF.
    NoCrlf,
    /// A chunk extension of this many bytes.
    Extension(usize),
    /// A close in place of the last chunk.
    NoLast,
    /// A trailer line without a colon.
    BadTrailer,
    /// This many bytes of trailers.
    HugeTrailer(usize),
}

/// A fault and the number of requests that it still applies to.
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
