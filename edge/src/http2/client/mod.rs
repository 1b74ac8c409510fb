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

use super::hpack::{Decoder, Encoder};
use super::inbound::Inbound;
use super::response::Response;
use super::server::allowance::Allowance;
use super::server::scheduler::Scheduler;
use super::server::streams::{State, Stream, Streams};
use super::settings::{OwnSettings, Settings};
use super::violation::{ErrorCode, Violation};
use super::window::{ReceiveWindow, WINDOW_MAX, Window};
use super::{PREFACE, write};
use crate::http::{Fields, Status};

/// A client's side of a connection.
pub struct Client {
    options: Options,
    inbound: Inbound,
    decoder: Decoder,
    encoder: Encoder,
    /// The settings of this side, and those of the server.
    own: OwnSettings,
    peer: Settings,
    /// The server's window for the connection, and this side's.
    window: ReceiveWindow,
    send_window: Window,
    streams: Streams,
    /// The progress of each stream, by its slot.
    progress: Vec<Progress>,
    scheduler: Scheduler,
    frames: Allowance,
    /// The highest stream that the server processes, once it has sent GOAWAY.
    last_processed: Option<u32>,
    now_ms: u64,
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
    /// Content, trailers, or the end.
    Content,
    /// Nothing: the response has ended.
    Nothing,
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
    /// Content of a response. `release` has to be called as it is consumed.
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
        let initial = Settings::default().initial_window_size;
        let mut client = Client {
            inbound: Inbound::of_client(options.block),
            decoder: Decoder::new(),
            encoder: Encoder::new(options.table),
            own: OwnSettings::default(),
            peer: Settings::default(),
            window: ReceiveWindow::new(initial, options.connection_window)
                .updated_by(options.stream_window / 2),
            send_window: Window::new(initial),
            streams: Streams::default(),
            progress: Vec::new(),
            scheduler: Scheduler::default(),
            frames: Allowance::new(options.frames, now_ms),
            last_processed: None,
            now_ms,
            options,
        };
        out.extend_from_slice(PREFACE);
        let settings = options.settings();
        write::settings(out, settings.changes());
        client.own.sent(settings);
        client.update_connection(out);
        client
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
        self.now_ms = now_ms;
        let (used, frame) = self.inbound.take(input, self.own.max_frame_size())?;
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
        match self.streams.state(id) {
            State::Idle => Err(Violation::Connection(code, text)),
            State::Abandoned | State::Closed => {
                self.frames.spend(1, self.now_ms, text)?;
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
        if let Some(id) = self.streams.get(slot).map(|stream| stream.id) {
            write::reset(out, id, code);
            self.streams.abandon(id);
            self.remove(slot, out);
        }
    }

    /// Closes a stream.
    fn remove(&mut self, slot: usize, out: &mut Vec<u8>) {
        self.scheduler.remove(slot as u32);
        if let Some(stream) = self.streams.close(slot) {
            self.window.release(stream.held);
            self.update_connection(out);
        }
    }

    /// Announces the connection's window, if that is worth a frame.
    fn update_connection(&mut self, out: &mut Vec<u8>) {
        if let Some(increment) = self.window.update() {
            write::window_update(out, 0, increment);
        }
    }

    /// Returns the number of requests for which there is room now.
    pub fn room(&self) -> usize {
        let most = self.peer.max_concurrent_streams.min(self.options.streams) as usize;
        match self.last_processed {
            None if self.streams.last() < WINDOW_MAX - 2 => most.saturating_sub(self.streams.len()),
            _ => 0,
        }
    }

    /// After GOAWAY: returns the slot of a stream that the server has not processed, so that its request may be sent again
    /// on another connection. The slot is free.
    pub fn take_unprocessed(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let last = self.last_processed?;
        let unprocessed = |(_, stream): &(usize, &mut Stream)| stream.id > last;
        let (slot, _) = self.streams.iter_mut().find(unprocessed)?;
        self.remove(slot, out);
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
        self.streams.len()
    }

    /// Whether the server's first settings have arrived.
    pub fn has_begun(&self) -> bool {
        self.inbound.has_begun()
    }

    /// Frees memory that an idle connection does not need.
    pub fn rest(&mut self) {
        if self.streams.len() == 0 {
            self.streams.shrink();
            self.scheduler.shrink();
            self.progress = Vec::new();
        }
    }

    /// Returns the heap memory in bytes.
    pub fn memory(&self) -> usize {
        self.decoder.memory()
            + self.encoder.memory()
            + self.streams.memory()
            + self.scheduler.memory()
            + self.progress.capacity() * size_of::<Progress>()
    }

    /// Opens a stream and returns its slot.
    fn open(&mut self, stream: Stream, progress: Progress) -> usize {
        self.streams.begin(stream.id);
        let slot = self.streams.open(stream);
        if slot >= self.progress.len() {
            self.progress.resize(slot + 1, progress);
        }
        self.progress[slot] = progress;
        slot
    }
}
