//! Checks of the parsers with any bytes, for the fuzzer.

mod client;

pub use client::client;

use super::frame::{FrameHeader, HEADER_LENGTH, flag, kind};
use super::header_block::{Assembly, Limits};
use super::hpack::{DecodeError, Decoder};
use super::payload::Payload;
use super::priority::Priority;
use super::request::Request;
use super::response::Trailers;
use super::server::{Event, Options, Server};
use super::settings::{Sender, Settings};
use super::violation::Violation;
use super::{PREFACE, write};
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
        if again == Err(DecodeError::Bomb) {
            assert!(decoded.map_or(true, |decoded| decoded.list_size > 4 * most));
            return (all, Some(DecodeError::Bomb));
        }
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
                let added = assembly.add(header.stream, part, limits);
                if added.is_err() {
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
            if !sections(&whole, &mut decoder, &mut request) {
                return;
            }
        }
    }
}

/// Decodes a header block and checks it as a request and as trailers. Returns false if the block cannot be decoded.
fn sections(block: &Assembly, decoder: &mut Decoder, request: &mut Request) -> bool {
    request.clear();
    let mut trailers = Trailers::default();
    let decoded = decoder.decode(block.bytes(), 1 << 14, |field| {
        request.add(&field);
        trailers.add(&field);
    });
    if decoded.is_err() {
        return false;
    }
    if request.finish(true).is_ok() {
        check_request(request);
    }
    if let Ok(fields) = trailers.finish() {
        check_lines(&fields);
    }
    true
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

/// Describes an event, and the request that it announces.
pub fn describe(event: &Event<'_>, request: &Request) -> String {
    let end = |ends: &bool| if *ends { " ends" } else { "" };
    match event {
        Event::Request {
            slot,
            ends,
            is_over: true,
        } => format!("request {slot} too large{}", end(ends)),
        Event::Request { slot, ends, .. } => {
            let method = request.method.as_ref().map_or("", |method| method.as_str());
            let path = request.path.escape_ascii();
            format!("request {slot} {method} {path}{}", end(ends))
        }
        Event::Content {
            slot,
            content,
            ends,
        } => format!("content {slot} {}{}", content.escape_ascii(), end(ends)),
        Event::Trailers { slot, fields } => {
            let text = String::from_utf8_lossy(fields.text());
            format!("trailers {slot} {}", text.replace("\r\n", ";"))
        }
        Event::Cancelled {
            slot,
            code,
            violation: Some(text),
        } => format!("cancelled {slot} {} {text}", code.0),
        Event::Cancelled { slot, code, .. } => format!("cancelled {slot} {}", code.0),
        Event::Refused { violation, .. } => format!("refused {violation}"),
    }
}

/// Describes the frames that one side has sent, which must be valid and complete.
pub fn describe_frames(mut bytes: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LENGTH>() {
        let header = FrameHeader::parse(header);
        assert_eq!(header.check(1 << 14), Ok(()));
        let (payload, rest) = rest.split_at(header.length as usize);
        bytes = rest;
        let end = if header.has(flag::END_STREAM) {
            " end"
        } else {
            ""
        };
        let text = match Payload::parse(&header, payload) {
            Ok(Payload::Data { content, .. }) => format!("DATA {}{end}", content.len()),
            Ok(Payload::Headers { .. }) => format!("HEADERS{end}"),
            Ok(Payload::Reset(code)) => format!("RST_STREAM {}", code.0),
            Ok(Payload::Settings(changes)) => changes
                .iter()
                .map(|(id, value)| format!(" {id}={value}"))
                .fold("SETTINGS".to_owned(), |all, one| all + &one),
            Ok(Payload::SettingsAck) => "SETTINGS ack".into(),
            Ok(Payload::Ping(bytes)) => format!("PING {}", bytes.escape_ascii()),
            Ok(Payload::Pong(bytes)) => format!("PING ack {}", bytes.escape_ascii()),
            Ok(Payload::GoAway { last_stream, code }) => format!("GOAWAY {last_stream} {}", code.0),
            Ok(Payload::WindowUpdate(increment)) => format!("WINDOW_UPDATE {increment}"),
            other => panic!("{other:?}"),
        };
        all.push(format!("{} {text}", header.stream));
    }
    assert!(bytes.is_empty());
    all
}

/// Runs a whole connection with the input as the frames of a client, after its preface and settings. Checks that slots and
/// limits are respected, and that nothing depends on the pieces in which the input arrives.
pub fn server(data: &[u8]) {
    let whole = served(data, usize::MAX);
    for piece in [1, 7] {
        assert_eq!(served(data, piece), whole);
    }
}

/// Returns the frames that a server sends, with the error that ends the connection. The client's frames arrive in pieces
/// of this length.
fn served(data: &[u8], piece: usize) -> (Vec<String>, Option<Violation>) {
    let mut out = Vec::new();
    let mut options = Options::default();
    options.limits.streams = 4;
    let mut server = Server::new(options, 0, &mut out);
    let mut input = PREFACE.to_vec();
    write::settings(&mut input, std::iter::empty());
    input.extend_from_slice(data);
    let mut caller = Caller::default();
    let (mut buffer, mut request) = (Vec::new(), Request::default());
    for part in input.chunks(piece) {
        buffer.extend_from_slice(part);
        loop {
            let (used, event) = match server.take(&buffer, 0, &mut request, &mut out) {
                Ok(taken) => taken,
                Err(violation) => {
                    server.close(&violation, &mut out);
                    return (describe_frames(&out), Some(violation));
                }
            };
            if let Some(event) = event {
                caller.handle(event, &request, &mut server, &mut out);
            }
            caller.respond(&mut server, &mut out);
            assert!(server.open_streams() <= 4 && server.memory() < 40_000);
            if used == 0 {
                break;
            }
            buffer.drain(..used);
        }
    }
    (describe_frames(&out), None)
}

/// A caller of a server that responds to some requests at once.
#[derive(Default)]
struct Caller {
    /// For each slot in use: the bytes of content that the response still has, if there is one.
    slots: Vec<Option<Option<u32>>>,
    /// For each slot: the bytes of content that the caller has not consumed.
    unread: Vec<u32>,
    requests: u32,
}

impl Caller {
    fn handle(
        &mut self,
        event: Event<'_>,
        request: &Request,
        server: &mut Server,
        out: &mut Vec<u8>,
    ) {
        if !matches!(event, Event::Content { .. }) {
            // Content is consumed at times that do not depend on the pieces in which it arrives.
            for (slot, unread) in self.unread.iter_mut().enumerate() {
                server.consume(slot, std::mem::take(unread), out);
            }
        }
        match event {
            Event::Request { slot, is_over, .. } => {
                self.slots.resize(self.slots.len().max(slot + 1), None);
                self.unread.resize(self.slots.len(), 0);
                assert!(self.slots[slot].is_none(), "a slot in use");
                if !is_over {
                    check_request(request);
                }
                self.requests += 1;
                self.slots[slot] = Some(None);
                if !self.requests.is_multiple_of(3) {
                    server.head(slot, false, out, |encoder, out| encoder.status(out, 200));
                    server.set_content(slot, true);
                    self.slots[slot] = Some(Some(self.requests * 10_000));
                }
            }
            Event::Content { slot, content, .. } => {
                assert!(self.slots[slot].is_some());
                self.unread[slot] += content.len() as u32;
            }
            Event::Trailers { slot, fields } => {
                assert!(self.slots[slot].is_some());
                check_lines(&fields);
            }
            Event::Cancelled { slot, .. } => assert!(self.slots[slot].take().is_some()),
            Event::Refused { .. } => {}
        }
    }

    /// Sends content as far as the windows permit.
    fn respond(&mut self, server: &mut Server, out: &mut Vec<u8>) {
        while let Some((slot, most)) = server.next() {
            let Some(Some(left)) = self.slots[slot] else {
                panic!("a stream without content");
            };
            let length = left.min(most);
            let ends = left == length;
            server.data(slot, length, ends, out);
            out.extend(std::iter::repeat_n(0, length as usize));
            if ends {
                server.end(slot, out);
            }
            self.slots[slot] = (!ends).then_some(Some(left - length));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_are_read_or_refused(
            frames in prop::collection::vec(
                (0u8..12, any::<u8>(), 0u8..4, prop::collection::vec(any::<u8>(), 0..40)), 0..20,
            ),
        ) {
            let bytes = frames.into_iter().flat_map(|(kind, flags, stream, payload)| {
                let header = [0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
                [&header[..], &payload].concat()
            });
            super::frames(&bytes.collect::<Vec<u8>>());
        }
    }
}
