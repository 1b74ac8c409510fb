//! Handles received frames in the way that does not depend on the role.

use crate::http::Fields;
use crate::http2::hpack::{DecodeError, Field};
use crate::http2::inbound::Block;
use crate::http2::payload::Payload;
use crate::http2::response::Trailers;
use crate::http2::settings::{Changes, id};
use crate::http2::violation::{ErrorCode, Violation};
use crate::http2::window::Overflow;
use crate::http2::write;

use super::streams::Stream;
use super::{Endpoint, State};

/// Increment of a WINDOW_UPDATE below which the frame counts as one that brings nothing.
const INCREMENT_MIN: u32 = 1024;

/// Number of settings in a frame that count as one frame.
const SETTINGS_PER_FRAME: usize = 8;

const FLOOD: &str = "too many frames without effect";

fn compression(error: DecodeError) -> Violation {
    let code = match error {
        DecodeError::Bomb => ErrorCode::ENHANCE_YOUR_CALM,
        _ => ErrorCode::COMPRESSION_ERROR,
    };
    Violation::Connection(code, error.text())
}

/// Announces the released bytes of a stream, if they are enough.
fn update_stream(stream: &mut Stream, out: &mut Vec<u8>) {
    if stream.receives
        && let Some(increment) = stream.window.update()
    {
        write::window_update(out, stream.id, increment);
    }
}

fn stream_window(Overflow: Overflow) -> Violation {
    Violation::flow_control("window of a stream too large")
}

impl Endpoint {
    /// Counts a frame that brings nothing.
    #[inline]
    pub(in crate::http2) fn count_frame(&mut self) -> Result<(), Violation> {
        self.frames.spend(1, self.now_ms, FLOOD)
    }

