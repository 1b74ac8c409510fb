//! Handles the frames of a server.

use crate::http2::hpack::{DecodeError, Field};
use crate::http2::inbound::{Block, Frame};
use crate::http2::malformed::{ContentCount, Malformed};
use crate::http2::payload::Payload;
use crate::http2::response::{Response, Trailers};
use crate::http2::server::streams::State;
use crate::http2::settings::{Changes, Sender, id};
use crate::http2::violation::{ErrorCode, Violation};
use crate::http2::window::Overflow;
use crate::http2::write;

use super::{Awaited, Client, Event};

const FLOOD: &str = "too many frames without effect";
const IDLE: Violation = Violation::protocol("frame on an idle stream");

fn compression(error: DecodeError) -> Violation {
    Violation::Connection(ErrorCode::COMPRESSION_ERROR, error.text())
}

fn closed(id: u32) -> Violation {
    Violation::Stream(id, ErrorCode::STREAM_CLOSED, "frame on a closed stream")
}

fn stream_window(Overflow: Overflow) -> Violation {
    Violation::flow_control("window of a stream too large")
}

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
                self.update_connection(out);
                event
            }
            Frame::Other(stream, payload) => self.control(stream, payload, out),
            Frame::Invalid(stream, code, text) => Err(Violation::Stream(stream, code, text)),
        }
    }

    /// Counts a frame that brings nothing.
    fn count_frame(&mut self) -> Result<(), Violation> {
        self.frames.spend(1, self.now_ms, FLOOD)
    }

    /// Decodes a header block whose fields are not needed.
    fn skip_block(&mut self, block: &Block<'_>) -> Result<(), Violation> {
        let decoded = self.decoder.decode(block.bytes(), 0, |_| {});
        decoded.map(|_| ()).map_err(compression)
    }

    fn block<'a>(
        &mut self,
        id: u32,
        ends: bool,
        block: &Block<'_>,
        response: &mut Response,
    ) -> Result<Option<Event<'a>>, Violation> {
        match self.streams.state(id) {
            State::Idle => Err(IDLE),
            State::Abandoned => {
                self.skip_block(block)?;
                self.count_frame().map(|()| None)
            }
            State::Closed => Err(Violation::Connection(
                ErrorCode::STREAM_CLOSED,
                "header block on a closed stream",
            )),
            State::Open(slot) => match self.progress[slot].awaited {
                Awaited::Head { head_only } => {
                    self.head((slot, id), ends, head_only, block, response)
                }
                Awaited::Content => self.response_trailers((slot, id), ends, block),
                Awaited::Nothing => {
                    self.skip_block(block)?;
                    Err(closed(id))
                }
            },
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
        let most = u64::from(self.options.header_list);
        let add = |field: Field<'_>| response.add(&field);
        let decoded = self.decoder.decode(block.bytes(), most, add);
        if decoded.map_err(compression)?.is_over {
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
            self.count_frame()?;
            return Ok(Some(Event::Head { slot, status, ends }));
        }
        // The Content-Length of such a response does not describe its content (RFC 9110 8.6).
        let content = match head_only || matches!(status, 204 | 304) {
            true => ContentCount::new(Some(0)),
            false => ContentCount::new(response.content_length),
        };
        self.streams[slot].content = content;
        self.progress[slot].awaited = Awaited::Content;
        if ends {
            content.end().map_err(|malformed| malformed.on(id))?;
            self.end_response(slot);
        }
        Ok(Some(Event::Head { slot, status, ends }))
    }

    /// Notes that a response has been received completely.
    fn end_response(&mut self, slot: usize) {
        self.streams[slot].receives = false;
        self.progress[slot].awaited = Awaited::Nothing;
    }

    fn response_trailers<'a>(
        &mut self,
        (slot, id): (usize, u32),
        ends: bool,
        block: &Block<'_>,
    ) -> Result<Option<Event<'a>>, Violation> {
        let mut trailers = Trailers::default();
        let most = u64::from(self.options.header_list);
        let add = |field: Field<'_>| trailers.add(&field);
        let decoded = self.decoder.decode(block.bytes(), most, add);
        if decoded.map_err(compression)?.is_over {
            let code = ErrorCode::ENHANCE_YOUR_CALM;
            return Err(Violation::Stream(id, code, "trailers too large"));
        }
        if !ends {
            let code = ErrorCode::PROTOCOL_ERROR;
            return Err(Violation::Stream(id, code, "trailers without an end"));
        }
        let fields = trailers.finish().map_err(|malformed| malformed.on(id))?;
        let content = self.streams[slot].content;
        content.end().map_err(|malformed| malformed.on(id))?;
        self.end_response(slot);
        Ok(Some(Event::Trailers { slot, fields }))
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
        let state = self.streams.state(id);
        if state == State::Idle {
            return Err(IDLE);
        }
        if self.window.receive(flow).is_err() {
            return Err(Violation::flow_control("window of the connection exceeded"));
        }
        let State::Open(slot) = state else {
            // Content of a stream that was reset may be on its way for a round trip.
            self.window.release(flow);
            return match flow == 0 && content.is_empty() {
                true => self.count_frame().map(|()| None),
                false => Ok(None),
            };
        };
        let stream = &mut self.streams[slot];
        if self.progress[slot].awaited != Awaited::Content {
            self.window.release(flow);
            return match stream.receives {
                true => Err(Violation::Stream(
                    id,
                    ErrorCode::PROTOCOL_ERROR,
                    "content before a head",
                )),
                false => Err(closed(id)),
            };
        }
        if stream.window.receive(flow).is_err() {
            self.window.release(flow);
            let code = ErrorCode::FLOW_CONTROL_ERROR;
            return Err(Violation::Stream(id, code, "window of the stream exceeded"));
        }
        stream.held += flow;
        let counted = stream.content.add(content.len() as u64);
        counted.map_err(|malformed| malformed.on(id))?;
        if ends {
            stream.content.end().map_err(|malformed| malformed.on(id))?;
            self.end_response(slot);
        }
        self.release(slot, padding, out);
        if content.is_empty() && !ends {
            // The frame is empty, or its content has not arrived yet.
            return match flow == padding {
                true => self.count_frame().map(|()| None),
                false => Ok(None),
            };
        }
        Ok(Some(Event::Content {
            slot,
            content,
            ends,
        }))
    }

    /// Notes that bytes of a response's content are not buffered any more.
    pub fn release(&mut self, slot: usize, bytes: u32, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(slot) else {
            return;
        };
        let bytes = bytes.min(stream.held);
        stream.held -= bytes;
        stream.window.release(bytes);
        if stream.receives
            && let Some(increment) = stream.window.update()
        {
            write::window_update(out, stream.id, increment);
        }
        self.window.release(bytes);
        self.update_connection(out);
    }

    /// Handles a frame that is neither DATA nor a part of a header block.
    fn control<'a>(
        &mut self,
        stream: u32,
        payload: Payload<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Violation> {
        match payload {
            Payload::Settings(changes) => self.settings(changes, out)?,
            Payload::SettingsAck => self.acknowledged()?,
            Payload::Ping(bytes) => {
                self.count_frame()?;
                write::pong(out, bytes);
            }
            Payload::Pong(bytes) => {
                self.count_frame()?;
                return Ok(Some(Event::Pong(bytes)));
            }
            Payload::WindowUpdate(increment) => self.window_update(stream, increment)?,
            Payload::Reset(code) => return self.reset_by_server(stream, code, out),
            Payload::GoAway { last_stream, code } => {
                self.count_frame()?;
                // The number must not grow (RFC 9113 6.8).
                let before = self.last_processed.unwrap_or(u32::MAX);
                self.last_processed = Some(last_stream.min(before));
                return Ok(Some(Event::GoAway { code }));
            }
            Payload::PriorityUpdate { .. } => {
                // Only clients send it (RFC 9218 7.1).
                return Err(Violation::protocol("PRIORITY_UPDATE of a server"));
            }
            _ => self.count_frame()?,
        }
        Ok(None)
    }

    /// Takes over the server's settings and acknowledges them.
    fn settings(&mut self, changes: Changes<'_>, out: &mut Vec<u8>) -> Result<(), Violation> {
        self.count_frame()?;
        let before = self.peer.initial_window_size;
        for (id, value) in changes.iter() {
            self.peer.apply(Sender::Server, id, value)?;
            if id == id::HEADER_TABLE_SIZE {
                self.encoder.set_limit(value);
            }
        }
        let after = self.peer.initial_window_size;
        if before != after {
            for (slot, stream) in self.streams.iter_mut() {
                let could_send = stream.can_send();
                let adjusted = stream.send_window.adjust(before, after);
                adjusted.map_err(stream_window)?;
                match (could_send, stream.can_send()) {
                    (true, false) => self.scheduler.remove(slot as u32),
                    (false, true) => self
                        .scheduler
                        .add(slot as u32, stream.priority, stream.place),
                    _ => {}
                }
            }
        }
        write::settings_ack(out);
        Ok(())
    }

    /// Applies this side's settings, which the server has acknowledged.
    fn acknowledged(&mut self) -> Result<(), Violation> {
        let (before, after) = self.own.acknowledge()?;
        self.decoder.set_limit(after.header_table_size);
        let (before, after) = (before.initial_window_size, after.initial_window_size);
        for (_, stream) in self.streams.iter_mut() {
            stream.window.adjust(before, after).map_err(stream_window)?;
        }
        Ok(())
    }

    fn window_update(&mut self, id: u32, increment: u32) -> Result<(), Violation> {
        self.count_frame()?;
        if id == 0 {
            let expanded = self.send_window.expand(increment);
            return expanded
                .map_err(|Overflow| Violation::flow_control("window of the connection too large"));
        }
        match self.streams.state(id) {
            State::Idle => Err(IDLE),
            State::Abandoned | State::Closed => Ok(()),
            State::Open(slot) => {
                let stream = &mut self.streams[slot];
                let could_send = stream.can_send();
                let expanded = stream.send_window.expand(increment);
                expanded.map_err(|Overflow| {
                    let code = ErrorCode::FLOW_CONTROL_ERROR;
                    Violation::Stream(id, code, "window of the stream too large")
                })?;
                if !could_send && stream.can_send() {
                    self.scheduler
                        .add(slot as u32, stream.priority, stream.place);
                }
                Ok(())
            }
        }
    }

    fn reset_by_server<'a>(
        &mut self,
        id: u32,
        code: ErrorCode,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Violation> {
        match self.streams.state(id) {
            State::Idle => Err(IDLE),
            State::Abandoned | State::Closed => self.count_frame().map(|()| None),
            State::Open(slot) => {
                self.count_frame()?;
                self.remove(slot, out);
                Ok(Some(Event::Failed {
                    slot,
                    code,
                    violation: None,
                }))
            }
        }
    }
}
