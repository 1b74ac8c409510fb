//! Handles the frames of a client.

use crate::http2::hpack::DecodeError;
use crate::http2::inbound::{Block, Frame};
use crate::http2::malformed::ContentCount;
use crate::http2::payload::Payload;
use crate::http2::priority::Priority;
use crate::http2::request::Request;
use crate::http2::response::Trailers;
use crate::http2::settings::{Changes, Sender, id};
use crate::http2::violation::{ErrorCode, Violation};
use crate::http2::window::{Overflow, ReceiveWindow, Window};
use crate::http2::write;

use super::streams::{State, Stream};
use super::{Event, SHUTDOWN_PING, Server, Shutdown};

/// Increment of a WINDOW_UPDATE below which the frame counts as one that brings nothing.
const INCREMENT_MIN: u32 = 1024;

/// Number of settings in a frame that count as one frame.
const SETTINGS_PER_FRAME: usize = 8;

const FLOOD: &str = "too many frames without effect";
const IDLE: Violation = Violation::protocol("frame on an idle stream");

fn compression(error: DecodeError) -> Violation {
    Violation::Connection(ErrorCode::COMPRESSION_ERROR, error.text())
}

fn closed(id: u32) -> Violation {
    Violation::Stream(id, ErrorCode::STREAM_CLOSED, "frame on a closed stream")
}

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
                self.block(stream, end_stream, &block, violation, request)
            }
            Frame::Data {
                stream,
                content,
                flow,
                padding,
                end_stream,
            } => {
                let event = self.request_content(stream, content, (flow, padding), end_stream, out);
                self.update_connection(out);
                event
            }
            Frame::Other(stream, payload) => self.control(stream, payload, out),
            Frame::Invalid(stream, code, text) => Err(Violation::Stream(stream, code, text)),
        }
    }

    /// Counts a frame that brings nothing.
    #[inline]
    fn count_frame(&mut self) -> Result<(), Violation> {
        self.frames.spend(1, self.now_ms, FLOOD)
    }

    /// Handles a header block. `violation` is an error of its frame, which counts only after the block is decoded.
    fn block<'a>(
        &mut self,
        id: u32,
        ends: bool,
        block: &Block<'_>,
        violation: Option<Violation>,
        request: &mut Request,
    ) -> Result<Option<Event<'a>>, Violation> {
        match self.streams.state(id) {
            State::Idle if id.is_multiple_of(2) => {
                Err(Violation::protocol("request on a stream of the server"))
            }
            State::Idle => self.begin(id, ends, block, violation, request),
            State::Open(slot) => self.request_trailers(slot, ends, block, violation),
            State::Abandoned => {
                let decoded = self.decoder.decode(block.bytes(), 0, |_| {});
                decoded.map_err(compression)?;
                self.count_frame().map(|()| None)
            }
            State::Closed if id == self.streams.last_closed() => Err(Violation::Connection(
                ErrorCode::STREAM_CLOSED,
                "header block on a closed stream",
            )),
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
        let most = u64::from(self.options.header_list);
        let add = |field: crate::http2::hpack::Field<'_>| request.add(&field);
        let decoded = self.decoder.decode(block.bytes(), most, add);
        let is_over = decoded.map_err(compression)?.is_over;
        self.streams.begin(id);
        if let Shutdown::Final(_) = self.shutdown {
            // The client knows that the request is not processed (RFC 9113 6.8).
            self.streams.abandon(id);
            return self.count_frame().map(|()| None);
        }
        if let Some(violation) = violation {
            return Err(violation);
        }
        if self.streams.len() >= self.options.streams as usize {
            let code = ErrorCode::REFUSED_STREAM;
            return Err(Violation::Stream(id, code, "too many streams"));
        }
        let mut content = ContentCount::new(None);
        if !is_over {
            let checked = request.finish(self.options.extended_connect);
            checked.map_err(|malformed| malformed.on(id))?;
            content = ContentCount::new(request.content_length);
            if ends {
                content.end().map_err(|malformed| malformed.on(id))?;
            }
        }
        let announced = self.own.acknowledged().initial_window_size;
        let slot = self.streams.open(Stream {
            id,
            receives: !ends,
            content,
            window: ReceiveWindow::new(announced, announced),
            held: 0,
            send_window: Window::new(self.peer.initial_window_size),
            priority: request.priority,
            place: self.scheduler.new_place(),
            has_content: false,
        });
        Ok(Some(Event::Request {
            slot,
            ends,
            is_over,
        }))
    }

    /// Handles the trailers of a request.
    fn request_trailers<'a>(
        &mut self,
        slot: usize,
        ends: bool,
        block: &Block<'_>,
        violation: Option<Violation>,
    ) -> Result<Option<Event<'a>>, Violation> {
        let mut trailers = Trailers::default();
        let most = u64::from(self.options.header_list);
        let add = |field: crate::http2::hpack::Field<'_>| trailers.add(&field);
        let decoded = self.decoder.decode(block.bytes(), most, add);
        let is_over = decoded.map_err(compression)?.is_over;
        let stream = &mut self.streams[slot];
        let error = |code, text| Err(Violation::Stream(stream.id, code, text));
        match violation {
            _ if !stream.receives => return Err(closed(stream.id)),
            Some(violation) => return Err(violation),
            // Only one header block may follow the content, and it ends the request (RFC 9113 8.1).
            None if !ends => return error(ErrorCode::PROTOCOL_ERROR, "trailers without an end"),
            None if is_over => return error(ErrorCode::ENHANCE_YOUR_CALM, "trailers too large"),
            None => {}
        }
        let id = stream.id;
        let fields = trailers.finish().map_err(|malformed| malformed.on(id))?;
        stream.content.end().map_err(|malformed| malformed.on(id))?;
        stream.receives = false;
        Ok(Some(Event::Trailers { slot, fields }))
    }

    /// Handles content. `flow` is the number of bytes that count for flow control, and the padding in them.
    fn request_content<'a>(
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
            self.window.release(flow);
            return match state {
                // Nothing of the content is kept. A further part of a frame is not a frame.
                State::Abandoned if flow > 0 || content.is_empty() => {
                    self.count_frame().map(|()| None)
                }
                State::Abandoned => Ok(None),
                _ => Err(closed(id)),
            };
        };
        let stream = &mut self.streams[slot];
        if !stream.receives {
            self.window.release(flow);
            return Err(closed(id));
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
            stream.receives = false;
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

    /// Notes that bytes of a request's content are not buffered any more.
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
            Payload::Pong(SHUTDOWN_PING) if self.shutdown == Shutdown::Announced => {
                self.end_shutdown(out);
            }
            Payload::WindowUpdate(increment) => self.window_update(stream, increment)?,
            Payload::Reset(code) => return self.reset_by_client(stream, code, out),
            Payload::PriorityUpdate { stream, value } => {
                self.count_frame()?;
                self.reprioritise(stream, Priority::parse(value));
            }
            _ => self.count_frame()?,
        }
        Ok(None)
    }

    /// Takes over the client's settings and acknowledges them.
    fn settings(&mut self, changes: Changes<'_>, out: &mut Vec<u8>) -> Result<(), Violation> {
        let frames = 1 + changes.iter().count() / SETTINGS_PER_FRAME;
        self.frames.spend(frames as u32, self.now_ms, FLOOD)?;
        let before = self.peer.initial_window_size;
        for (id, value) in changes.iter() {
            self.peer.apply(Sender::Client, id, value)?;
            if id == id::HEADER_TABLE_SIZE {
                self.encoder.set_limit(value);
            }
        }
        let after = self.peer.initial_window_size;
        if before != after {
            for (slot, stream) in self.streams.iter_mut() {
                let could_send = stream.can_send();
                let adjusted = stream.send_window.adjust(before, after);
                adjusted
                    .map_err(|Overflow| Violation::flow_control("window of a stream too large"))?;
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

    /// Applies this side's settings, which the client has acknowledged.
    fn acknowledged(&mut self) -> Result<(), Violation> {
        let (before, after) = self.own.acknowledge()?;
        self.decoder.set_limit(after.header_table_size);
        let (before, after) = (before.initial_window_size, after.initial_window_size);
        for (_, stream) in self.streams.iter_mut() {
            let adjusted = stream.window.adjust(before, after);
            adjusted.map_err(|Overflow| Violation::flow_control("window of a stream too large"))?;
        }
        Ok(())
    }

    fn window_update(&mut self, id: u32, increment: u32) -> Result<(), Violation> {
        if increment < INCREMENT_MIN {
            self.count_frame()?;
        }
        if id == 0 {
            let expanded = self.send_window.expand(increment);
            return expanded
                .map_err(|Overflow| Violation::flow_control("window of the connection too large"));
        }
        match self.streams.state(id) {
            State::Idle => Err(IDLE),
            // The client may have sent it before it learned that the stream is closed (RFC 9113 5.1).
            State::Abandoned | State::Closed => self.count_frame(),
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

    fn reset_by_client<'a>(
        &mut self,
        id: u32,
        code: ErrorCode,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Violation> {
        match self.streams.state(id) {
            State::Idle => Err(IDLE),
            State::Abandoned | State::Closed => self.count_frame().map(|()| None),
            State::Open(slot) => {
                self.resets
                    .spend(1, self.now_ms, "too many cancelled requests")?;
                self.remove(slot, out);
                Ok(Some(Event::Cancelled {
                    slot,
                    code,
                    violation: None,
                }))
            }
        }
    }

    /// Changes the priority of an open stream. The priority of another one is ignored (RFC 9218 7.1).
    fn reprioritise(&mut self, id: u32, priority: Priority) {
        if let State::Open(slot) = self.streams.state(id) {
            self.streams[slot].priority = priority;
            self.scheduler.set_priority(slot as u32, priority);
        }
    }
}
