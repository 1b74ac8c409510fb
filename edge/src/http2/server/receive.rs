//! Handles the frames of a client.

use crate::http2::endpoint::{NewStream, State};
use crate::http2::inbound::{Block, Frame};
use crate::http2::malformed::ContentCount;
use crate::http2::payload::Payload;
use crate::http2::priority::Priority;
use crate::http2::request::Request;
use crate::http2::violation::{ErrorCode, Violation};

use super::{Event, SHUTDOWN_PING, Server, Shutdown};

impl Server {
    /// Handles a frame. An error of a stream is returned as such.
    #[inline]
    pub(super) fn receive<'a>(
        &mut self,
        frame: Frame<'a>,
        request: &mut Request,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Violation> {
        match frame {
            Frame::Block {
                stream,
                end_stream,
                depends_on_itself,
                block,
            } => {
                let violation = depends_on_itself.then_some(Violation::Stream(
                    stream,
                    ErrorCode::PROTOCOL_ERROR,
                    "stream depends on itself",
                ));
                self.block(stream, end_stream, &block, violation, request, out)
            }
            Frame::Data {
                stream,
                content,
                flow,
                padding,
                end_stream,
            } => {
                let event = self.content(stream, content, (flow, padding), end_stream, out);
                self.endpoint.update_connection(out);
                event
            }
            Frame::Other(stream, payload) => self.control(stream, payload, out),
            Frame::Invalid(stream, code, text) => Err(Violation::Stream(stream, code, text)),
        }
    }

    /// Handles a header block. `violation` is an error of its frame, which counts only after the block is decoded.
    fn block<'a>(
        &mut self,
        id: u32,
        ends: bool,
        block: &Block<'_>,
        violation: Option<Violation>,
        request: &mut Request,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Violation> {
        match self.endpoint.streams.state(id) {
            State::Idle if id.is_multiple_of(2) => {
                Err(Violation::protocol("request on a stream of the server"))
            }
            State::Idle => self.begin(id, ends, block, violation, request),
            State::Open(slot) => {
                let fields = self.endpoint.trailers(slot, ends, block, violation)?;
                if self.lingering.remove(slot) {
                    self.endpoint.remove(slot, out);
                    return Ok(None);
                }
                Ok(Some(Event::Trailers { slot, fields }))
            }
            State::Abandoned => {
                self.endpoint.skip_block(block)?;
                self.endpoint.count_frame().map(|()| None)
            }
            State::Closed if id == self.endpoint.streams.last_closed() => Err(
                Violation::Connection(ErrorCode::STREAM_CLOSED, "header block on a closed stream"),
            ),
            // The stream was closed some time ago, or was skipped (RFC 9113 5.1.1).
            State::Closed => Err(Violation::protocol("streams in the wrong order")),
        }
    }

    /// Begins a stream with a request.
    fn begin<'a>(
        &mut self,
        id: u32,
        ends: bool,
        block: &Block<'_>,
        violation: Option<Violation>,
        request: &mut Request,
    ) -> Result<Option<Event<'a>>, Violation> {
        request.clear();
        let is_over = self.endpoint.decode(block, |field| request.add(&field))?;
        self.endpoint.streams.begin(id);
        if let Shutdown::Final(_) = self.shutdown {
            // The client knows that the request is not processed (RFC 9113 6.8).
            self.endpoint.streams.abandon(id);
            return self.endpoint.count_frame().map(|()| None);
        }
        if let Some(violation) = violation {
            return Err(violation);
        }
        if self.endpoint.streams.len() >= self.endpoint.limits.streams as usize {
            let code = ErrorCode::REFUSED_STREAM;
            return Err(Violation::Stream(id, code, "too many streams"));
        }
        let mut content = ContentCount::new(None);
        if !is_over {
            let checked = request.finish(self.extended_connect);
            checked.map_err(|malformed| malformed.on(id))?;
            content = ContentCount::new(request.content_length);
            if ends {
                content.end().map_err(|malformed| malformed.on(id))?;
            }
        }
        let slot = self.endpoint.open(NewStream {
            id,
            receives: !ends,
            content,
            priority: request.priority,
        });
        Ok(Some(Event::Request {
            slot,
            ends,
            is_over,
        }))
    }

    /// Handles content. `flow` is the number of bytes that count for flow control, and the padding in them.
    #[inline]
    fn content<'a>(
        &mut self,
        id: u32,
        content: &'a [u8],
        (flow, padding): (u32, u32),
        ends: bool,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Violation> {
        let slot = match self.endpoint.begin_content(id, flow)? {
            State::Open(slot) => slot,
            // Nothing of the content is kept. A further part of a frame is not a frame.
            State::Abandoned if flow > 0 || content.is_empty() => {
                return self.endpoint.count_frame().map(|()| None);
            }
            State::Abandoned => return Ok(None),
            State::Idle | State::Closed => return Err(Violation::closed(id)),
        };
        let is_useful = self
            .endpoint
            .content(slot, content, (flow, padding), ends, out)?;
        if self.lingering.has(slot) {
            self.discard(slot, flow, ends, out);
            return Ok(None);
        }
        Ok(is_useful.then_some(Event::Content {
            slot,
            content,
            ends,
        }))
    }

    /// Notes that the reader of a request has taken bytes of its content, or, with 0 bytes, that it waits for the first
    /// ones. The window of a stream that is read quickly grows.
    pub fn consume(&mut self, slot: usize, bytes: u32, out: &mut Vec<u8>) {
        let now_ms = self.endpoint.now_ms;
        self.endpoint.consume(slot, bytes, now_ms, out);
    }

    /// Notes that bytes of a request's content are not buffered any more, without having been read.
    pub fn release(&mut self, slot: usize, bytes: u32, out: &mut Vec<u8>) {
        self.endpoint.release(slot, bytes, out);
    }

    /// Handles a frame that is neither DATA nor a part of a header block.
    fn control<'a>(
        &mut self,
        stream: u32,
        payload: Payload<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Violation> {
        match payload {
            Payload::Pong(SHUTDOWN_PING) if self.shutdown == Shutdown::Announced => {
                self.end_shutdown(out);
            }
            Payload::Reset(code) => return self.reset_by_client(stream, code, out),
            Payload::PriorityUpdate { stream, value } => {
                self.endpoint.count_frame()?;
                self.endpoint.set_priority(stream, Priority::parse(value));
            }
            payload => self.endpoint.control(stream, payload, out)?,
        }
        Ok(None)
    }

    fn reset_by_client<'a>(
        &mut self,
        id: u32,
        code: ErrorCode,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Violation> {
        let Some(slot) = self.endpoint.open_slot(id)? else {
            return Ok(None);
        };
        let now_ms = self.endpoint.now_ms;
        self.resets
            .spend(1, now_ms, "too many cancelled requests")?;
        self.endpoint.remove(slot, out);
        if self.lingering.remove(slot) {
            return Ok(None);
        }
        Ok(Some(Event::Cancelled {
            slot,
            code,
            violation: None,
        }))
    }
}
