//! Limits of a connection, in either role.

use crate::http2::header_block;
use crate::http2::settings::Settings;

use super::allowance::Rate;

/// Limits and sizes of a connection. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most open streams. A client keeps to it even if the server permits more.
    pub streams: u32,
    /// Largest header list (RFC 9113 6.5.2).
    pub header_list: u32,
    /// Limits of a header block before it is decoded.
    pub block: header_block::Limits,
    /// Window of a stream: most bytes of a message's content that are buffered.
    pub stream_window: u32,
    /// Window of the connection. With that of all streams together, a stream that is not read holds up no other one.
    pub connection_window: u32,
    /// Largest dynamic table for sent header blocks.
    pub table: u32,
    /// Frames that bring nothing.
    pub frames: Rate,
}

impl Limits {
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
