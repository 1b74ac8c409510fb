//! Tests of a client: against frames of a server, and against `http2::server`.

use proptest::prelude::*;

use super::*;
use crate::http2::exercise;
use crate::http2::frame::{FrameHeader, flag, kind};
use crate::http2::hpack::{Encoder, Indexing};
use crate::http2::request::Request;
use crate::http2::server::{self, Server};

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        length: payload.len() as u32,
        kind,
        flags,
        stream,
    };
    [&header.to_bytes()[..], payload].concat()
}

/// A header block in one frame.
fn headers(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(kind::HEADERS, flags | flag::END_HEADERS, stream, block)
}

fn data(stream: u32, flags: u8, content: &[u8]) -> Vec<u8> {
    frame(kind::DATA, flags, stream, content)
}

const END: u8 = flag::END_STREAM;

/// `:status: 200`.
const OK: &[u8] = b"\x88";

fn request(encoder: &mut Encoder, out: &mut Vec<u8>) {
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "a"),
    ] {
        encoder.field(out, name.as_bytes(), value.as_bytes(), Indexing::Field);
    }
}

/// A client that has the server's settings, with two requests: one whose content is open on stream 1, and a HEAD request
/// without content on stream 3.
fn client() -> Client {
    let mut out = Vec::new();
    let mut client = Client::new(Options::default(), 0, &mut out);
    let mut settings = Vec::new();
    write::settings(&mut settings, std::iter::empty());
    write::settings_ack(&mut settings);
    assert_eq!(events(&mut client, &settings), Ok(vec![]));
    assert_eq!(client.begin(false, false, &mut out, request), Some(0));
    assert_eq!(client.begin(true, true, &mut out, request), Some(1));
    client
}

/// Returns descriptions of the events that these bytes cause.
fn events(client: &mut Client, mut bytes: &[u8]) -> Result<Vec<String>, ErrorCode> {
    let (mut response, mut out, mut found) = (Response::default(), Vec::new(), Vec::new());
    loop {
        let taken = client.take(bytes, 0, &mut response, &mut out);
        let (used, event) = taken.map_err(|violation| violation.code())?;
        if used == 0 {
            assert!(bytes.is_empty(), "an incomplete frame");
            return Ok(found);
        }
        bytes = &bytes[used..];
        found.extend(event.map(|event| describe(&event)));
    }
}

fn describe(event: &Event<'_>) -> String {
    let end = |ends: &bool| if *ends { " ends" } else { "" };
    match event {
        Event::Head { slot, status, ends } => format!("{slot} head {status}{}", end(ends)),
        Event::Content {
            slot,
            content,
            ends,
        } => format!("{slot} content {}{}", content.escape_ascii(), end(ends)),
        Event::Trailers { slot, fields } => format!("{slot} trailers {}", fields.len()),
        Event::Failed { slot, code, .. } => format!("{slot} failed {}", code.0),
        Event::GoAway { code } => format!("goaway {}", code.0),
        Event::Pong(bytes) => format!("pong {}", bytes.escape_ascii()),
    }
}

#[test]
fn responses_are_received() {
    let mut client = client();
    let bytes = [
        headers(1, 0, b"\x08\x03103"),
        headers(1, 0, b"\x88\x5c\x015"),
        data(1, 0, b"he"),
        data(1, flag::PADDED, b"\x01llox"),
        headers(1, END, b"\0\x05x-sum\x011"),
        headers(3, END, b"\x88\x5c\x0299"),
        frame(kind::PING, flag::ACK, 0, b"12345678"),
    ]
    .concat();
    let expected = [
        "0 head 103",
        "0 head 200",
        "0 content he",
        "0 content llo",
        "0 trailers 1",
        "1 head 200 ends",
        "pong 12345678",
    ];
    assert_eq!(
        events(&mut client, &bytes),
        Ok(expected.map(str::to_owned).to_vec())
    );
    let mut out = Vec::new();
    client.end(1, &mut out);
    assert!(out.is_empty() && client.open_streams() == 1);
    client.end(0, &mut out);
    assert_eq!(out, frame(kind::RST_STREAM, 0, 1, b"\0\0\0\x08"));
    assert_eq!(client.open_streams(), 0);
    // Frames that were on their way are ignored.
    let late = [data(1, 0, b"x"), headers(1, END, OK)].concat();
    assert_eq!(events(&mut client, &late), Ok(vec![]));
}

