//! The payloads of frames (RFC 9113 6, RFC 9218 7.1).

use super::frame::{FrameHeader, flag, kind};
use super::settings::Changes;
use super::violation::{ErrorCode, Violation};

/// A frame whose payload has arrived completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// DATA.
    Data {
        /// The content, without padding. Flow control counts the whole payload (RFC 9113 6.1).
        content: &'a [u8],
        /// Whether the message ends with it.
        end_stream: bool,
    },
    /// HEADERS.
    Headers {
        /// The header block or its first part. It has to be decoded even if the stream is refused.
        block: &'a [u8],
        /// Whether the message ends with this block.
        end_stream: bool,
        /// Whether this is the whole block.
        end_headers: bool,
        /// Whether the frame declares that the stream depends on itself, which is a stream error of type
        /// PROTOCOL_ERROR (RFC 7540 5.3.1). The rest of that priority scheme is ignored (RFC 9113 5.3.2).
        depends_on_itself: bool,
    },
    /// PRIORITY, which is ignored.
    Priority,
    /// RST_STREAM.
    Reset(ErrorCode),
    /// SETTINGS.
    Settings(Changes<'a>),
    /// The acknowledgement of the oldest SETTINGS that are not acknowledged yet.
    SettingsAck,
    /// PING, which has to be answered with the same bytes.
    Ping([u8; 8]),
    /// The answer to a PING.
    Pong([u8; 8]),
    /// GOAWAY.
    GoAway {
        /// The last stream that the peer may have processed.
        last_stream: u32,
        /// The reason.
        code: ErrorCode,
    },
    /// WINDOW_UPDATE with an increment from 1 to 2^31 - 1.
    WindowUpdate(u32),
    /// CONTINUATION.
    Continuation {
        /// A part of the header block.
        block: &'a [u8],
        /// Whether this is the last part.
        end_headers: bool,
    },
    /// PRIORITY_UPDATE (RFC 9218 7.1).
    PriorityUpdate {
        /// The stream whose priority changes.
        stream: u32,
        /// The value of a Priority field.
        value: &'a [u8],
    },
    /// A frame of an unknown type, which is ignored (RFC 9113 4.1).
    Unknown,
}

impl<'a> Payload<'a> {
    /// Parses the payload of a frame whose header `check` has accepted.
    ///
    /// # Errors
    ///
    /// The violation that RFC 9113 6 names for this type.
    #[inline]
    pub fn parse(header: &FrameHeader, payload: &'a [u8]) -> Result<Payload<'a>, Violation> {
        debug_assert_eq!(header.length as usize, payload.len());
        match header.kind {
            kind::DATA => Ok(Payload::Data {
                content: unpadded(header, payload)?,
                end_stream: header.has(flag::END_STREAM),
            }),
            kind::HEADERS => headers(header, payload),
            _ => of_control(header, payload),
        }
    }
}

/// Returns the length of the padding at the end of a DATA frame of which the first byte has arrived, plus the byte of
/// this length. So content can be passed on before the whole frame has arrived.
///
/// # Errors
///
/// The padding is longer than the rest of the payload (RFC 9113 6.1).
#[inline]
pub fn padding(header: &FrameHeader, first: u8) -> Result<u32, Violation> {
    match header.has(flag::PADDED) {
        false => Ok(0),
        true if u32::from(first) < header.length => Ok(u32::from(first) + 1),
        true => Err(Violation::protocol("padding longer than its frame")),
    }
}

/// Returns the payload without the padding and its length.
#[inline]
fn unpadded<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<&'a [u8], Violation> {
    if !header.has(flag::PADDED) {
        return Ok(payload);
    }
    let (&length, rest) = split_first(payload)?;
    let kept = rest.len().checked_sub(usize::from(length));
    kept.map(|kept| &rest[..kept])
        .ok_or(Violation::protocol("padding longer than its frame"))
}

fn split_first(payload: &[u8]) -> Result<(&u8, &[u8]), Violation> {
    payload.split_first().ok_or(TOO_SHORT)
}

