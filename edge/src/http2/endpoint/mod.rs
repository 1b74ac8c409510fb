//! The part of a connection that a client and a server share, both of which RFC 9113 calls endpoints: the order of frames,
//! header blocks, settings, windows, and the order of sending.
//!
//! `server` and `client` add the rules of one role: which message a header block begins, how many streams there may be,
//! and the price of the peer's violations.

mod allowance;
mod growth;
mod limits;
mod receive;
mod scheduler;
mod send;
mod streams;

pub use allowance::Rate;
pub use limits::{Growth, Limits};

pub(super) use allowance::Allowance;
pub(super) use streams::State;

use scheduler::Scheduler;
use streams::{Stream, Streams};

use super::hpack::{Decoder, Encoder};
use super::inbound::{Frame, Inbound};
use super::malformed::ContentCount;
use super::priority::Priority;
use super::settings::{OwnSettings, Sender, Settings};
use super::violation::{ErrorCode, Violation};
use super::window::{ReceiveWindow, Window};
use super::{PREFACE, write};

/// One side of a connection, in either role.
pub(super) struct Endpoint {
    pub(super) limits: Limits,
    /// The role of the peer.
    peer_role: Sender,
    inbound: Inbound,
    decoder: Decoder,
    encoder: Encoder,
    /// The settings of this side, and those of the peer.
    own: OwnSettings,
    peer: Settings,
    /// The peer's window for the connection, and this side's.
    window: ReceiveWindow,
    send_window: Window,
    /// Amount by which the windows of streams may still grow.
    pool: u32,
    pub(super) streams: Streams,
    scheduler: Scheduler,
    frames: Allowance,
    /// Number of streams that this side has reset.
    pub(super) resets_sent: u64,
    /// Whether the peer has opened or closed windows since the last `take_windows_changed`.
    windows_changed: bool,
    pub(super) now_ms: u64,
}

/// A stream that is to be opened.
pub(super) struct NewStream {
    pub(super) id: u32,
    /// Whether the peer may still send.
    pub(super) receives: bool,
    /// The content that the peer has declared.
    pub(super) content: ContentCount,
    pub(super) priority: Priority,
}

impl Endpoint {
    /// Creates one side of a connection, and appends its first frames: for a client they follow the preface.
    pub(super) fn new(
        peer_role: Sender,
        limits: Limits,
        settings: Settings,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Endpoint {
        let initial = Settings::default().initial_window_size;
        let inbound = match peer_role {
            Sender::Client => Inbound::of_server(limits.block),
            Sender::Server => {
                out.extend_from_slice(PREFACE);
                Inbound::of_client(limits.block)
            }
        };
        let mut endpoint = Endpoint {
            peer_role,
            inbound,
            decoder: Decoder::new(),
            encoder: Encoder::new(limits.table),
            own: OwnSettings::default(),
            peer: Settings::default(),
            window: limits.connection_window(),
            pool: limits.growth.pool,
            send_window: Window::new(initial),
            streams: Streams::default(),
            scheduler: Scheduler::default(),
            frames: Allowance::new(limits.frames, now_ms),
            resets_sent: 0,
            windows_changed: false,
            now_ms,
            limits,
        };
        write::settings(out, settings.changes());
        endpoint.own.sent(settings);
        endpoint.update_connection(out);
        endpoint
    }

    /// Takes the next frame, or a part of one, from the start of `input`. Returns the number of bytes used.
    #[inline]
    pub(super) fn take<'a>(
        &mut self,
        input: &'a [u8],
        now_ms: u64,
    ) -> Result<(usize, Option<Frame<'a>>), Violation> {
        self.now_ms = now_ms;
        self.inbound.take(input, self.own.max_frame_size())
    }

    /// Opens the stream that has begun last, and returns its slot.
    pub(super) fn open(&mut self, new: NewStream) -> usize {
        let announced = self.own.acknowledged().initial_window_size;
        self.streams.open(Stream {
            id: new.id,
            receives: new.receives,
            content: new.content,
            window: ReceiveWindow::new(announced, announced),
            grown: 0,
            consumed: 0,
            since_ms: self.now_ms,
            held: 0,
            send_window: Window::new(self.peer.initial_window_size),
            priority: new.priority,
            place: self.scheduler.new_place(),
            has_content: false,
        })
    }

    /// Resets an open stream. Its slot is free.
    pub(super) fn reset(&mut self, slot: usize, code: ErrorCode, out: &mut Vec<u8>) {
        if let Some(id) = self.streams.get(slot).map(|stream| stream.id) {
            self.send_reset(id, code, out);
            self.remove(slot, out);
        }
    }

    /// Appends a RST_STREAM, and remembers that frames of the stream may still be on their way.
    pub(super) fn send_reset(&mut self, id: u32, code: ErrorCode, out: &mut Vec<u8>) {
        write::reset(out, id, code);
        self.resets_sent += 1;
        self.streams.abandon(id);
    }

    /// Closes a stream.
    pub(super) fn remove(&mut self, slot: usize, out: &mut Vec<u8>) {
        self.scheduler.remove(slot as u32);
        if let Some(stream) = self.streams.close(slot) {
            self.window.release(stream.held);
            self.pool += stream.grown;
            self.update_connection(out);
        }
    }

    /// Announces the connection's window, if that is worth a frame.
    pub(super) fn update_connection(&mut self, out: &mut Vec<u8>) {
        if let Some(increment) = self.window.update() {
            write::window_update(out, 0, increment);
        }
    }

    /// Changes the priority of an open stream. The priority of another one is ignored (RFC 9218 7.1).
    pub(super) fn set_priority(&mut self, id: u32, priority: Priority) {
        if let State::Open(slot) = self.streams.state(id) {
            self.streams[slot].priority = priority;
            self.scheduler.set_priority(slot as u32, priority);
        }
    }

    /// Returns the number of streams that the peer permits this side to open.
    pub(super) fn permitted_streams(&self) -> u32 {
        self.peer.max_concurrent_streams
    }

    /// Returns the size of the largest header list that the peer accepts. `u32::MAX` if there is no limit.
    pub(super) fn header_list_max(&self) -> u32 {
        self.peer.max_header_list_size
    }

    /// Whether the peer has not acknowledged the settings of this side.
    pub(super) fn awaits_settings(&self) -> bool {
        self.own.awaits_acknowledgement()
    }

    /// Whether the peer's first settings have arrived.
    pub(super) fn has_begun(&self) -> bool {
        self.inbound.has_begun()
    }

    /// Whether no frame other than DATA, and no header block, has begun, as far as bytes were taken.
    pub(super) fn is_between_frames(&self) -> bool {
        self.inbound.is_between_frames()
    }

    /// Whether a frame or header block has begun and not arrived completely.
    pub(super) fn is_within_frame(&self) -> bool {
        self.inbound.is_within_frame()
    }

    /// Frees memory that an idle connection does not need. Returns whether the connection is idle.
    pub(super) fn rest(&mut self) -> bool {
        let is_idle = self.streams.len() == 0;
        if is_idle {
            self.streams.shrink();
            self.scheduler.shrink();
        }
        is_idle
    }

    /// Returns the heap memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.decoder.memory()
            + self.encoder.memory()
            + self.streams.memory()
            + self.scheduler.memory()
    }
}
