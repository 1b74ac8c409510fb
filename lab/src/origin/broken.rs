//! Response heads and chunks that violate HTTP in chosen ways.

use super::fault::{BadChunk, BrokenHead};

/// Changes a valid response head so that it has this violation. [`BrokenHead::Endless`] is left to the function that
/// sends the head.
pub(super) fn break_head(head: Vec<u8>, how: BrokenHead) -> Vec<u8> {
    match how {
        BrokenHead::Garbage => {
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03garbage\r\n\r\n".to_vec()
        }
        BrokenHead::BareLf => head.into_iter().filter(|byte| *byte != b'\r').collect(),
        BrokenHead::BareCr => with_line(head, b"X-Broken: one\rtwo"),
        BrokenHead::NoColon => with_line(head, b"X-Broken one"),
        BrokenHead::SpaceBeforeColon => with_line(head, b"X-Broken : one"),
        BrokenHead::Nul => with_line(head, b"X-Broken: one\0two"),
        BrokenHead::ObsFold => with_line(head, b"X-Broken: one\r\n two"),
        BrokenHead::Huge(bytes) => {
            with_line(head, &[b"X-Broken: ", &vec![b'x'; bytes][..]].concat())
        }
        BrokenHead::ManyFields(count) => with_line(head, many(count).trim_end().as_bytes()),
        BrokenHead::BadStatus => with_status_line(head, b"HTTP/1.1 2x0 OK"),
        BrokenHead::ShortStatus => with_status_line(head, b"HTTP/1.1 20 OK"),
        BrokenHead::BadVersion => with_status_line(head, b"HTTP/7.3 200 OK"),
        BrokenHead::DifferingLengths => with_line(head, b"Content-Length: 3"),
        BrokenHead::LengthAndChunked => with_line(head, b"Content-Length: 3"),
        BrokenHead::BadLength => with_length(head, b"five"),
        BrokenHead::NegativeLength => with_length(head, b"-5"),
        BrokenHead::OverflowingLength => with_length(head, b"184467440737095516160"),
        BrokenHead::UnknownCoding => without_length(head, b"Transfer-Encoding: zebra"),
        BrokenHead::ChunkedNotFinal => without_length(head, b"Transfer-Encoding: chunked, gzip"),
        BrokenHead::Endless => without_end(head),
    }
}

/// Returns the bytes to send in place of the next chunk-size line, or `None` if the violation is not in that line.
pub(super) fn bad_size_line(how: BadChunk) -> Option<Vec<u8>> {
    match how {
        BadChunk::NotHex => Some(b"zz\r\n".to_vec()),
        BadChunk::Negative => Some(b"-5\r\n".to_vec()),
        BadChunk::Overflow => Some(b"fffffffffffffffff\r\n".to_vec()),
        BadChunk::Empty => Some(b"\r\n".to_vec()),
        BadChunk::BareLf => Some(b"5\nhello\r\n".to_vec()),
        BadChunk::Extension(bytes) => {
            Some([b"5;x=", &vec![b'y'; bytes][..], b"\r\nhello\r\n"].concat())
        }
        BadChunk::NoCrlf => Some(b"5\r\nhello5\r\nhello\r\n".to_vec()),
        BadChunk::NoLast | BadChunk::BadTrailer | BadChunk::HugeTrailer(_) => None,
    }
}

/// Returns the bytes to send in place of the last chunk and the trailers, or `None` if the violation is not in them.
pub(super) fn bad_last_chunk(how: BadChunk) -> Option<Vec<u8>> {
    match how {
        BadChunk::NoLast => Some(Vec::new()),
        BadChunk::BadTrailer => Some(b"0\r\nno colon here\r\n\r\n".to_vec()),
        BadChunk::HugeTrailer(bytes) => {
            Some([b"0\r\nX-Trailer: ", &vec![b'y'; bytes][..], b"\r\n\r\n"].concat())
        }
        _ => None,
    }
}

fn many(count: usize) -> String {
    (0..count)
        .map(|n| format!("X-Broken-{n}: {n}\r\n"))
        .collect()
}

fn without_end(mut head: Vec<u8>) -> Vec<u8> {
    head.truncate(head.len().saturating_sub(2));
    head
}

fn with_line(head: Vec<u8>, line: &[u8]) -> Vec<u8> {
    [&without_end(head)[..], line, b"\r\n\r\n"].concat()
}

fn with_status_line(head: Vec<u8>, line: &[u8]) -> Vec<u8> {
    let rest = head.iter().position(|byte| *byte == b'\r').unwrap_or(0);
    [line, &head[rest..]].concat()
}

fn with_length(head: Vec<u8>, value: &[u8]) -> Vec<u8> {
    without_length(head, &[b"Content-Length: ", value].concat())
}

fn without_length(head: Vec<u8>, instead: &[u8]) -> Vec<u8> {
    let kept: Vec<u8> = head
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| !line.starts_with(b"Content-Length:"))
        .flatten()
        .copied()
        .collect();
    with_line(kept, instead)
}
