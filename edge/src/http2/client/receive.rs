//! Handles the frames of a server.

use crate::http2::endpoint::State;
use crate::http2::inbound::{Block, Frame};
use crate::http2::malformed::{ContentCount, Malformed};
use crate::http2::payload::Payload;
use crate::http2::response::Response;
use crate::http2::violation::{ErrorCode, Violation};

use super::{Awaited, Client, Event};

impl Client {
    /// Handles a frame. An error of a stream is returned as such.
    pub(super) fn receive<'a>(
        &mut self,
        frame: Frame<'a>,
        response: &mut Response,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Violation> {
        match frame {
            Frame::Block {
                stream,
                end_stream,
                block,
                ..
            } => self.block(stream, end_stream, &block, response),
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

    fn block<'a>(
        &mut self,
        id: u32,
        ends: bool,
        block: &Block<'_>,
        response: &mut Response,
    ) -> Result<Option<Event<'a>>, Violation> {
        match self.endpoint.streams.state(id) {
            State::Idle => Err(Violation::IDLE),
            State::Abandoned => {
                self.endpoint.skip_block(block)?;
                self.endpoint.count_frame().map(|()| None)
            }
            State::Closed => Err(Violation::Connection(
                ErrorCode::STREAM_CLOSED,
                "header block on a closed stream",
            )),
            State::Open(slot) => {
                if let Awaited::Head { head_only } = self.progress[slot].awaited {
                    return self.head((slot, id), ends, head_only, block, response);
                }
                let fields = self.endpoint.trailers(slot, ends, block, None)?;
                Ok(Some(Event::Trailers { slot, fields }))
            }
        }
    }

    /// Handles the head of a response.
    fn head<'a>(
        &mut self,
        (slot, id): (usize, u32),
        ends: bool,
        head_only: bool,
        block: &Block<'_>,
        response: &mut Response,
    ) -> Result<Option<Event<'a>>, Violation> {
        *response = Response::default();
        if self.endpoint.decode(block, |field| response.add(&field))? {
            let code = ErrorCode::ENHANCE_YOUR_CALM;
            return Err(Violation::Stream(id, code, "header list too large"));
        }
        response.finish().map_err(|malformed| malformed.on(id))?;
        let status = response.status;
        if status < 200 {
            // No interim response ends a stream (RFC 9113 8.1).
            if ends {
                return Err(Malformed::Status.on(id));
            }
            self.endpoint.count_frame()?;
            return Ok(Some(Event::Head { slot, status, ends }));
        }
        // The Content-Length of such a response does not describe its content (RFC 9110 8.6).
        let content = match head_only || matches!(status, 204 | 304) {
            true => ContentCount::new(Some(0)),
            false => ContentCount::new(response.content_length),
        };
        let now_ms = self.endpoint.now_ms;
        let stream = &mut self.endpoint.streams[slot];
        stream.content = content;
        // The time in which the server prepared the response does not make its reader slow.
        stream.since_ms = now_ms;
        self.progress[slot].awaited = Awaited::Content;
        if ends {
            content.end().map_err(|malformed| malformed.on(id))?;
            stream.receives = false;
        }
        Ok(Some(Event::Head { slot, status, ends }))
    }

    /// Handles content. `flow` is the number of bytes that count for flow control, and the padding in them.
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
            // Content of a stream that was reset may be on its way for a round trip.
            _ if flow == 0 && content.is_empty() => {
                return self.endpoint.count_frame().map(|()| None);
            }
            _ => return Ok(None),
        };
        if let Awaited::Head { .. } = self.progress[slot].awaited {
            self.endpoint.drop_content(flow);
            let code = ErrorCode::PROTOCOL_ERROR;
            return Err(Violation::Stream(id, code, "content before a head"));
        }
        let is_useful = self
            .endpoint
            .content(slot, content, (flow, padding), ends, out)?;
        Ok(is_useful.then_some(Event::Content {
            slot,
            content,
            ends,
        }))
    }

    /// Notes that the reader of a response has taken bytes of its content. The window of a stream that is read quickly
    /// grows.
    pub fn consume(&mut self, slot: usize, bytes: u32, now_ms: u64, out: &mut Vec<u8>) {
        self.endpoint.consume(slot, bytes, now_ms, out);
    }

    /// Notes that this much content of a response, whose stream is closed, is still buffered, so that the windows of other
    /// streams grow less. Returns the amount by which they do, for `forget`.
    pub fn keep(&mut self, bytes: u32) -> u32 {
        self.endpoint.keep(bytes)
    }

    /// Notes that the content of a response for which `keep` has returned this amount is not buffered any more.
    pub fn forget(&mut self, kept: u32) {
        self.endpoint.forget(kept);
    }

    /// Handles a frame that is neither DATA nor a part of a header block.
    fn control<'a>(
        &mut self,
        stream: u32,
        payload: Payload<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Violation> {
        match payload {
            Payload::Pong(bytes) => {
                self.endpoint.count_frame()?;
                return Ok(Some(Event::Pong(bytes)));
            }
            Payload::Reset(code) => return self.reset_by_server(stream, code, out),
            Payload::GoAway { last_stream, code } => {
                self.endpoint.count_frame()?;
                // The number must not grow (RFC 9113 6.8).
                let before = self.last_processed.unwrap_or(u32::MAX);
                self.last_processed = Some(last_stream.min(before));
                return Ok(Some(Event::GoAway { code }));
            }
            Payload::PriorityUpdate { .. } => {
                // Only clients send it (RFC 9218 7.1).
                return Err(Violation::protocol("PRIORITY_UPDATE of a server"));
            }
            payload => self.endpoint.control(stream, payload, out)?,
        }
        Ok(None)
    }

    fn reset_by_server<'a>(
        &mut self,
        id: u32,
        code: ErrorCode,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Violation> {
        let Some(slot) = self.endpoint.open_slot(id)? else {
            return Ok(None);
        };
        self.endpoint.count_frame()?;
        self.endpoint.remove(slot, out);
        Ok(Some(Event::Failed {
            slot,
            code,
            violation: None,
        }))
    }
}
