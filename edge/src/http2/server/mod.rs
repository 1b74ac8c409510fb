//! A server's side of a connection, without I/O: received bytes become requests and their content, and the frames of
//! responses are ordered by priority and limited by flow control.
//!
//! The caller passes received bytes to `take` and handles each event before it continues. Frames that the connection
//! itself has to send are appended to the output of the call that causes them. To send responses, the caller asks `next`
//! which stream sends how much.

mod linger;
mod lingering;
mod options;
mod receive;
mod send;
#[cfg(test)]
mod tests;

pub use options::Options;

use lingering::Lingering;

use super::endpoint::{Allowance, Endpoint, State};
use super::request::Request;
use super::settings::Sender;
use super::violation::{ErrorCode, Violation};
use super::window::WINDOW_MAX;
use super::write;
use crate::http::Fields;

/// Content of the PING whose answer shows that the client knows of the shutdown.
const SHUTDOWN_PING: [u8; 8] = *b"shutdown";

/// A server's side of a connection.
pub struct Server {
    endpoint: Endpoint,
    /// Whether extended CONNECT is supported (RFC 8441).
    extended_connect: bool,
    resets: Allowance,
    shutdown: Shutdown,
    lingering: Lingering,
    linger_ms: u64,
    linger_bytes: u32,
}

/// Progress of a graceful shutdown (RFC 9113 6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    /// The connection accepts requests.
    None,
    /// The client was told to send no more requests. Some may still be on their way.
    Announced,
    /// The client knows that this request is the last one to be processed. Later ones are ignored.
    Final(u32),
}

/// An event for the caller. Slots are small numbers that are used again after their stream has ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A stream has begun. Its request is in the `Request` that was passed to `take`.
    Request {
        /// Slot of the stream, until the response ends or the stream is cancelled.
        slot: usize,
        /// Whether the request has no content.
        ends: bool,
        /// Whether the header list was over the limit, so that the request is incomplete and not checked.
        is_over: bool,
    },
    /// Content of a request. `consume` or `release` has to be called as it leaves the buffer.
    Content {
        /// Slot of the stream.
        slot: usize,
        /// The content, possibly empty.
        content: &'a [u8],
        /// Whether the request ends with it.
        ends: bool,
    },
    /// The end of a request with trailers.
    Trailers {
        /// Slot of the stream.
        slot: usize,
        /// The trailers.
        fields: Fields,
    },
    /// A stream has ended because of the client: it has reset the stream, or violated the protocol. The slot is free.
    Cancelled {
        /// Slot of the stream.
        slot: usize,
        /// The code in RST_STREAM.
        code: ErrorCode,
        /// Description of the violation, if there was one.
        violation: Option<&'static str>,
    },
    /// A request was refused before it had a slot, or a frame on a closed stream. The stream is reset.
    Refused {
        /// The code in RST_STREAM.
        code: ErrorCode,
        /// Whether this is a request. Its header section, as far as it was read, is in the `Request` that was passed to
        /// `take`.
        is_request: bool,
        /// Description for the log.
        violation: &'static str,
    },
}

impl Server {
    /// Creates a connection that waits for the client's preface, and appends this side's first frames.
    pub fn new(options: Options, now_ms: u64, out: &mut Vec<u8>) -> Server {
        let settings = options.settings();
        Server {
            endpoint: Endpoint::new(Sender::Client, options.limits, settings, now_ms, out),
            extended_connect: options.extended_connect,
            resets: Allowance::new(options.resets, now_ms),
            shutdown: Shutdown::None,
            lingering: Lingering::default(),
            linger_ms: options.linger_ms,
            linger_bytes: options.linger_bytes,
        }
    }

    /// Sets the time for the calls that have no such argument.
    pub fn set_now(&mut self, now_ms: u64) {
        self.endpoint.now_ms = now_ms;
    }

