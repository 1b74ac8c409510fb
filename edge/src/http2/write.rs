//! Writes frames (RFC 9113 6).

use super::frame::{FrameHeader, HEADER_LENGTH, flag, kind};
use super::violation::ErrorCode;

fn append_header(out: &mut Vec<u8>, kind: u8, flags: u8, length: usize, stream: u32) {
    let header = FrameHeader {
        length: length as u32,
        kind,
        flags,
        stream,
    };
    out.extend_from_slice(&header.to_bytes());
}

/// Returns the header of a DATA frame, which precedes `length` bytes of content.
#[inline]
pub fn data_header(stream: u32, length: u32, end_stream: bool) -> [u8; HEADER_LENGTH] {
    FrameHeader {
        length,
        kind: kind::DATA,
        flags: if end_stream { flag::END_STREAM } else { 0 },
        stream,
    }
    .to_bytes()
}

/// Appends a SETTINGS frame with these identifiers and values.
pub fn settings(out: &mut Vec<u8>, changes: impl Iterator<Item = (u16, u32)>) {
    let start = out.len();
    append_header(out, kind::SETTINGS, 0, 0, 0);
    for (id, value) in changes {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
    set_length(out, start);
}

/// Appends the acknowledgement of a SETTINGS frame.
pub fn settings_ack(out: &mut Vec<u8>) {
    append_header(out, kind::SETTINGS, flag::ACK, 0, 0);
}

/// Appends a PING.
pub fn ping(out: &mut Vec<u8>, bytes: [u8; 8]) {
    append_header(out, kind::PING, 0, bytes.len(), 0);
    out.extend_from_slice(&bytes);
}

/// Appends the answer to a PING.
pub fn pong(out: &mut Vec<u8>, bytes: [u8; 8]) {
    append_header(out, kind::PING, flag::ACK, bytes.len(), 0);
    out.extend_from_slice(&bytes);
}

/// Appends a WINDOW_UPDATE. Stream 0 is the connection.
pub fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    append_header(out, kind::WINDOW_UPDATE, 0, 4, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Appends a RST_STREAM.
pub fn reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    append_header(out, kind::RST_STREAM, 0, 4, stream);
    out.extend_from_slice(&code.0.to_be_bytes());
}

/// Appends a GOAWAY, whose text is for the peer's log.
pub fn go_away(out: &mut Vec<u8>, last_stream: u32, code: ErrorCode, text: &str) {
    append_header(out, kind::GOAWAY, 0, 8 + text.len(), 0);
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Appends a header block that `encode` appends, as HEADERS and, if it is longer than `size_max`, CONTINUATION frames.
pub fn headers(
    out: &mut Vec<u8>,
    stream: u32,
    end_stream: bool,
    size_max: u32,
    encode: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    let end_stream = if end_stream { flag::END_STREAM } else { 0 };
    append_header(
        out,
        kind::HEADERS,
        end_stream | flag::END_HEADERS,
        0,
        stream,
    );
    encode(out);
    let size_max = size_max as usize;
    if out.len() - start - HEADER_LENGTH <= size_max {
        return set_length(out, start);
    }
    let rest = out.split_off(start + HEADER_LENGTH + size_max);
    out[start + 4] = end_stream;
    set_length(out, start);
    let mut parts = rest.chunks(size_max).peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        let flags = if is_last { flag::END_HEADERS } else { 0 };
        append_header(out, kind::CONTINUATION, flags, part.len(), stream);
        out.extend_from_slice(part);
    }
}

/// Sets the length of the frame that begins at `start` and is the last one.
fn set_length(out: &mut [u8], start: usize) {
    let length = (out.len() - start - HEADER_LENGTH) as u32;
    out[start..start + 3].copy_from_slice(&length.to_be_bytes()[1..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::MAX_FRAME_SIZE_MIN;
    use crate::http2::header_block::{Assembly, Limits};
    use crate::http2::payload::Payload;

    /// Calls `check` with each frame.
    fn each(mut bytes: &[u8], mut check: impl FnMut(FrameHeader, Payload<'_>)) {
        while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LENGTH>() {
            let header = FrameHeader::parse(header);
            assert_eq!(header.check(MAX_FRAME_SIZE_MIN), Ok(()));
            let (payload, rest) = rest.split_at(header.length as usize);
            check(
                header,
                Payload::parse(&header, payload).expect("a valid frame"),
            );
            bytes = rest;
        }
        assert!(bytes.is_empty());
    }

    #[test]
    fn written_frames_are_read() {
        let mut out = Vec::new();
        settings(&mut out, [(3, 100), (4, 1 << 20)].into_iter());
        settings_ack(&mut out);
        ping(&mut out, *b"12345678");
        pong(&mut out, *b"abcdefgh");
        window_update(&mut out, 5, 77);
        reset(&mut out, 7, ErrorCode::CANCEL);
        go_away(&mut out, 9, ErrorCode::NO_ERROR, "bye");
        out.extend_from_slice(&data_header(11, 2, true));
        out.extend_from_slice(b"ab");
        let mut frames = Vec::new();
        each(&out, |header, payload| {
            frames.push(match payload {
                Payload::Settings(changes) => format!("{:?}", changes.iter().collect::<Vec<_>>()),
                other => format!("{} {other:?}", header.stream),
            });
        });
        let expected = [
            "[(3, 100), (4, 1048576)]",
            "0 SettingsAck",
            "0 Ping([49, 50, 51, 52, 53, 54, 55, 56])",
            "0 Pong([97, 98, 99, 100, 101, 102, 103, 104])",
            "5 WindowUpdate(77)",
            "7 Reset(ErrorCode(8))",
            "0 GoAway { last_stream: 9, code: ErrorCode(0) }",
            "11 Data { content: [97, 98], end_stream: true }",
        ];
        assert_eq!(frames, expected);
    }

    #[test]
    fn a_long_block_is_continued() {
        for length in [0, 1, 16384, 16385, 50_000] {
            let mut out = b"before".to_vec();
            let block: Vec<u8> = (0..length).map(|n| n as u8).collect();
            headers(&mut out, 3, true, MAX_FRAME_SIZE_MIN, |out| {
                out.extend(&block)
            });
            let limits = Limits {
                bytes: length,
                continuations: 3,
            };
            let mut whole: Option<Assembly> = None;
            let mut ended = false;
            each(&out[6..], |header, payload| match payload {
                Payload::Headers {
                    block,
                    end_stream,
                    end_headers,
                    ..
                } => {
                    ended = end_headers;
                    let begun = Assembly::begin(header.stream, end_stream, false, block, limits);
                    whole = Some(begun.expect("within the limits"));
                }
                Payload::Continuation { block, end_headers } => {
                    ended = end_headers;
                    let whole = whole.as_mut().expect("a block");
                    assert_eq!(whole.add(header.stream, block, limits), Ok(()));
                }
                other => panic!("{other:?}"),
            });
            let whole = whole.expect("a block");
            assert!(ended && whole.end_stream && whole.bytes() == block);
        }
    }
}