    /// Decodes a header block. Returns whether the header list is over the limit, so that fields are missing.
    #[inline]
    pub(in crate::http2) fn decode(
        &mut self,
        block: &Block<'_>,
        add: impl FnMut(Field<'_>),
    ) -> Result<bool, Violation> {
        let most = u64::from(self.limits.header_list);
        let decoded = self.decoder.decode(block.bytes(), most, add);
        decoded.map(|it| it.is_over).map_err(compression)
    }

    /// Decodes a header block whose fields are not needed.
    pub(in crate::http2) fn skip_block(&mut self, block: &Block<'_>) -> Result<(), Violation> {
        self.decode(block, |_| {}).map(|_| ())
    }

    /// Decodes the trailers of an open stream. `violation` is an error of their frame.
    pub(in crate::http2) fn trailers(
        &mut self,
        slot: usize,
        ends: bool,
        block: &Block<'_>,
        violation: Option<Violation>,
    ) -> Result<Fields, Violation> {
        let mut trailers = Trailers::default();
        let is_over = self.decode(block, |field| trailers.add(&field))?;
        let stream = &mut self.streams[slot];
        let id = stream.id;
        let error = |code, text| Err(Violation::Stream(id, code, text));
        match violation {
            _ if !stream.receives => return Err(Violation::closed(id)),
            Some(violation) => return Err(violation),
            // Only one header block may follow the content, and it ends the message (RFC 9113 8.1).
            None if !ends => return error(ErrorCode::PROTOCOL_ERROR, "trailers without an end"),
            None if is_over => return error(ErrorCode::ENHANCE_YOUR_CALM, "trailers too large"),
            None => {}
        }
        let fields = trailers.finish().map_err(|malformed| malformed.on(id))?;
        stream.content.end().map_err(|malformed| malformed.on(id))?;
        stream.receives = false;
        Ok(fields)
    }

    /// Counts the flow of a DATA frame against the window of the connection, and returns the state of the stream. Unless it
    /// is open, the content is dropped.
    #[inline]
    pub(in crate::http2) fn begin_content(
        &mut self,
        id: u32,
        flow: u32,
    ) -> Result<State, Violation> {
        let state = self.streams.state(id);
        if state == State::Idle {
            return Err(Violation::IDLE);
        }
        if self.window.receive(flow).is_err() {
            return Err(Violation::flow_control("window of the connection exceeded"));
        }
        if !matches!(state, State::Open(_)) {
            self.drop_content(flow);
        }
        Ok(state)
    }

    /// Counts content after `begin_content` that is not kept.
    pub(in crate::http2) fn drop_content(&mut self, flow: u32) {
        self.window.release(flow);
    }

    /// Takes the content of an open stream after `begin_content`. `flow` is the number of bytes that count for flow control,
    /// and the padding in them. Returns whether there is content or an end.
    #[inline]
    pub(in crate::http2) fn content(
        &mut self,
        slot: usize,
        content: &[u8],
        (flow, padding): (u32, u32),
        ends: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, Violation> {
        let stream = &mut self.streams[slot];
        let id = stream.id;
        if !stream.receives {
            self.drop_content(flow);
            return Err(Violation::closed(id));
        }
        if stream.window.receive(flow).is_err() {
            self.drop_content(flow);
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
        let is_useful = !content.is_empty() || ends;
        if !is_useful && flow == padding {
            // The frame is empty. Otherwise its content has not arrived yet.
            self.count_frame()?;
        }
        Ok(is_useful)
    }

    /// Notes that bytes of a message's content are not buffered any more.
    pub(in crate::http2) fn release(&mut self, slot: usize, bytes: u32, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(slot) else {
            return;
        };
        let bytes = bytes.min(stream.held);
        stream.held -= bytes;
        stream.window.release(bytes);
        update_stream(stream, out);
        self.window.release(bytes);
        self.update_connection(out);
    }

    /// Handles a frame that means the same in both roles, and counts every other one as one that brings nothing.
    pub(in crate::http2) fn control(
        &mut self,
        stream: u32,
        payload: Payload<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        match payload {
            Payload::Settings(changes) => self.settings(changes, out),
            Payload::SettingsAck => self.acknowledged(out),
            Payload::WindowUpdate(increment) => self.window_update(stream, increment),
            Payload::Ping(bytes) => {
                self.count_frame()?;
                write::pong(out, bytes);
                Ok(())
            }
            _ => self.count_frame(),
        }
    }

    /// Takes over the peer's settings and acknowledges them.
    fn settings(&mut self, changes: Changes<'_>, out: &mut Vec<u8>) -> Result<(), Violation> {
        let frames = 1 + changes.iter().count() / SETTINGS_PER_FRAME;
        self.frames.spend(frames as u32, self.now_ms, FLOOD)?;
        let before = self.peer.initial_window_size;
        for (id, value) in changes.iter() {
            self.peer.apply(self.peer_role, id, value)?;
            if id == id::HEADER_TABLE_SIZE {
                self.encoder.set_limit(value);
            }
        }
        let after = self.peer.initial_window_size;
        if before != after {
            self.windows_changed = true;
            for (slot, stream) in self.streams.iter_mut() {
                let could_send = stream.can_send();
                let adjusted = stream.send_window.adjust(before, after);
                adjusted.map_err(stream_window)?;
                self.scheduler.update(slot, stream, could_send);
            }
        }
        write::settings_ack(out);
        Ok(())
    }

    /// Applies this side's settings, which the peer has acknowledged.
    fn acknowledged(&mut self, out: &mut Vec<u8>) -> Result<(), Violation> {
        let (before, after) = self.own.acknowledge()?;
        self.decoder.set_limit(after.header_table_size);
        let (before, after) = (before.initial_window_size, after.initial_window_size);
        for (_, stream) in self.streams.iter_mut() {
            stream.window.adjust(before, after).map_err(stream_window)?;
            // Bytes that were too few for an update of the larger window may be the whole window now.
            update_stream(stream, out);
        }
        Ok(())
    }

    fn window_update(&mut self, id: u32, increment: u32) -> Result<(), Violation> {
        if increment < INCREMENT_MIN {
            self.count_frame()?;
        }
        self.windows_changed = true;
        if id == 0 {
            let expanded = self.send_window.expand(increment);
            return expanded
                .map_err(|Overflow| Violation::flow_control("window of the connection too large"));
        }
        let Some(slot) = self.open_slot(id)? else {
            // The peer may have sent it before it learned that the stream is closed (RFC 9113 5.1).
            return Ok(());
        };
        let stream = &mut self.streams[slot];
        let could_send = stream.can_send();
        let expanded = stream.send_window.expand(increment);
        expanded.map_err(|Overflow| {
            let code = ErrorCode::FLOW_CONTROL_ERROR;
            Violation::Stream(id, code, "window of the stream too large")
        })?;
        self.scheduler.update(slot, stream, could_send);
        Ok(())
    }

    /// Returns the slot of the stream that a frame names. If the stream is closed, the frame brings nothing.
    pub(in crate::http2) fn open_slot(&mut self, id: u32) -> Result<Option<usize>, Violation> {
        match self.streams.state(id) {
            State::Idle => Err(Violation::IDLE),
            State::Abandoned | State::Closed => self.count_frame().map(|()| None),
            State::Open(slot) => Ok(Some(slot)),
        }
    }
}
