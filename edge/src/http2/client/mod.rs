//! A client's side of a connection, without I/O: requests become frames, and received bytes become responses.
//!
//! The caller passes received bytes to `take` and handles each event before it continues. Frames that the connection
//! itself has to send are appended to the output of the call that causes them. Requests begin with `begin`; `next` says
//! which stream sends how much of its content.

mod options;
mod receive;
mod send;
#[cfg(test)]
mod tests;

pub use options::Options;

use super::endpoint::{Allowance, Endpoint, NewStream, State};
use super::response::Response;
use super::settings::Sender;
use super::violation::{ErrorCode, Violation};
use super::window::WINDOW_MAX;
use super::write;
use crate::http::{Fields, Status};

/// A client's side of a connection.
pub struct Client {
    endpoint: Endpoint,
    /// The progress of each stream, by its slot.
    progress: Vec<Progress>,
    /// The highest stream that the server processes, once it has sent GOAWAY.
    last_processed: Option<u32>,
    resets: Allowance,
}

/// The progress of a request and its response.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// Whether the request has not been sent completely.
    sends: bool,
    awaited: Awaited,
}

/// The next part of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// The final head, or a 1xx one. `head_only`: the request was HEAD, so there is no content.
    Head { head_only: bool },
    /// Content, trailers, the end, or nothing after that.
    Content,
}

/// An event for the caller. Slots are small numbers that are used again after their stream has ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The head of a response, which is in the `Response` that was passed to `take`.
    Head {
        /// Slot of the stream.
        slot: usize,
        /// The status. Below 200, another head follows.
        status: Status,
        /// Whether the response has no content.
        ends: bool,
    },
    /// Content of a response. `consume` has to be called as it is taken.
    Content {
        /// Slot of the stream.
        slot: usize,
        /// The content, possibly empty.
        content: &'a [u8],
        /// Whether the response ends with it.
        ends: bool,
    },
    /// The end of a response with trailers.
    Trailers {
        /// Slot of the stream.
        slot: usize,
        /// The trailers.
        fields: Fields,
    },
    /// A stream has ended early, because the server has reset it or violated the protocol. The slot is free.
    Failed {
        /// Slot of the stream.
        slot: usize,
        /// The code in RST_STREAM.
        code: ErrorCode,
        /// Description of the violation, if there was one.
        violation: Option<&'static str>,
    },
    /// The server accepts no more streams. Those for which `take_unprocessed` returns slots have not been processed.
    GoAway {
        /// The reason.
        code: ErrorCode,
    },
    /// The answer to `ping`.
    Pong([u8; 8]),
}

impl Client {
    /// Creates a connection, and appends the preface and this side's first frames.
    pub fn new(options: Options, now_ms: u64, out: &mut Vec<u8>) -> Client {
        let settings = options.settings();
        Client {
            endpoint: Endpoint::new(Sender::Server, options.limits, settings, now_ms, out),
            progress: Vec::new(),
            last_processed: None,
            resets: Allowance::new(options.resets, now_ms),
        }
    }

