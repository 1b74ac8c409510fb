//! Limits of a connection, in either role.

use crate::http2::header_block;
use crate::http2::settings::Settings;
use crate::http2::window::ReceiveWindow;

use super::allowance::Rate;

/// Released bytes that the window of a connection may lack until a WINDOW_UPDATE of the connection is worth sending.
const UNANNOUNCED: u32 = 128 << 10;

/// The sizes to which windows grow, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Smallest window of a stream whose content is read.
    pub read: u32,
    /// Largest window of a stream.
    pub most: u32,
    /// Amount by which the windows of all streams together may grow.
    pub pool: u32,
}

/// Limits and sizes of a connection. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most open streams. A client keeps to it even if the server permits more.
    pub streams: u32,
    /// Largest header list (RFC 9113 6.5.2).
    pub header_list: u32,
    /// Limits of a header block before it is decoded.
    pub block: header_block::Limits,
    /// Window of a stream at first: most bytes of a message's content that are buffered before it is read.
    pub stream_window: u32,
    /// Growth of the windows of streams whose content is read.
    pub growth: Growth,
    /// Largest dynamic table for sent header blocks.
    pub table: u32,
    /// Frames that bring nothing.
    pub frames: Rate,
}

impl Limits {
    /// Returns the window of the connection. The windows of all streams fit into it together, so a stream that is not read
    /// holds up no other one.
    pub(in crate::http2) fn connection_window(&self) -> ReceiveWindow {
        let of_streams = self.streams.saturating_mul(self.stream_window);
        let size = of_streams
            .saturating_add(self.growth.pool)
            .saturating_add(UNANNOUNCED);
        let initial = Settings::default().initial_window_size;
        ReceiveWindow::new(initial, size).updated_by(UNANNOUNCED)
    }

    /// Returns the settings by which both roles announce these limits. The table for received header blocks keeps the size
    /// that it has at first.
    pub(in crate::http2) fn settings(&self) -> Settings {
        Settings {
            initial_window_size: self.stream_window,
            max_header_list_size: self.header_list,
            ..Settings::default()
        }
    }
}
