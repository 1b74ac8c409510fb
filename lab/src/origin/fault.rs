//! Everything a test origin can do wrong in one answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// An orderly close.
    Fin,
    /// A reset, as from a host that crashed.
    Reset,
}

/// One way to misbehave. Byte counts of bodies are those of the response, not of the whole resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Reads the request and never answers.
    NeverAnswer,
    /// Reads the request head and ends the connection.
    EndBeforeHead(Ending),
    /// The same, but only for the second and later requests of a connection.
    EndBeforeHeadOnReuse(Ending),
    /// Ends the connection after so many bytes of the body.
    CutBody {
        /// Body bytes that are sent before.
        after: u64,
        /// How the connection ends.
        ending: Ending,
    },
    /// Sends so many bytes of the body, then nothing, and keeps the connection.
    StallBody {
        /// Body bytes that are sent before.
        after: u64,
    },
    /// Sends so many bytes of the head, then nothing, and keeps the connection.
    StallHead {
        /// Head bytes that are sent before.
        after: usize,
    },
    /// Sends head and body in pieces of `bytes` with a pause of `every` between them.
    Drip {
        /// Bytes in a piece.
        bytes: usize,
        /// Time between two pieces.
        every: Duration,
    },
    /// Declares so many bytes more in Content-Length than are sent, then closes.
    LengthTooLong(u64),
    /// Sends these bytes after the body, beyond what its framing declares.
    ExtraBytes(Vec<u8>),
    /// Replaces the value of Content-Range (or adds one).
    ContentRange(String),
    /// Leaves Content-Range out of a 206.
    NoContentRange,
    /// Answers with the range that begins so many bytes further on than asked, and says so truthfully.
    ShiftRange(i64),
    /// Answers with at most so many bytes of the range asked for, and says so truthfully.
    ShortRange(u64),
    /// Answers with up to so many bytes more than the range asked for, and says so truthfully.
    LongRange(u64),
    /// Answers a single range with a multipart/byteranges body of one part.
    AlwaysMultipart,
    /// Answers any range request with 416.
    Unsatisfiable,
    /// Replaces the whole head by these bytes; the body follows as it would have.
    RawHead(Vec<u8>),
    /// Breaks the head in a named way.
    Head(BrokenHead),
    /// Sends a chunked body with a named mistake, after the first chunk's data where there is any.
    Chunk(BadChunk),
}

/// Ways to break a response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenHead {
    /// Bytes that are no HTTP at all.
    Garbage,
    /// Lines end in LF without CR.
    BareLf,
    /// A CR in the middle of a field value.
    BareCr,
    /// A header line without a colon.
    NoColon,
    /// A space between field name and colon.
    SpaceBeforeColon,
    /// A NUL in a field value.
    Nul,
    /// A folded field (obs-fold).
    ObsFold,
    /// A field of so many bytes.
    Huge(usize),
    /// So many fields.
    ManyFields(usize),
    /// A status that is no number.
    BadStatus,
    /// A status of two digits.
    ShortStatus,
    /// A status line of a protocol version that does not exist.
    BadVersion,
    /// Two Content-Length fields that differ.
    DifferingLengths,
    /// Content-Length beside Transfer-Encoding: chunked (the body is chunked).
    LengthAndChunked,
    /// A Content-Length that is no number.
    BadLength,
    /// A negative Content-Length.
    NegativeLength,
    /// A Content-Length beyond 64 bits.
    OverflowingLength,
    /// Transfer-Encoding names a coding nobody knows.
    UnknownCoding,
    /// Transfer-Encoding where chunked is not the final coding.
    ChunkedNotFinal,
    /// A head that never ends: fields without end.
    Endless,
}

/// Ways to break a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadChunk {
    /// A size that is not hexadecimal.
    NotHex,
    /// A negative size.
    Negative,
    /// A size beyond 64 bits.
    Overflow,
    /// An empty size line.
    Empty,
    /// A size line that ends in LF without CR.
    BareLf,
    /// Data that is not followed by CRLF.
    NoCrlf,
    /// An extension of so many bytes.
    Extension(usize),
    /// No last chunk: an orderly close instead.
    NoLast,
    /// A trailer line without a colon.
    BadTrailer,
    /// So many bytes of trailers.
    HugeTrailer(usize),
}

/// A fault and how many more requests meet it.
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

    /// The fault, if this request meets it. `reused` says that the connection has answered before.
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
