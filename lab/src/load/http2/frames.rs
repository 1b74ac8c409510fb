//! The frames of HTTP/2 (RFC 9113 4 and 6) as the load generator reads and writes them.

use crate::raw_http2::kind;

/// Length of a frame's head in bytes.
pub(super) const FRAME_HEAD: usize = 9;
/// The type of a frame that announces a pushed response.
pub(super) const PUSH_PROMISE: u8 = 5;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
/// The reserved highest bit of a stream's number is ignored.
const STREAM: u32 = (1 << 31) - 1;

/// The head of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameHead {
    /// Length of the payload in bytes.
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

/// Parses the head of a frame. Returns the bytes after it, too; `None` if the head is not complete.
pub(super) fn parse(bytes: &[u8]) -> Option<(FrameHead, &[u8])> {
    let (head, rest) = bytes.split_at_checked(FRAME_HEAD)?;
    let head = FrameHead {
        length: (usize::from(head[0]) << 16) | (usize::from(head[1]) << 8) | usize::from(head[2]),
        kind: head[3],
        flags: head[4],
        stream: u32_at(head, 5)? & STREAM,
    };
    Some((head, rest))
}

/// Returns the payload of DATA or HEADERS without padding; `None` if the padding is longer than the payload.
pub(super) fn unpadded(head: FrameHead, payload: &[u8]) -> Option<&[u8]> {
    if head.flags & PADDED == 0 {
        return Some(payload);
    }
    let (padding, rest) = payload.split_first()?;
    let length = rest.len().checked_sub(usize::from(*padding))?;
    Some(&rest[..length])
}

/// Returns the field section in the payload of HEADERS.
pub(super) fn without_priority(head: FrameHead, payload: &[u8]) -> Option<&[u8]> {
    match head.flags & PRIORITY {
        0 => Some(payload),
        _ => payload.get(5..),
    }
}

/// Returns the number at this place of a payload.
pub(super) fn u32_at(payload: &[u8], at: usize) -> Option<u32> {
    let bytes = payload.get(at..at + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// Writes the head of a frame.
pub(super) fn head(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    // All frames are shorter than 16 KiB.
    out.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

/// Writes the length of the frame that begins and ends with these bytes into its head.
pub(super) fn set_length(frame: &mut [u8]) {
    let length = frame.len().saturating_sub(FRAME_HEAD) as u32;
    if let Some(first) = frame.first_chunk_mut::<3>() {
        let [_, rest @ ..] = length.to_be_bytes();
        *first = rest;
    }
}

/// Writes a frame whose payload is a number: WINDOW_UPDATE or RST_STREAM.
pub(super) fn number(out: &mut Vec<u8>, kind: u8, stream: u32, number: u32) {
    head(out, 4, kind, 0, stream);
    out.extend_from_slice(&number.to_be_bytes());
}

/// Writes SETTINGS.
pub(super) fn settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    head(out, 6 * settings.len(), kind::SETTINGS, 0, 0);
    for (identifier, value) in settings {
        out.extend_from_slice(&identifier.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw_http2::flag;

    #[test]
    fn padding_and_priority_are_removed() {
        let mut bytes = Vec::new();
        head(
            &mut bytes,
            9,
            kind::HEADERS,
            PADDED | PRIORITY | flag::END_HEADERS,
            3,
        );
        bytes.extend_from_slice(&[2, 0, 0, 0, 0, 9, b'x', 0, 0, b'y']);
        let (parsed, rest) = parse(&bytes).expect("a whole head");
        assert_eq!((parsed.length, parsed.stream), (9, 3));
        let inner = unpadded(parsed, &rest[..9]).expect("enough bytes");
        assert_eq!(without_priority(parsed, inner), Some(&b"x"[..]));
        assert_eq!(unpadded(parsed, &[3, 1, 2]), None);
        assert_eq!(unpadded(parsed, &[]), None);
        assert!(parse(&bytes[..8]).is_none());
    }
}
