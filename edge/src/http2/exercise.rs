//! Checks of the parsers with any bytes, for the fuzzer.

use super::frame::{FrameHeader, HEADER_LENGTH, flag, kind};
use super::header_block::{Assembly, Limits};
use super::hpack::{DecodeError, Decoder};
use super::payload::Payload;
use super::priority::Priority;
use super::request::Request;
use super::response::Trailers;
use super::settings::{Sender, Settings};
use crate::http::fields::{is_field_value, is_token};
use crate::http::{Fields, Method};

/// Fields of one block, in order.
pub type Lines = Vec<(Vec<u8>, Vec<u8>)>;

/// Splits an input into header blocks: each begins with its length in one byte.
pub fn split(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let (&length, after) = rest.split_first()?;
        let (block, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        Some(block)
    })
}

/// Decodes the blocks of an input as those of one connection. Returns the fields of each block up to the first one that
/// is refused. Checks that a limit of the header list changes nothing except the fields that are reported.
pub fn blocks(data: &[u8]) -> (Vec<Lines>, Option<DecodeError>) {
    let (mut decoder, mut limited) = (Decoder::new(), Decoder::new());
    let mut all = Vec::new();
    for block in split(data) {
        let (mut lines, mut first): (Lines, Lines) = (Vec::new(), Vec::new());
        let decoded = decoder.decode(block, u64::MAX, |field| {
            lines.push((field.name.to_vec(), field.value.to_vec()));
        });
        let most = 100;
        let again = limited.decode(block, most, |field| {
            first.push((field.name.to_vec(), field.value.to_vec()));
        });
        assert_eq!(decoded.map(|d| d.list_size), again.map(|d| d.list_size));
        match decoded {
            Ok(decoded) => assert!(!decoded.is_over),
            Err(error) => return (all, Some(error)),
        }
        assert!(lines.starts_with(&first) && first.len() <= 3);
        assert_eq!(decoder.entries(), limited.entries());
        let sizes = decoder
            .entries()
            .into_iter()
            .map(|(n, v)| n.len() + v.len() + 32);
        assert!(sizes.sum::<usize>() <= 4096);
        // A log of twice the table, its index, and spare room of both.
        assert!(decoder.memory() <= 4 * 4096 + 3000);
        all.push(lines);
    }
    (all, None)
}

/// Reads an input as the frames of a client, and decodes and checks its requests and trailers. Checks that an accepted
/// request means the same in HTTP/1.1.
pub fn frames(data: &[u8]) {
    let limits = Limits {
        bytes: 1 << 14,
        continuations: 4,
    };
    let (mut decoder, mut request) = (Decoder::new(), Request::default());
    let mut settings = Settings::default();
    let mut block: Option<Assembly> = None;
    let mut rest = data;
    while let Some((header, after)) = rest.split_first_chunk::<HEADER_LENGTH>() {
        let header = FrameHeader::parse(header);
        assert_eq!(FrameHeader::parse(&header.to_bytes()), header);
        let length = header.length as usize;
        let (Ok(()), Some((payload, after))) =
            (header.check(1 << 14), after.split_at_checked(length))
        else {
            return;
        };
        rest = after;
        let Ok(payload) = Payload::parse(&header, payload) else {
            return;
        };
        match (payload, &mut block) {
            (
                Payload::Headers {
                    block: first,
                    end_stream,
                    ..
                },
                None,
            ) => {
                let Ok(begun) = Assembly::begin(header.stream, end_stream, false, first, limits)
                else {
                    return;
                };
                block = Some(begun);
            }
            (Payload::Continuation { block: part, .. }, Some(assembly)) => {
                if assembly.add(header.stream, part, limits).is_err() {
                    return;
                }
            }
            (Payload::Headers { .. } | Payload::Continuation { .. }, _) => return,
            (Payload::Settings(changes), _) => {
                for (id, value) in changes.iter() {
                    if settings.apply(Sender::Client, id, value).is_err() {
                        return;
                    }
                }
            }
            (Payload::PriorityUpdate { value, .. }, _) => {
                assert!(Priority::parse(value).urgency <= 7);
            }
            _ => {}
        }
        if header.has(flag::END_HEADERS)
            && matches!(header.kind, kind::HEADERS | kind::CONTINUATION)
            && let Some(whole) = block.take()
        {
            assert!(whole.bytes().len() <= limits.bytes);
            request.clear();
            let mut trailers = Trailers::default();
            let decoded = decoder.decode(whole.bytes(), 1 << 14, |field| {
                request.add(&field);
                trailers.add(&field);
            });
            if decoded.is_err() {
                return;
            }
            if request.finish(true).is_ok() {
                check_request(&request);
            }
            if let Ok(fields) = trailers.finish() {
                check_lines(&fields);
            }
        }
    }
}

fn check_request(request: &Request) {
    check_lines(&request.fields);
    let host = request.fields.iter().next();
    assert_eq!(host, Some((&b"host"[..], &*request.authority)));
    let count = |name| request.fields.get_all(name).count();
    assert!(count("host") == 1 && count("content-length") <= 1 && count("cookie") <= 1);
    assert!(request.method.is_some());
    let is_connect = request.method == Some(Method::Connect);
    assert_eq!(
        request.path.is_empty(),
        is_connect && request.protocol.is_empty()
    );
    assert!(is_field_value(&request.path) && is_field_value(&request.protocol));
}

/// Checks that no line could be read as several or as framing.
fn check_lines(fields: &Fields) {
    for (name, value) in fields.iter() {
        assert!(is_token(name) && is_field_value(value));
        assert!(!name.iter().any(u8::is_ascii_uppercase));
        assert!(value.trim_ascii() == value);
        assert!(![&b"transfer-encoding"[..], b"connection", b"upgrade"].contains(&name));
    }
}