/// The error of any PUSH_PROMISE: neither a client may send it nor a server, since this side never enables push (RFC
/// 9113 8.4).
pub const PUSH: Violation = Violation::protocol("PUSH_PROMISE without push");

const TOO_SHORT: Violation = Violation::frame_size("length does not fit the frame's type");

fn headers<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<Payload<'a>, Violation> {
    let mut block = unpadded(header, payload)?;
    let mut depends_on_itself = false;
    if header.has(flag::PRIORITY) {
        let (dependency, after) = block.split_first_chunk::<5>().ok_or(TOO_SHORT)?;
        depends_on_itself = stream_of(dependency) == header.stream;
        block = after;
    }
    Ok(Payload::Headers {
        block,
        end_stream: header.has(flag::END_STREAM),
        end_headers: header.has(flag::END_HEADERS),
        depends_on_itself,
    })
}

fn of_control<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<Payload<'a>, Violation> {
    Ok(match header.kind {
        kind::PRIORITY => {
            if stream_of(payload) == header.stream {
                return Err(Violation::Stream(
                    header.stream,
                    ErrorCode::PROTOCOL_ERROR,
                    "stream depends on itself",
                ));
            }
            Payload::Priority
        }
        kind::RST_STREAM => Payload::Reset(ErrorCode(number(payload)?)),
        kind::SETTINGS if header.has(flag::ACK) => Payload::SettingsAck,
        kind::SETTINGS => Payload::Settings(Changes::new(payload)),
        kind::PUSH_PROMISE => return Err(PUSH),
        kind::PING => {
            let bytes = *payload.first_chunk::<8>().ok_or(TOO_SHORT)?;
            match header.has(flag::ACK) {
                true => Payload::Pong(bytes),
                false => Payload::Ping(bytes),
            }
        }
        kind::GOAWAY => Payload::GoAway {
            last_stream: stream_of(payload),
            code: ErrorCode(number(payload.get(4..).unwrap_or_default())?),
        },
        kind::WINDOW_UPDATE => window_update(header, payload)?,
        kind::CONTINUATION => Payload::Continuation {
            block: payload,
            end_headers: header.has(flag::END_HEADERS),
        },
        kind::PRIORITY_UPDATE => {
            let stream = stream_of(payload);
            if stream == 0 {
                return Err(Violation::protocol("PRIORITY_UPDATE without a stream"));
            }
            Payload::PriorityUpdate {
                stream,
                value: payload.get(4..).unwrap_or_default(),
            }
        }
        _ => Payload::Unknown,
    })
}

fn window_update<'a>(header: &FrameHeader, payload: &[u8]) -> Result<Payload<'a>, Violation> {
    let text = "WINDOW_UPDATE by 0";
    match (number(payload)? & 0x7fff_ffff, header.stream) {
        (0, 0) => Err(Violation::protocol(text)),
        (0, stream) => Err(Violation::Stream(stream, ErrorCode::PROTOCOL_ERROR, text)),
        (increment, _) => Ok(Payload::WindowUpdate(increment)),
    }
}

/// Returns the number in the first four bytes.
fn number(bytes: &[u8]) -> Result<u32, Violation> {
    let bytes = bytes.first_chunk::<4>().ok_or(TOO_SHORT)?;
    Ok(u32::from_be_bytes(*bytes))
}

