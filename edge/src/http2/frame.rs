//! The header of a frame (RFC 9113 4.1), and the checks that need no payload.

use super::violation::Violation;

/// Length of a frame's header in bytes.
pub const HEADER_LENGTH: usize = 9;

/// The longest payload that every endpoint accepts (RFC 9113 4.2), and the default of SETTINGS_MAX_FRAME_SIZE.
pub const MAX_FRAME_SIZE_MIN: u32 = 1 << 14;

/// Types of frames (RFC 9113 6, RFC 9218 7.1).
#[allow(missing_docs, reason = "each is the type of its name")]
pub mod kind {
    pub const DATA: u8 = 0x0;
    pub const HEADERS: u8 = 0x1;
    pub const PRIORITY: u8 = 0x2;
    pub const RST_STREAM: u8 = 0x3;
    pub const SETTINGS: u8 = 0x4;
    pub const PUSH_PROMISE: u8 = 0x5;
    pub const PING: u8 = 0x6;
    pub const GOAWAY: u8 = 0x7;
    pub const WINDOW_UPDATE: u8 = 0x8;
    pub const CONTINUATION: u8 = 0x9;
    pub const PRIORITY_UPDATE: u8 = 0x10;
}

/// Flags of frames (RFC 9113 6).
#[allow(missing_docs, reason = "each is the flag of its name")]
pub mod flag {
    pub const END_STREAM: u8 = 0x1;
    pub const ACK: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the payload in bytes, below 2^24.
    pub length: u32,
    /// Type of the frame: one of `kind`, or unknown.
    pub kind: u8,
    /// The flags. Those that the type does not define are ignored.
    pub flags: u8,
    /// The stream, below 2^31. 0 is the connection as a whole.
    pub stream: u32,
}

impl FrameHeader {
    /// Parses a header. The reserved bit of the stream is ignored.
    #[inline]
    pub fn parse(bytes: &[u8; HEADER_LENGTH]) -> FrameHeader {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        FrameHeader {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        }
    }

    /// Returns the header as sent.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_LENGTH] {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    /// Whether a flag is set.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Checks length and stream before the payload arrives. `size_max` is the SETTINGS_MAX_FRAME_SIZE that the peer may
    /// use.
    ///
    /// # Errors
    ///
    /// The violation that RFC 9113 6 names for this type. A frame above `size_max` ends the connection, even a DATA
    /// frame, because its payload would have to be read otherwise.
    #[inline]
    pub fn check(&self, size_max: u32) -> Result<(), Violation> {
        if self.length > size_max {
            return Err(Violation::frame_size("frame above SETTINGS_MAX_FRAME_SIZE"));
        }
        self.check_stream()?;
        self.check_length()
    }

    fn check_stream(&self) -> Result<(), Violation> {
        let is_right = match self.kind {
            kind::DATA
            | kind::HEADERS
            | kind::PRIORITY
            | kind::RST_STREAM
            | kind::PUSH_PROMISE
            | kind::CONTINUATION => self.stream != 0,
            kind::SETTINGS | kind::PING | kind::GOAWAY | kind::PRIORITY_UPDATE => self.stream == 0,
            _ => true,
        };
        match is_right {
            true => Ok(()),
            false if self.stream == 0 => Err(Violation::protocol("frame without a stream")),
            false => Err(Violation::protocol("frame of the connection on a stream")),
        }
    }

    fn check_length(&self) -> Result<(), Violation> {
        let padding = usize::from(self.has(flag::PADDED));
        let priority = if self.has(flag::PRIORITY) { 5 } else { 0 };
        let length = self.length as usize;
        let is_right = match self.kind {
            kind::DATA => length >= padding,
            kind::HEADERS => length >= padding + priority,
            kind::RST_STREAM | kind::WINDOW_UPDATE => length == 4,
            kind::SETTINGS if self.has(flag::ACK) => length == 0,
            kind::SETTINGS => length.is_multiple_of(6),
            kind::PING => length == 8,
            kind::GOAWAY => length >= 8,
            kind::PRIORITY_UPDATE => length >= 4,
            kind::PRIORITY if length != 5 => {
                // The only frame of fixed length that ends just the stream (RFC 9113 6.3).
                return Err(Violation::Stream(
                    self.stream,
                    super::violation::ErrorCode::FRAME_SIZE_ERROR,
                    "length of PRIORITY",
                ));
            }
            _ => true,
        };
        match is_right {
            true => Ok(()),
            false => Err(Violation::frame_size(
                "length does not fit the frame's type",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http2::violation::ErrorCode;

    fn header(kind: u8, flags: u8, length: u32, stream: u32) -> FrameHeader {
        FrameHeader {
            length,
            kind,
            flags,
            stream,
        }
    }

    #[test]
    fn lengths_and_streams_are_checked_by_type() {
        let size = ErrorCode::FRAME_SIZE_ERROR;
        let protocol = ErrorCode::PROTOCOL_ERROR;
        for (frame, code) in [
            (header(kind::DATA, 0, 16385, 1), size),
            (header(kind::DATA, 0, 1, 0), protocol),
            (header(kind::DATA, flag::PADDED, 0, 1), size),
            (header(kind::HEADERS, 0, 1, 0), protocol),
            (
                header(kind::HEADERS, flag::PADDED | flag::PRIORITY, 5, 1),
                size,
            ),
            (header(kind::PRIORITY, 0, 5, 0), protocol),
            (header(kind::RST_STREAM, 0, 4, 0), protocol),
            (header(kind::RST_STREAM, 0, 5, 1), size),
            (header(kind::SETTINGS, 0, 0, 1), protocol),
            (header(kind::SETTINGS, flag::ACK, 6, 0), size),
            (header(kind::SETTINGS, 0, 5, 0), size),
            (header(kind::PUSH_PROMISE, 0, 9, 0), protocol),
            (header(kind::PING, 0, 8, 3), protocol),
            (header(kind::PING, 0, 7, 0), size),
            (header(kind::GOAWAY, 0, 8, 1), protocol),
            (header(kind::GOAWAY, 0, 7, 0), size),
            (header(kind::WINDOW_UPDATE, 0, 3, 0), size),
            (header(kind::CONTINUATION, 0, 3, 0), protocol),
            (header(kind::PRIORITY_UPDATE, 0, 4, 1), protocol),
            (header(kind::PRIORITY_UPDATE, 0, 3, 0), size),
        ] {
            let checked = frame.check(MAX_FRAME_SIZE_MIN);
            assert!(
                matches!(checked, Err(Violation::Connection(found, _)) if found == code),
                "{frame:?} {checked:?}"
            );
        }
        let priority = header(kind::PRIORITY, 0, 4, 3).check(MAX_FRAME_SIZE_MIN);
        assert!(matches!(priority, Err(Violation::Stream(3, code, _)) if code == size));
        for frame in [
            header(kind::DATA, 0, 0, 1),
            header(kind::SETTINGS, 0, 12, 0),
            header(kind::SETTINGS, flag::ACK, 0, 0),
            header(kind::WINDOW_UPDATE, 0, 4, 7),
            header(0xfa, 0xff, 16384, 0),
            header(0xfa, 0xff, 16384, 5),
        ] {
            assert_eq!(frame.check(MAX_FRAME_SIZE_MIN), Ok(()));
        }
    }

    proptest! {
        #[test]
        fn a_header_is_parsed_as_sent(bytes: [u8; 9]) {
            let mut expected = bytes;
            expected[5] &= 0x7f;
            prop_assert_eq!(FrameHeader::parse(&bytes).to_bytes(), expected);
        }
    }
}