    /// Takes the next frame, or a part of one, from the start of `input`. Returns the number of bytes used, 0 if more input
    /// is needed. The memory of `request` is used for a request's head.
    ///
    /// # Errors
    ///
    /// The client violates the protocol or a limit, so that the connection has to be closed: see `close`.
    #[inline]
    pub fn take<'a>(
        &mut self,
        input: &'a [u8],
        now_ms: u64,
        request: &mut Request,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Event<'a>>), Violation> {
        let (used, frame) = self.endpoint.take(input, now_ms)?;
        let Some(frame) = frame else {
            return Ok((used, None));
        };
        let last = self.endpoint.streams.last();
        let event = match self.receive(frame, request, out) {
            Err(Violation::Stream(id, code, text)) => self.fail(id, code, text, id > last, out)?,
            Err(violation) => return Err(violation),
            Ok(event) => event,
        };
        Ok((used, event))
    }

    /// Resets a stream because of a violation by the client. `is_request`: the stream has begun with it.
    fn fail<'a>(
        &mut self,
        id: u32,
        code: ErrorCode,
        text: &'static str,
        is_request: bool,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Violation> {
        let state = self.endpoint.streams.state(id);
        if state == State::Idle {
            // RST_STREAM must not be sent for an idle stream (RFC 9113 6.4).
            return Err(Violation::Connection(code, text));
        }
        if state == State::Abandoned {
            // The client will learn of the earlier reset.
            self.endpoint.count_frame()?;
            return Ok(None);
        }
        let now_ms = self.endpoint.now_ms;
        self.resets.spend(1, now_ms, "too many stream errors")?;
        self.endpoint.send_reset(id, code, out);
        let State::Open(slot) = state else {
            return Ok(Some(Event::Refused {
                code,
                is_request,
                violation: text,
            }));
        };
        self.endpoint.remove(slot, out);
        if self.lingering.remove(slot) {
            return Ok(Some(Event::Refused {
                code,
                is_request: false,
                violation: text,
            }));
        }
        Ok(Some(Event::Cancelled {
            slot,
            code,
            violation: Some(text),
        }))
    }

    /// Appends the frame that ends the connection after an error of `take`.
    pub fn close(&self, violation: &Violation, out: &mut Vec<u8>) {
        let (Violation::Connection(code, text) | Violation::Stream(_, code, text)) = *violation;
        // The number must not grow (RFC 9113 6.8).
        let last = match self.shutdown {
            Shutdown::Final(last) => last,
            Shutdown::None | Shutdown::Announced => self.endpoint.streams.last(),
        };
        write::go_away(out, last, code, text);
    }

    /// Tells the client to send no more requests. Those that are on their way are still processed.
    pub fn begin_shutdown(&mut self, out: &mut Vec<u8>) {
        if self.shutdown == Shutdown::None {
            self.shutdown = Shutdown::Announced;
            write::go_away(out, WINDOW_MAX, ErrorCode::NO_ERROR, "");
            write::ping(out, SHUTDOWN_PING);
        }
    }

    /// Ignores further requests, of which the client is told. Happens by itself once the client has noticed
    /// `begin_shutdown`.
    pub fn end_shutdown(&mut self, out: &mut Vec<u8>) {
        if !matches!(self.shutdown, Shutdown::Final(_)) {
            let last = self.endpoint.streams.last();
            self.shutdown = Shutdown::Final(last);
            write::go_away(out, last, ErrorCode::NO_ERROR, "");
        }
    }

    /// Whether a shutdown has begun.
    pub fn is_shutting_down(&self) -> bool {
        self.shutdown != Shutdown::None
    }

    /// Whether the connection can be closed after a shutdown.
    pub fn is_done(&self) -> bool {
        matches!(self.shutdown, Shutdown::Final(_)) && self.open_streams() == 0
    }

    /// Returns the number of streams that this side has reset.
    pub fn resets_sent(&self) -> u64 {
        self.endpoint.resets_sent
    }

    /// Returns the number of open streams whose response is not complete.
    pub fn open_streams(&self) -> usize {
        self.endpoint.streams.len() - self.lingering.len()
    }

    /// Whether the client has not acknowledged the settings of this side.
    pub fn awaits_settings(&self) -> bool {
        self.endpoint.awaits_settings()
    }

    /// Whether the client has sent its preface and settings.
    pub fn has_begun(&self) -> bool {
        self.endpoint.has_begun()
    }

    /// Whether no frame other than DATA, and no header block, has begun, as far as bytes were taken.
    pub fn is_between_frames(&self) -> bool {
        self.endpoint.is_between_frames()
    }

    /// Whether a frame or header block has begun and not arrived completely.
    pub fn is_within_frame(&self) -> bool {
        self.endpoint.is_within_frame()
    }

    /// Frees memory that an idle connection does not need.
    pub fn rest(&mut self) {
        self.endpoint.rest();
        self.lingering.shrink();
    }

    /// Returns the heap memory in bytes.
    pub fn memory(&self) -> usize {
        self.endpoint.memory() + self.lingering.memory()
    }
}