/// Returns the stream in the first four bytes, without the reserved bit; 0 if there are fewer.
fn stream_of(bytes: &[u8]) -> u32 {
    number(bytes).unwrap_or(0) & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::MAX_FRAME_SIZE_MIN;

    fn parse(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<Payload<'_>, Violation> {
        let header = FrameHeader {
            length: payload.len() as u32,
            kind,
            flags,
            stream,
        };
        header.check(MAX_FRAME_SIZE_MIN)?;
        Payload::parse(&header, payload)
    }

    #[test]
    fn padding_and_priority_are_removed() {
        let data = parse(kind::DATA, flag::PADDED | flag::END_STREAM, 1, b"\x02abcxx");
        let expected = Payload::Data {
            content: b"abc",
            end_stream: true,
        };
        assert_eq!(data, Ok(expected));
        let flags = flag::PADDED | flag::PRIORITY | flag::END_HEADERS;
        let headers = parse(kind::HEADERS, flags, 3, b"\x01\0\0\0\x03\x10abcx");
        let expected = Payload::Headers {
            block: b"abc",
            end_stream: false,
            end_headers: true,
            depends_on_itself: true,
        };
        assert_eq!(headers, Ok(expected));
        let whole = parse(kind::DATA, flag::PADDED, 1, b"\x03xxx");
        assert!(matches!(whole, Ok(Payload::Data { content: b"", .. })));
        let header = FrameHeader {
            length: 4,
            kind: kind::DATA,
            flags: flag::PADDED,
            stream: 1,
        };
        assert_eq!(padding(&header, 3), Ok(4));
        assert!(padding(&header, 4).is_err());
    }

    #[test]
    fn invalid_payloads_are_the_errors_of_their_type() {
        let protocol = ErrorCode::PROTOCOL_ERROR;
        for (kind, flags, stream, payload) in [
            (kind::DATA, flag::PADDED, 1, &b"\x04xxx"[..]),
            (kind::HEADERS, flag::PADDED, 1, b"\x04xxx"),
            (kind::PUSH_PROMISE, 0, 1, b"\0\0\0\x02"),
            (kind::WINDOW_UPDATE, 0, 0, b"\x80\0\0\0"),
            (kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\0u=1"),
        ] {
            let parsed = parse(kind, flags, stream, payload);
            assert!(
                matches!(parsed, Err(Violation::Connection(code, _)) if code == protocol),
                "{kind} {parsed:?}"
            );
        }
        for (kind, payload) in [
            (kind::WINDOW_UPDATE, &b"\0\0\0\0"[..]),
            (kind::PRIORITY, b"\x80\0\0\x05\0"),
        ] {
            let parsed = parse(kind, 0, 5, payload);
            assert!(matches!(parsed, Err(Violation::Stream(5, code, _)) if code == protocol));
        }
        let padded = parse(
            kind::HEADERS,
            flag::PADDED | flag::PRIORITY,
            1,
            b"\x04xxxxx",
        );
        assert_eq!(
            padded.map_err(|v| v.code()),
            Err(ErrorCode::FRAME_SIZE_ERROR)
        );
    }

    #[test]
    fn control_frames_are_parsed() {
        assert_eq!(
            parse(kind::RST_STREAM, 0, 1, b"\0\0\0\x08"),
            Ok(Payload::Reset(ErrorCode::CANCEL))
        );
        assert_eq!(
            parse(kind::PING, 0, 0, b"12345678"),
            Ok(Payload::Ping(*b"12345678"))
        );
        assert_eq!(
            parse(kind::PING, flag::ACK, 0, b"12345678"),
            Ok(Payload::Pong(*b"12345678"))
        );
        assert_eq!(
            parse(kind::SETTINGS, flag::ACK, 0, b""),
            Ok(Payload::SettingsAck)
        );
        let away = Payload::GoAway {
            last_stream: 7,
            code: ErrorCode::NO_ERROR,
        };
        assert_eq!(
            parse(kind::GOAWAY, 0, 0, b"\x80\0\0\x07\0\0\0\0text"),
            Ok(away)
        );
        let most = Payload::WindowUpdate(0x7fff_ffff);
        assert_eq!(
            parse(kind::WINDOW_UPDATE, 0, 0, b"\xff\xff\xff\xff"),
            Ok(most)
        );
        let update = Payload::PriorityUpdate {
            stream: 3,
            value: b"u=1",
        };
        assert_eq!(
            parse(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x03u=1"),
            Ok(update)
        );
        assert_eq!(
            parse(kind::PRIORITY, 0, 5, b"\0\0\0\x03\0"),
            Ok(Payload::Priority)
        );
        assert_eq!(parse(0x42, 0xff, 0, b"anything"), Ok(Payload::Unknown));
    }
}