#[test]
fn violations_by_a_server_have_their_errors() {
    let protocol = ErrorCode::PROTOCOL_ERROR;
    for (name, bytes, expected) in [
        ("no head", data(1, 0, b"x"), Ok(protocol)),
        ("no status", headers(1, 0, b""), Ok(protocol)),
        ("status 101", headers(1, 0, b"\x08\x03101"), Ok(protocol)),
        ("1xx ends", headers(1, END, b"\x08\x03103"), Ok(protocol)),
        (
            "connection field",
            headers(1, 0, b"\x88\0\x07upgrade\x01x"),
            Ok(protocol),
        ),
        (
            "second head",
            [headers(1, 0, OK), headers(1, 0, OK)].concat(),
            Ok(protocol),
        ),
        (
            "status in trailers",
            [headers(1, 0, OK), headers(1, END, OK)].concat(),
            Ok(protocol),
        ),
        (
            "less content",
            [headers(1, 0, b"\x88\x5c\x015"), data(1, END, b"x")].concat(),
            Ok(protocol),
        ),
        (
            "more content",
            [headers(1, 0, b"\x88\x5c\x011"), data(1, 0, b"xy")].concat(),
            Ok(protocol),
        ),
        (
            "content of HEAD",
            [headers(3, 0, OK), data(3, 0, b"x")].concat(),
            Ok(protocol),
        ),
        (
            "content of 304",
            [headers(1, 0, b"\x8b"), data(1, 0, b"x")].concat(),
            Ok(protocol),
        ),
        (
            "content after the end",
            [headers(1, END, OK), data(1, 0, b"x")].concat(),
            Ok(ErrorCode::STREAM_CLOSED),
        ),
        ("idle stream", headers(5, 0, OK), Err(protocol)),
        ("stream of the server", headers(2, 0, OK), Err(protocol)),
        (
            "push",
            frame(kind::PUSH_PROMISE, 4, 1, b"\0\0\0\x02\x82"),
            Err(protocol),
        ),
        (
            "push enabled",
            frame(kind::SETTINGS, 0, 0, b"\0\x02\0\0\0\x01"),
            Err(protocol),
        ),
        (
            "PRIORITY_UPDATE",
            frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"),
            Err(protocol),
        ),
        (
            "header block",
            headers(1, 0, b"\x80"),
            Err(ErrorCode::COMPRESSION_ERROR),
        ),
    ] {
        let found = events(&mut client(), &bytes).map(|events| {
            let last = events.last().map_or("", |event| event.as_str());
            let code = last
                .split_once(" failed ")
                .and_then(|(_, code)| code.parse().ok());
            ErrorCode(code.unwrap_or(u32::MAX))
        });
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn requests_that_are_not_processed_are_named() {
    let mut client = client();
    let mut out = Vec::new();
    assert_eq!(client.room(), 98);
    assert_eq!(client.take_unprocessed(&mut out), None);
    let away = frame(kind::GOAWAY, 0, 0, b"\0\0\0\x01\0\0\0\0");
    assert_eq!(events(&mut client, &away), Ok(vec!["goaway 0".into()]));
    assert_eq!(
        (client.room(), client.begin(true, false, &mut out, request)),
        (0, None)
    );
    assert_eq!(client.take_unprocessed(&mut out), Some(1));
    assert_eq!(client.take_unprocessed(&mut out), None);
    let end = events(&mut client, &headers(1, END, OK));
    assert_eq!(end, Ok(vec!["0 head 200 ends".into()]));
    let mut client = super::tests::client();
    let refused = frame(kind::RST_STREAM, 0, 3, b"\0\0\0\x07");
    assert_eq!(events(&mut client, &refused), Ok(vec!["1 failed 7".into()]));
    let few = frame(kind::SETTINGS, 0, 0, b"\0\x03\0\0\0\x01");
    assert_eq!(events(&mut client, &few), Ok(vec![]));
    assert_eq!(client.room(), 0);
}

const MIB: u32 = 1 << 20;

/// A client with this many requests whose responses have begun.
fn downloading(count: usize) -> Client {
    let mut out = Vec::new();
    let mut client = Client::new(Options::default(), 0, &mut out);
    let mut hello = Vec::new();
    write::settings(&mut hello, std::iter::empty());
    write::settings_ack(&mut hello);
    assert_eq!(events(&mut client, &hello), Ok(vec![]));
    (0..count).for_each(|slot| download(&mut client, slot));
    client
}

/// Begins a request in this slot, which must be the next one, and its response.
fn download(client: &mut Client, slot: usize) {
    let begun = client.begin(true, false, &mut Vec::new(), request);
    assert_eq!(begun, Some(slot));
    let head = headers(client.endpoint.streams[slot].id, 0, OK);
    assert_eq!(events(client, &head), Ok(vec![format!("{slot} head 200")]));
}

/// Lets as much content arrive as the window of a stream permits. Returns its length.
fn fill(client: &mut Client, slot: usize) -> u32 {
    let stream = &client.endpoint.streams[slot];
    let (id, length) = (stream.id, stream.window.available());
    let content = vec![0; length as usize];
    for part in content.chunks(16 << 10) {
        let found = events(client, &data(id, 0, part));
        assert_eq!(found.map(|events| events.len()), Ok(1));
    }
    length
}

/// Lets windows of content arrive, and takes each of them in `ms`. Returns the size of the last window.
fn read(client: &mut Client, slot: usize, windows: u64, ms: u64) -> u32 {
    let mut out = Vec::new();
    for n in 0..windows {
        let mut left = fill(client, slot);
        while left > 0 {
            let part = left.min(10_000);
            left -= part;
            // The last part is taken when the time has passed.
            let now_ms = if left == 0 { (n + 1) * ms } else { n * ms };
            client.consume(slot, part, now_ms, &mut out);
        }
    }
    client.endpoint.streams[slot].window.size()
}

#[test]
fn windows_of_responses_that_are_read_quickly_grow() {
    let mut client = downloading(6);
    // A reader that takes a window in two seconds keeps the one that it gets with its first bytes.
    assert_eq!(read(&mut client, 0, 20, 2000), 256 << 10);
    for slot in 1..4 {
        assert_eq!(read(&mut client, slot, 40, 100), 4 * MIB);
    }
    // The next ones get at most half of what is left.
    assert_eq!(read(&mut client, 4, 40, 100), 2 * MIB);
    assert_eq!(read(&mut client, 5, 40, 100), MIB);
    // The growth of a stream that ends is there for the next one.
    let mut out = Vec::new();
    client.reset(1, ErrorCode::CANCEL, &mut out);
    download(&mut client, 1);
    assert_eq!(read(&mut client, 1, 40, 100), 2 * MIB);
}

#[test]
fn the_time_until_a_response_begins_does_not_count_against_its_reader() {
    let mut client = downloading(0);
    let (mut out, mut response) = (Vec::new(), Response::default());
    assert_eq!(client.begin(true, false, &mut out, request), Some(0));
    let head = headers(1, 0, OK);
    let taken = client.take(&head, 5000, &mut response, &mut out);
    assert_eq!(taken.map(|(used, _)| used), Ok(head.len()));
    for (now_ms, size) in [(5900, 256 << 10), (6800, 512 << 10)] {
        let length = fill(&mut client, 0);
        client.consume(0, length, now_ms, &mut out);
        assert_eq!(client.endpoint.streams[0].window.size(), size);
    }
}

#[test]
fn a_window_does_not_grow_for_content_that_fits_into_it() {
    let mut client = downloading(0);
    let mut out = Vec::new();
    assert_eq!(client.begin(true, false, &mut out, request), Some(0));
    // A Content-Length of 50,000 bytes.
    assert!(events(&mut client, &headers(1, 0, b"\x88\x5c\x0550000")).is_ok());
    let length = fill(&mut client, 0);
    client.consume(0, length, 100, &mut out);
    assert_eq!(client.endpoint.streams[0].window.size(), 32 << 10);
}

#[test]
fn responses_that_are_not_read_hold_up_no_other_one() {
    let mut client = downloading(100);
    let sizes = (0..99).map(|slot| read(&mut client, slot, 40, 100));
    let grown = sizes.sum::<u32>() - 99 * (32 << 10);
    assert!((15 * MIB..=16 * MIB).contains(&grown), "{grown}");
    (0..99).for_each(|slot| {
        fill(&mut client, slot);
    });
    // The pool is in use, so this stream keeps its first window.
    assert_eq!(read(&mut client, 99, 1000, 100), 32 << 10);
}

#[test]
fn content_of_a_closed_stream_that_is_not_taken_takes_room_for_growth() {
    let mut client = downloading(1);
    let kept = client.keep(14 * MIB);
    assert_eq!(kept, 14 * MIB - (32 << 10));
    assert_eq!(read(&mut client, 0, 40, 100), MIB);
    client.forget(kept);
    assert_eq!(read(&mut client, 0, 40, 100), 4 * MIB);
    // Content that would fit into a window that has not grown is free.
    assert_eq!((client.keep(32 << 10), client.keep(0)), (0, 0));
}

#[test]
fn cancelled_requests_use_up_a_connection_and_complete_ones_and_time_restore_it() {
    let mut client = downloading(0);
    let mut out = Vec::new();
    let mut cancel = |client: &mut Client, now_ms| {
        let begun = client.begin(true, false, &mut out, request);
        client.cancel(begun.expect("room"), now_ms, &mut out)
    };
    assert!((0..100).all(|_| cancel(&mut client, 0)));
    assert!(!cancel(&mut client, 0));
    assert!((0..10).all(|_| cancel(&mut client, 1000)));
    assert!(!cancel(&mut client, 1000));
    download(&mut client, 0);
    client.end(0, &mut Vec::new());
    assert!(cancel(&mut client, 1000));
    assert!(!cancel(&mut client, 1000));
}

/// A client and a server that exchange bytes in pieces.
struct Pair {
    client: Client,
    server: Server,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    /// By slots of the client: content of the request to send, content of the response expected and received.
    requests: Vec<Option<(u32, u32, u32)>>,
    /// By slots of the server: content received, and of the response to send.
    responses: Vec<Option<(u32, u32)>>,
    done: usize,
}

impl Pair {
    fn new(server_options: server::Options) -> Pair {
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        Pair {
            client: Client::new(Options::default(), 0, &mut to_server),
            server: Server::new(server_options, 0, &mut to_client),
            to_server,
            to_client,
            requests: vec![None; 200],
            responses: vec![None; 200],
            done: 0,
        }
    }

    /// Begins a request with this much content, whose response has that much.
    fn begin(&mut self, sends: u32, receives: u32) -> bool {
        let encode = |encoder: &mut Encoder, out: &mut Vec<u8>| {
            request(encoder, out);
            let length = receives.to_string();
            encoder.field(out, b"x-length", length.as_bytes(), Indexing::Name);
        };
        let slot = self
            .client
            .begin(sends == 0, false, &mut self.to_server, encode);
        if let Some(slot) = slot {
            self.requests[slot] = Some((sends, receives, 0));
            self.client.set_content(slot, sends > 0);
        }
        slot.is_some()
    }

    /// Passes on bytes in both directions, about this many.
    fn step(&mut self, piece: usize) {
        self.serve(piece);
        self.receive(piece);
        while let Some((slot, most)) = self.client.next() {
            let (sends, ..) = self.requests[slot].as_mut().expect("a request");
            let length = (*sends).min(most);
            *sends -= length;
            let ends = *sends == 0;
            self.client.data(slot, length, ends, &mut self.to_server);
            self.to_server
                .extend(std::iter::repeat_n(b'q', length as usize));
        }
        while let Some((slot, most)) = self.server.next() {
            let (_, left) = self.responses[slot].as_mut().expect("a request");
            let length = (*left).min(most);
            *left -= length;
            let ends = *left == 0;
            self.server.data(slot, length, ends, &mut self.to_client);
            self.to_client
                .extend(std::iter::repeat_n(b'p', length as usize));
            if ends {
                self.server.end(slot, &mut self.to_client);
                self.responses[slot] = None;
            }
        }
    }

    fn serve(&mut self, piece: usize) {
        let mut request = Request::default();
        let input = std::mem::take(&mut self.to_server);
        // A frame may be longer than a piece.
        let left = input.len().min(piece.max(1 << 15));
        let mut used_all = 0;
        loop {
            let bytes = &input[used_all..left];
            let taken = self
                .server
                .take(bytes, 0, &mut request, &mut self.to_client);
            let (used, event) = taken.expect("a valid frame");
            used_all += used;
            let mut respond = None;
            match event {
                Some(server::Event::Request { slot, ends, .. }) => {
                    let length = request.fields.get("x-length").expect("a length");
                    let length = std::str::from_utf8(length).expect("digits");
                    self.responses[slot] = Some((0, length.parse().expect("a number")));
                    respond = ends.then_some(slot);
                }
                Some(server::Event::Content {
                    slot,
                    content,
                    ends,
                }) => {
                    assert!(content.iter().all(|b| *b == b'q'));
                    let length = content.len() as u32;
                    self.server.release(slot, length, &mut self.to_client);
                    respond = ends.then_some(slot);
                }
                None => {}
                other => panic!("{other:?}"),
            }
            if let Some(slot) = respond {
                let ends = self.responses[slot].is_some_and(|(_, left)| left == 0);
                let head = |encoder: &mut Encoder, out: &mut Vec<u8>| encoder.status(out, 200);
                self.server.head(slot, ends, &mut self.to_client, head);
                match ends {
                    true => self.responses[slot] = None,
                    false => self.server.set_content(slot, true),
                }
            }
            if used == 0 {
                break;
            }
        }
        self.to_server
            .splice(0..0, input[used_all..].iter().copied());
    }

    fn receive(&mut self, piece: usize) {
        let mut response = Response::default();
        let input = std::mem::take(&mut self.to_client);
        let left = input.len().min(piece.max(1 << 15));
        let mut used_all = 0;
        loop {
            let bytes = &input[used_all..left];
            let taken = self
                .client
                .take(bytes, 0, &mut response, &mut self.to_server);
            let (used, event) = taken.expect("a valid frame");
            used_all += used;
            let ended = match event {
                Some(Event::Head { slot, ends, .. }) => ends.then_some(slot),
                Some(Event::Content {
                    slot,
                    content,
                    ends,
                }) => {
                    assert!(content.iter().all(|b| *b == b'p'));
                    let length = content.len() as u32;
                    self.requests[slot].as_mut().expect("a request").2 += length;
                    self.client.consume(slot, length, 0, &mut self.to_server);
                    ends.then_some(slot)
                }
                None => None,
                other => panic!("{other:?}"),
            };
            if let Some(slot) = ended {
                let (sends, expected, received) = self.requests[slot].take().expect("a request");
                assert_eq!((sends, expected), (0, received));
                self.client.end(slot, &mut self.to_server);
                self.done += 1;
            }
            if used == 0 {
                break;
            }
        }
        self.to_client
            .splice(0..0, input[used_all..].iter().copied());
    }
}

proptest! {
    #[test]
    fn any_frames_are_accepted_or_refused(
        frames in prop::collection::vec(
            (0u8..12, 0u8..64, 0u32..12, prop::collection::vec(any::<u8>(), 0..20)), 0..40,
        ),
    ) {
        let bytes: Vec<u8> = frames
            .into_iter()
            .flat_map(|(kind, flags, stream, payload)| match kind {
                // Complete responses are likely.
                10 | 11 => frame(kind::HEADERS, flags & 1 | 4, stream | 1, b"\x88"),
                kind => frame(kind, flags, stream, &payload),
            })
            .collect();
        exercise::client(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn client_and_server_exchange_everything(
        requests in prop::collection::vec((0u32..150_000, 0u32..400_000), 1..30),
        pieces in prop::collection::vec(1usize..60_000, 1..20),
        streams in 1u32..20,
    ) {
        let mut options = server::Options::default();
        options.limits.streams = streams;
        let mut pair = Pair::new(options);
        // The server's settings come first, so that no request is refused.
        while !pair.client.has_begun() {
            pair.step(usize::MAX);
        }
        let (mut begun, mut pieces) = (0, pieces.iter().copied().cycle());
        for _ in 0..100_000 {
            while begun < requests.len() && pair.begin(requests[begun].0, requests[begun].1) {
                begun += 1;
            }
            if pair.done == requests.len() {
                break;
            }
            pair.step(pieces.next().unwrap_or(1));
        }
        prop_assert_eq!(pair.done, requests.len());
        prop_assert_eq!((pair.client.open_streams(), pair.server.open_streams()), (0, 0));
    }
}