    /// Takes the next frame, or a part of one, from the start of `input`. Returns the number of bytes used, 0 if more input
    /// is needed. The memory of `response` is used for a response's head.
    ///
    /// # Errors
    ///
    /// The server violates the protocol or a limit, so that the connection has to be closed: see `close`.
    pub fn take<'a>(
        &mut self,
        input: &'a [u8],
        now_ms: u64,
        response: &mut Response,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Event<'a>>), Violation> {
        let (used, frame) = self.endpoint.take(input, now_ms)?;
        let Some(frame) = frame else {
            return Ok((used, None));
        };
        let event = match self.receive(frame, response, out) {
            Err(Violation::Stream(id, code, text)) => self.fail(id, code, text, out)?,
            Err(violation) => return Err(violation),
            Ok(event) => event,
        };
        Ok((used, event))
    }

    /// Resets a stream because of a violation by the server.
    fn fail<'a>(
        &mut self,
        id: u32,
        code: ErrorCode,
        text: &'static str,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Violation> {
        match self.endpoint.streams.state(id) {
            State::Idle => Err(Violation::Connection(code, text)),
            State::Abandoned | State::Closed => {
                self.endpoint.count_frame()?;
                Ok(None)
            }
            State::Open(slot) => {
                self.reset(slot, code, out);
                Ok(Some(Event::Failed {
                    slot,
                    code,
                    violation: Some(text),
                }))
            }
        }
    }

    /// Resets a stream whose response is not wanted. Its slot is free.
    pub fn reset(&mut self, slot: usize, code: ErrorCode, out: &mut Vec<u8>) {
        self.endpoint.reset(slot, code, out);
    }

    /// Resets a stream like `reset`, because the response is not wanted any more. Returns whether the connection should get
    /// further requests: not if too many streams were reset.
    pub fn cancel(&mut self, slot: usize, now_ms: u64, out: &mut Vec<u8>) -> bool {
        self.reset(slot, ErrorCode::CANCEL, out);
        self.resets.spend(1, now_ms, "resets of this side").is_ok()
    }

    /// Returns the largest header list that the server accepts: the lengths of names and values, and 32 bytes for each field
    /// (RFC 9113 6.5.2). `None`: it has not named a limit.
    pub fn header_list_max(&self) -> Option<u64> {
        let most = self.endpoint.header_list_max();
        (most < u32::MAX).then_some(most.into())
    }

    /// Returns the number of requests for which there is room now.
    pub fn room(&self) -> usize {
        let permitted = self.endpoint.permitted_streams();
        let most = permitted.min(self.endpoint.limits.streams) as usize;
        let streams = &self.endpoint.streams;
        match self.last_processed {
            None if streams.last() < WINDOW_MAX - 2 => most.saturating_sub(streams.len()),
            _ => 0,
        }
    }

    /// Returns the number of streams that the server permits at a time.
    pub fn permitted_streams(&self) -> u32 {
        self.endpoint.permitted_streams()
    }

    /// After GOAWAY: returns the slot of a stream that the server has not processed, so that its request may be sent again
    /// on another connection. The slot is free.
    pub fn take_unprocessed(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let last = self.last_processed?;
        let slot = self.endpoint.streams.first_after(last)?;
        self.endpoint.remove(slot, out);
        Some(slot)
    }

    /// Appends a PING, whose answer is the event `Pong`.
    pub fn ping(&mut self, bytes: [u8; 8], out: &mut Vec<u8>) {
        write::ping(out, bytes);
    }

    /// Appends the frame that ends the connection, after an error of `take` or because it is not needed any more.
    pub fn close(&self, code: ErrorCode, text: &str, out: &mut Vec<u8>) {
        write::go_away(out, 0, code, text);
    }

    /// Returns the number of open streams.
    pub fn open_streams(&self) -> usize {
        self.endpoint.streams.len()
    }

    /// Whether the server's first settings have arrived.
    pub fn has_begun(&self) -> bool {
        self.endpoint.has_begun()
    }

    /// Frees memory that an idle connection does not need.
    pub fn rest(&mut self) {
        if self.endpoint.rest() {
            self.progress = Vec::new();
        }
    }

    /// Returns the heap memory in bytes.
    #[cfg(any(test, feature = "test-rigs"))]
    pub fn memory(&self) -> usize {
        self.endpoint.memory() + self.progress.capacity() * size_of::<Progress>()
    }

    /// Opens a stream and returns its slot.
    fn open(&mut self, new: NewStream, progress: Progress) -> usize {
        self.endpoint.streams.begin(new.id);
        let slot = self.endpoint.open(new);
        if slot >= self.progress.len() {
            self.progress.resize(slot + 1, progress);
        }
        self.progress[slot] = progress;
        slot
    }
}
