//! Tests of a server with the frames of a client, without I/O: the rules of RFC 9113, the order and limits of what is sent,
//! and floods.

use super::*;
use crate::http2::frame::{FrameHeader, HEADER_LENGTH, flag, kind};
use crate::http2::hpack::{Encoder, Indexing};
use crate::http2::{PREFACE, exercise};

/// A client and the server that it talks to.
struct Client {
    server: Server,
    request: Request,
    encoder: Encoder,
    now_ms: u64,
    out: Vec<u8>,
}

impl Client {
    /// Creates a client that has acknowledged the server's settings.
    fn new(options: Options) -> Client {
        let mut client = Client::before_settings(options);
        let mut hello = PREFACE.to_vec();
        write::settings(&mut hello, std::iter::empty());
        write::settings_ack(&mut hello);
        assert_eq!(client.send(&hello), Ok(vec![]));
        client.out.clear();
        client
    }

    fn before_settings(options: Options) -> Client {
        let mut out = Vec::new();
        Client {
            server: Server::new(options, 0, &mut out),
            request: Request::default(),
            encoder: Encoder::new(4096),
            now_ms: 0,
            out,
        }
    }

    /// Sends bytes and returns the events, up to the error that ends the connection.
    fn send(&mut self, mut bytes: &[u8]) -> Result<Vec<String>, ErrorCode> {
        let mut events = Vec::new();
        loop {
            let (server, now_ms) = (&mut self.server, self.now_ms);
            let taken = server.take(bytes, now_ms, &mut self.request, &mut self.out);
            let (used, event) = taken.map_err(|violation| violation.code())?;
            if used == 0 {
                assert!(event.is_none() && bytes.is_empty(), "an incomplete frame");
                return Ok(events);
            }
            bytes = &bytes[used..];
            events.extend(event.map(|event| exercise::describe(&event, &self.request)));
        }
    }

    /// Returns the frames that the server has sent since the last call.
    fn frames(&mut self) -> Vec<String> {
        exercise::describe_frames(&std::mem::take(&mut self.out))
    }

    /// Returns a header block in one frame.
    fn headers(&mut self, stream: u32, flags: u8, lines: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        for (name, value) in lines {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            self.encoder.field(&mut block, name, value, Indexing::Field);
        }
        frame(kind::HEADERS, flags | flag::END_HEADERS, stream, &block)
    }

    fn get(&mut self, stream: u32) -> Vec<u8> {
        self.headers(stream, flag::END_STREAM, &GET)
    }

    fn post(&mut self, stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
        let lines = [&[(":method", "POST")], &GET[1..], more].concat();
        self.headers(stream, 0, &lines)
    }

    /// Begins a response with a head and content that is always there.
    fn respond(&mut self, slot: usize) {
        let head = |encoder: &mut Encoder, out: &mut Vec<u8>| encoder.status(out, 200);
        self.server.head(slot, false, &mut self.out, head);
        self.server.set_content(slot, true);
    }

    /// Ends a response without more content.
    fn end(&mut self, slot: usize) {
        self.server.data(slot, 0, true, &mut self.out);
        self.server.end(slot, &mut self.out);
    }

    /// Sends content of all streams as far as the windows permit, at most this many frames. Returns slots and lengths.
    fn content(&mut self, frames: usize) -> Vec<(usize, u32)> {
        let mut sent = Vec::new();
        while sent.len() < frames
            && let Some((slot, most)) = self.server.next()
        {
            self.server.data(slot, most, false, &mut self.out);
            self.out.extend(std::iter::repeat_n(0, most as usize));
            sent.push((slot, most));
        }
        sent
    }
}

const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/"),
    (":authority", "a.example"),
];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        length: payload.len() as u32,
        kind,
        flags,
        stream,
    };
    [&header.to_bytes()[..], payload].concat()
}

fn data(stream: u32, content: &[u8]) -> Vec<u8> {
    frame(kind::DATA, 0, stream, content)
}

fn last_data(stream: u32, content: &[u8]) -> Vec<u8> {
    frame(kind::DATA, flag::END_STREAM, stream, content)
}

fn reset(stream: u32) -> Vec<u8> {
    frame(
        kind::RST_STREAM,
        0,
        stream,
        &ErrorCode::CANCEL.0.to_be_bytes(),
    )
}

fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

fn settings(changes: &[(u16, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    write::settings(&mut out, changes.iter().copied());
    out
}

#[test]
fn a_connection_begins_with_the_settings_of_both_sides() {
    let mut client = Client::before_settings(Options::default());
    let limits = "0 SETTINGS 3=128 4=16384 6=16384 9=1";
    // All windows, their growth, and what is released and not announced.
    let size = 128 * (16 << 10) + (2 << 20) + (128 << 10);
    let window = format!("0 WINDOW_UPDATE {}", size - 65_535);
    assert_eq!(client.frames(), [limits.to_owned(), window]);
    assert!(!client.server.has_begun() && client.server.awaits_settings());
    assert_eq!(client.send(PREFACE), Ok(vec![]));
    assert_eq!(client.send(&settings(&[(1, 100), (0x0a0a, 1)])), Ok(vec![]));
    assert_eq!(client.frames(), ["0 SETTINGS ack"]);
    assert_eq!(
        client.send(&frame(kind::SETTINGS, flag::ACK, 0, b"")),
        Ok(vec![])
    );
    assert!(client.server.has_begun() && !client.server.awaits_settings());
}

#[test]
fn a_request_with_content_and_trailers_is_received() {
    let mut client = Client::new(Options::default());
    let bytes = [
        client.post(1, &[("content-length", "7")]),
        data(1, b"con"),
        frame(kind::DATA, flag::PADDED, 1, b"\x02tentxx"),
        client.headers(1, flag::END_STREAM, &[("x-sum", "1")]),
    ]
    .concat();
    let events = [
        "request 0 POST /",
        "content 0 con",
        "content 0 tent",
        "trailers 0 x-sum: 1;",
    ];
    assert_eq!(client.send(&bytes), Ok(events.map(str::to_owned).to_vec()));
    assert_eq!(client.frames(), [""; 0]);
    let head = |encoder: &mut Encoder, out: &mut Vec<u8>| encoder.status(out, 204);
    client.server.head(0, true, &mut client.out, head);
    assert_eq!(client.frames(), ["1 HEADERS end"]);
    assert_eq!(client.server.open_streams(), 0);
}

#[test]
fn windows_are_opened_as_content_is_released() {
    let mut client = Client::new(Options::default());
    let post = client.post(1, &[]);
    client.send(&post).expect("a request");
    client
        .send(&data(1, &[0; 16 << 10]))
        .expect("content within the window");
    let more = client.send(&data(1, b"x"));
    assert_eq!(
        more,
        Ok(vec!["cancelled 0 3 window of the stream exceeded".into()])
    );
    client.frames();
    let post = client.post(3, &[]);
    client.send(&post).expect("a request");
    client
        .send(&data(3, &[0; 16 << 10]))
        .expect("content within the window");
    client.server.release(0, 4 << 10, &mut client.out);
    assert_eq!(client.frames(), [""; 0], "less than half of the window");
    client.server.release(0, 4 << 10, &mut client.out);
    assert_eq!(client.frames(), ["3 WINDOW_UPDATE 8192"]);
    let events = client.send(&last_data(3, &[0; 8 << 10]));
    assert!(events.is_ok_and(|events| events.len() == 1));
    client.server.release(0, 1 << 20, &mut client.out);
    assert_eq!(client.frames(), [""; 0], "the request has ended");
    for n in 2..9 {
        let post = client.post(2 * n + 1, &[]);
        client.send(&post).expect("a request");
        client
            .send(&last_data(2 * n + 1, &[0; 16 << 10]))
            .expect("content");
    }
    let updates: Vec<String> = (1..8)
        .flat_map(|slot| {
            client.server.release(slot, 16 << 10, &mut client.out);
            client.frames()
        })
        .collect();
    // The first two streams have released 40 KiB and a byte, so six further ones make 128 KiB.
    assert_eq!(updates, ["0 WINDOW_UPDATE 139265"]);
}

#[test]
fn a_window_that_the_settings_reduce_is_opened_again() {
    let mut client = Client::before_settings(Options::default());
    let mut hello = PREFACE.to_vec();
    write::settings(&mut hello, std::iter::empty());
    client.send(&hello).expect("a preface");
    let post = client.post(1, &[]);
    client.send(&post).expect("a request");
    client.frames();
    // The client knows only the initial window of RFC 9113 6.9.2, and sends all of it before it sees the settings.
    for (length, updates) in [(48_000, vec!["1 WINDOW_UPDATE 48000"]), (17_535, vec![])] {
        for part in vec![0; length].chunks(16 << 10) {
            client.send(&data(1, part)).expect("content");
        }
        client.server.release(0, length as u32, &mut client.out);
        assert_eq!(client.frames(), updates);
    }
    let mut acknowledgement = Vec::new();
    write::settings_ack(&mut acknowledgement);
    client.send(&acknowledgement).expect("the acknowledgement");
    // Nothing else would tell the client that it may continue.
    assert_eq!(client.frames(), ["1 WINDOW_UPDATE 17535"]);
}

/// Sends and reads content until the window does not grow any more. Each window is consumed in `ms`. Returns the largest
/// increment of the stream's window.
fn upload(client: &mut Client, slot: usize, windows: usize, ms: u64) -> u32 {
    let id = 2 * slot as u32 + 1;
    let (mut window, mut most) = (16 << 10, 0);
    client.server.consume(slot, 0, &mut client.out);
    for _ in 0..windows {
        for frame in client.frames() {
            if let Some(increment) = frame.strip_prefix(&format!("{id} WINDOW_UPDATE ")) {
                let increment = increment.parse::<u32>().expect("a number");
                window += increment;
                most = most.max(increment);
            }
        }
        client.now_ms += ms;
        for _ in 0..window / 1024 {
            client.send(&data(id, &[0; 1024])).expect("content");
            client.server.consume(slot, 1024, &mut client.out);
        }
        window %= 1024;
    }
    most
}

#[test]
fn windows_of_streams_that_are_read_grow() {
    let mut client = Client::new(Options::default());
    for stream in [1, 3, 5] {
        let post = client.post(stream, &[]);
        client.send(&post).expect("a request");
    }
    let short = client.post(7, &[("content-length", "16000")]);
    client.send(&short).expect("a request");
    for slot in [0, 0, 3] {
        client.server.consume(slot, 0, &mut client.out);
    }
    // A request that fits into its window needs no larger one.
    assert_eq!(client.frames(), ["1 WINDOW_UPDATE 49151"]);
    client.send(&reset(1)).expect("a reset");
    let post = client.post(9, &[]);
    assert_eq!(client.send(&post), Ok(vec!["request 0 POST /".into()]));
    client.send(&reset(9)).expect("a reset");
    // A reader that takes a window in two seconds has one of 64 KiB, and a quick one has up to 1 MiB.
    assert_eq!(upload(&mut client, 1, 20, 2000), 49_151);
    let most = upload(&mut client, 2, 40, 200);
    assert!((512 << 10..=1 << 20).contains(&most), "{most}");
    // The growth of a stream that ends is there for the next one.
    client.send(&reset(5)).expect("a reset");
    let post = client.post(11, &[]);
    client.send(&post).expect("a request");
    client.frames();
    client.server.consume(2, 0, &mut client.out);
    assert_eq!(client.frames(), ["11 WINDOW_UPDATE 49151"]);
}

#[test]
fn the_growth_of_all_windows_together_is_limited() {
    let mut client = Client::new(Options::default());
    let mut sum = 0;
    for n in 0..100 {
        let id = 2 * n + 1;
        let post = client.post(id, &[]);
        client.send(&post).expect("a request");
        client.frames();
        client.server.consume(n as usize, 0, &mut client.out);
        for frame in client.frames() {
            let increment = frame.rsplit(' ').next().and_then(|n| n.parse::<u32>().ok());
            sum += increment.expect("a number");
        }
    }
    assert!((1 << 20..=2 << 20).contains(&sum), "{sum}");
    // Each stream fills its window, and none is read.
    for n in 0..100 {
        let frames = if n < 30 { 4 } else { 1 };
        let bytes = data(2 * n + 1, &[0; 16_000]).repeat(frames);
        client.send(&bytes).expect("content");
    }
    let post = client.post(201, &[]);
    client.send(&post).expect("a request");
    assert!(client.send(&last_data(201, &[0; 16 << 10])).is_ok());
}

#[test]
fn streams_that_are_not_read_hold_up_no_other_one() {
    let mut client = Client::new(Options::default());
    for n in 0..127 {
        let post = client.post(2 * n + 1, &[]);
        client.send(&post).expect("a request");
        client
            .send(&data(2 * n + 1, &[0; 16 << 10]))
            .expect("content");
    }
    let post = client.post(255, &[]);
    client.send(&post).expect("a request");
    for _ in 0..1000 {
        client.send(&data(255, &[0; 16 << 10])).expect("content");
        client.server.release(127, 16 << 10, &mut client.out);
    }
    // The windows that cancelled streams held are free again.
    for n in 0..127 {
        client.send(&reset(2 * n + 1)).expect("a reset");
    }
    client.frames();
    for n in 200..327 {
        let post = client.post(2 * n + 1, &[]);
        client.send(&post).expect("a request");
        client
            .send(&data(2 * n + 1, &[0; 16 << 10]))
            .expect("content");
    }
}

#[test]
fn a_response_is_limited_by_both_windows() {
    let mut client = Client::new(Options::default());
    client.send(&settings(&[(4, 1)])).expect("settings");
    let get = [client.get(1), client.get(3)].concat();
    client.send(&get).expect("requests");
    client.respond(0);
    assert_eq!(client.content(9), [(0, 1)]);
    assert!(client.server.awaits_window(0) && !client.server.awaits_window(1));
    client.send(&settings(&[(4, 3)])).expect("settings");
    assert_eq!(client.content(9), [(0, 2)]);
    client.send(&settings(&[(4, 0)])).expect("settings");
    client.send(&window_update(1, 3)).expect("an update");
    assert_eq!(client.content(9), [], "the window was negative");
    client.send(&window_update(1, 1 << 20)).expect("an update");
    let sent: u32 = client.content(99).iter().map(|(_, length)| length).sum();
    assert_eq!(sent, 65_535 - 3, "the window of the connection");
    assert!(client.server.awaits_window(0));
    client.send(&window_update(0, 10)).expect("an update");
    assert_eq!(client.content(9), [(0, 10)]);
    client.frames();
    // A frame without content needs no window.
    client.end(0);
    assert_eq!(client.frames(), ["1 DATA 0 end"]);
    assert_eq!(client.server.open_streams(), 1);
}

#[test]
fn streams_send_by_priority() {
    let mut client = Client::new(Options::default());
    client.send(&window_update(0, 1 << 20)).expect("an update");
    for (stream, priority) in [(1, "u=5"), (3, "i"), (5, "i"), (7, "u=1")] {
        let lines = [&GET[..], &[("priority", priority)]].concat();
        let get = client.headers(stream, flag::END_STREAM, &lines);
        client.send(&get).expect("a request");
        client.respond((stream / 2) as usize);
    }
    let slots =
        |sent: Vec<(usize, u32)>| sent.into_iter().map(|(slot, _)| slot).collect::<Vec<_>>();
    let sent = slots(client.content(9));
    assert_eq!(
        sent[..5],
        [3, 3, 3, 3, 3],
        "65,535 bytes of the most urgent one"
    );
    assert_eq!(sent[5..], [1, 2, 1, 2]);
    let update = [&3u32.to_be_bytes()[..], b"u=6"].concat();
    client
        .send(&frame(kind::PRIORITY_UPDATE, 0, 0, &update))
        .expect("an update");
    assert_eq!(slots(client.content(5)), [2, 2, 2, 0, 0]);
    client.server.set_content(0, false);
    assert_eq!(slots(client.content(1)), [1]);
}

/// Returns a client that has got a complete response to a request that it still sends, on stream 1.
fn responded_early() -> Client {
    let mut client = Client::new(Options::default());
    let post = client.post(1, &[]);
    client.send(&post).expect("a request");
    client
        .send(&data(1, &[0; 16 << 10]))
        .expect("content that nobody reads");
    client.respond(0);
    client.end(0);
    let frames = client.frames();
    assert_eq!(
        frames,
        ["1 HEADERS", "1 DATA 0 end", "1 WINDOW_UPDATE 16384"]
    );
    assert_eq!(client.server.open_streams(), 0);
    client
}

#[test]
fn the_rest_of_a_request_is_discarded_after_its_response() {
    // The request ends in time.
    for ends in [true, false] {
        let mut client = responded_early();
        let until = client.server.lingers_until_ms();
        assert_eq!(until, Some(Options::default().linger_ms));
        for _ in 0..10 {
            assert_eq!(client.send(&data(1, &[0; 16 << 10])), Ok(vec![]));
        }
        let rest = match ends {
            true => last_data(1, b"x"),
            false => client.headers(1, flag::END_STREAM, &[("x-late", "1")]),
        };
        assert_eq!(client.send(&rest), Ok(vec![]));
        assert_eq!(client.server.lingers_until_ms(), None);
        assert!(client.frames().iter().all(|frame| frame.contains("UPDATE")));
        let get = client.get(3);
        let events = client.send(&get);
        assert_eq!(events, Ok(vec!["request 0 GET / ends".into()]));
    }
    // The client cancels it, or sends what it may not send.
    let mut client = responded_early();
    assert_eq!(client.send(&reset(1)), Ok(vec![]));
    assert_eq!(client.server.lingers_until_ms(), None);
    let mut client = responded_early();
    let events = client.send(&data(1, &[0; 16 << 10]).repeat(9));
    assert_eq!(events, Ok(vec![]));
    let events = client.send(&window_update(1, 0));
    assert!(events.is_ok_and(|events| events[0].starts_with("refused")));
    assert_eq!(client.server.lingers_until_ms(), None);
    // The slot stays in use until the request has ended.
    let mut client = responded_early();
    let get = client.get(3);
    assert_eq!(client.send(&get), Ok(vec!["request 1 GET / ends".into()]));
    // A shutdown does not wait for it.
    client.server.end_shutdown(&mut client.out);
    client.respond(1);
    client.end(1);
    assert!(client.server.is_done());
}

#[test]
fn a_request_that_does_not_end_after_its_response_is_reset() {
    let mut client = responded_early();
    let until = client.server.lingers_until_ms().expect("a time");
    client.server.set_now(until - 1);
    client.server.end_lingering(&mut client.out);
    assert_eq!(client.frames(), [""; 0]);
    client.server.set_now(until);
    client.server.end_lingering(&mut client.out);
    assert_eq!(client.frames(), ["1 RST_STREAM 0"]);
    assert_eq!(client.server.lingers_until_ms(), None);
    let mut client = responded_early();
    for _ in 0..(256 << 10) / (16 << 10) {
        assert!(
            client
                .frames()
                .iter()
                .all(|frame| !frame.contains("RST_STREAM"))
        );
        assert_eq!(client.send(&data(1, &[0; 16 << 10])), Ok(vec![]));
    }
    let frames = client.frames();
    assert!(frames.contains(&"1 RST_STREAM 0".to_owned()), "{frames:?}");
    // Frames that were on their way are ignored, and the window of the connection is opened again.
    for _ in 0..400 {
        assert_eq!(client.send(&data(1, &[0; 16 << 10])), Ok(vec![]));
    }
    assert!(
        client
            .frames()
            .iter()
            .all(|frame| frame.starts_with("0 WINDOW_UPDATE"))
    );
    let trailers = client.headers(1, flag::END_STREAM, &[("x-late", "1")]);
    assert_eq!(client.send(&trailers), Ok(vec![]));
    let get = client.headers(
        3,
        flag::END_STREAM,
        &[&GET[..], &[("x-late", "1")]].concat(),
    );
    assert_eq!(
        client.send(&get),
        Ok(vec!["request 0 GET / ends".into()]),
        "tables are in step"
    );
}

#[test]
fn a_shutdown_loses_no_request() {
    let mut client = Client::new(Options::default());
    let get = client.get(1);
    client.send(&get).expect("a request");
    client.server.begin_shutdown(&mut client.out);
    client.server.begin_shutdown(&mut client.out);
    let frames = client.frames();
    assert_eq!(frames, ["0 GOAWAY 2147483647 0", "0 PING shutdown"]);
    // A request that was on its way is processed.
    let get = client.get(3);
    assert_eq!(client.send(&get), Ok(vec!["request 1 GET / ends".into()]));
    client
        .send(&frame(kind::PING, flag::ACK, 0, &SHUTDOWN_PING))
        .expect("an answer");
    assert_eq!(client.frames(), ["0 GOAWAY 3 0"]);
    let ignored = [
        client.post(5, &[]),
        data(5, b"x"),
        window_update(5, 1),
        reset(5),
    ]
    .concat();
    assert_eq!(client.send(&ignored), Ok(vec![]));
    assert!(!client.server.is_done());
    for slot in 0..2 {
        client.respond(slot);
        client.end(slot);
    }
    assert!(client.server.is_done());
    client.frames();
    client
        .server
        .close(&Violation::protocol("x"), &mut client.out);
    assert_eq!(
        client.frames(),
        ["0 GOAWAY 3 1"],
        "the number does not grow"
    );
}

#[test]
fn an_idle_connection_is_small() {
    let mut client = Client::new(Options::default());
    for n in 0..64 {
        let get = client.get(2 * n + 1);
        client.send(&get).expect("a request");
    }
    for slot in 0..64 {
        client.respond(slot);
        client.end(slot);
    }
    client.server.rest();
    let bytes = size_of::<Server>() + client.server.memory();
    assert!(bytes <= 1200, "{bytes}");
}

/// The reaction to a violation.
#[derive(Debug, PartialEq)]
enum Reaction {
    Connection(ErrorCode),
    Stream(u32, ErrorCode),
}

use Reaction::{Connection, Stream};

/// Checks the reaction to frames that follow two requests: one whose content is open on stream 1, and one that has ended
/// on stream 3.
fn check(name: &str, bytes: &[u8], expected: &Reaction) {
    let mut client = Client::new(Options::default());
    let requests = [client.post(1, &[]), client.get(3)].concat();
    client.send(&requests).expect("requests");
    let sent = client.send(bytes);
    let found = match sent {
        Err(code) => Some(Connection(code)),
        Ok(_) => client.frames().iter().find_map(|frame| {
            let (stream, code) = frame.split_once(" RST_STREAM ")?;
            let code = ErrorCode(code.parse().expect("a code"));
            Some(Stream(stream.parse().expect("a stream"), code))
        }),
    };
    assert_eq!(found.as_ref(), Some(expected), "{name}");
    // The connection still serves other streams after an error of a stream.
    if let Stream(..) = expected {
        let get = frame(kind::HEADERS, 5, 101, b"\x82\x87\x84\x41\x01a");
        let events = client.send(&get).expect("a request");
        assert_eq!(events.len(), 1, "{name}");
    }
}

#[test]
fn violations_of_states_have_the_errors_of_rfc_9113() {
    const PROTOCOL: ErrorCode = ErrorCode::PROTOCOL_ERROR;
    const CLOSED: ErrorCode = ErrorCode::STREAM_CLOSED;
    const FLOW: ErrorCode = ErrorCode::FLOW_CONTROL_ERROR;
    const SIZE: ErrorCode = ErrorCode::FRAME_SIZE_ERROR;
    let get = |stream| frame(kind::HEADERS, 5, stream, b"\x82\x87\x84\x41\x01a");
    let open = |stream| frame(kind::HEADERS, 4, stream, b"\x83\x87\x84\x41\x01a");
    let after_reset = |frame: Vec<u8>| [reset(1), frame].concat();
    for (name, bytes, expected) in [
        (
            "DATA on an idle stream",
            data(5, b"x"),
            Connection(PROTOCOL),
        ),
        (
            "DATA on a stream of the server",
            data(2, b"x"),
            Connection(PROTOCOL),
        ),
        (
            "RST_STREAM on an idle stream",
            reset(5),
            Connection(PROTOCOL),
        ),
        (
            "WINDOW_UPDATE on an idle stream",
            window_update(5, 1),
            Connection(PROTOCOL),
        ),
        (
            "CONTINUATION on an idle stream",
            frame(kind::CONTINUATION, 4, 5, b""),
            Connection(PROTOCOL),
        ),
        ("DATA after the end", data(3, b"x"), Stream(3, CLOSED)),
        ("trailers after the end", get(3), Stream(3, CLOSED)),
        (
            "DATA after a reset",
            after_reset(data(1, b"x")),
            Stream(1, CLOSED),
        ),
        (
            "request after a reset",
            after_reset(get(1)),
            Connection(CLOSED),
        ),
        (
            "lower stream",
            [get(9), get(7)].concat(),
            Connection(PROTOCOL),
        ),
        ("stream of the server", get(8), Connection(PROTOCOL)),
        ("trailers without an end", open(1), Stream(1, PROTOCOL)),
        ("pseudo-header in trailers", get(1), Stream(1, PROTOCOL)),
        (
            "stream depends on itself",
            frame(
                kind::HEADERS,
                0x25,
                5,
                b"\0\0\0\x05\x10\x82\x87\x84\x41\x01a",
            ),
            Stream(5, PROTOCOL),
        ),
        (
            "PRIORITY depends on itself",
            frame(kind::PRIORITY, 0, 1, b"\0\0\0\x01\x10"),
            Stream(1, PROTOCOL),
        ),
        (
            "PRIORITY depends on itself, idle",
            frame(kind::PRIORITY, 0, 5, b"\0\0\0\x05\x10"),
            Connection(PROTOCOL),
        ),
        (
            "length of PRIORITY",
            frame(kind::PRIORITY, 0, 1, b"\0\0\0\0"),
            Stream(1, SIZE),
        ),
        (
            "stream window by 0",
            window_update(1, 0),
            Stream(1, PROTOCOL),
        ),
        (
            "connection window by 0",
            window_update(0, 0),
            Connection(PROTOCOL),
        ),
        (
            "stream window too large",
            window_update(1, WINDOW_MAX),
            Stream(1, FLOW),
        ),
        (
            "connection window too large",
            window_update(0, WINDOW_MAX),
            Connection(FLOW),
        ),
        (
            "initial window too large for a stream",
            [
                window_update(1, WINDOW_MAX - 65_535),
                settings(&[(4, 65_536)]),
            ]
            .concat(),
            Connection(FLOW),
        ),
        (
            "initial window invalid",
            settings(&[(4, 1 << 31)]),
            Connection(FLOW),
        ),
        ("push invalid", settings(&[(2, 2)]), Connection(PROTOCOL)),
        (
            "frame size invalid",
            settings(&[(5, 16_383)]),
            Connection(PROTOCOL),
        ),
        (
            "unexpected acknowledgement",
            frame(kind::SETTINGS, flag::ACK, 0, b""),
            Connection(PROTOCOL),
        ),
        (
            "header block",
            frame(kind::HEADERS, 5, 5, b"\xff\xff\xff\xff\xff\xff"),
            Connection(ErrorCode::COMPRESSION_ERROR),
        ),
        (
            "frame too large",
            frame(kind::DATA, 0, 1, &[0; 16_385]),
            Connection(SIZE),
        ),
        (
            "more content than declared",
            [
                frame(kind::HEADERS, 4, 5, b"\x83\x87\x84\x41\x01a\x5c\x011"),
                data(5, b"xy"),
            ]
            .concat(),
            Stream(5, PROTOCOL),
        ),
        (
            "less content than declared",
            [
                frame(kind::HEADERS, 4, 5, b"\x83\x87\x84\x41\x01a\x5c\x013"),
                last_data(5, b"xy"),
            ]
            .concat(),
            Stream(5, PROTOCOL),
        ),
        (
            "no content, although declared",
            frame(kind::HEADERS, 5, 5, b"\x83\x87\x84\x41\x01a\x5c\x013"),
            Stream(5, PROTOCOL),
        ),
        (
            "missing :path",
            frame(kind::HEADERS, 5, 5, b"\x82\x87\x41\x01a"),
            Stream(5, PROTOCOL),
        ),
        (
            "extended CONNECT that is not announced",
            frame(
                kind::HEADERS,
                4,
                5,
                b"\x02\x07CONNECT\x87\x84\x41\x01a\0\x09:protocol\x09websocket",
            ),
            Stream(5, PROTOCOL),
        ),
    ] {
        check(name, &bytes, &expected);
    }
}

#[test]
fn too_many_streams_are_refused_and_large_heads_reported() {
    let mut options = Options::default();
    options.limits.streams = 2;
    let mut client = Client::new(options);
    let large = "x".repeat(17 << 10);
    let lines = [&GET[..], &[("x", &large)]].concat();
    let requests = [
        client.get(1),
        client.headers(3, flag::END_STREAM, &GET),
        client.get(5),
    ]
    .concat();
    let refused = "refused too many streams";
    let events = ["request 0 GET / ends", "request 1 GET / ends", refused];
    assert_eq!(
        client.send(&requests),
        Ok(events.map(str::to_owned).to_vec())
    );
    assert_eq!(client.frames(), ["5 RST_STREAM 7"]);
    client.send(&reset(1)).expect("a reset");
    let mut block = Vec::new();
    write::headers(&mut block, 7, true, 16_384, |out| {
        client.encoder.begin(out);
        for (name, value) in &lines {
            client
                .encoder
                .field(out, name.as_bytes(), value.as_bytes(), Indexing::Without);
        }
    });
    let events = client.send(&block).expect("a request");
    assert_eq!(events, ["request 0 too large ends"]);
}

/// Sends frames until the connection ends or the limit is reached. Returns the number of frames.
fn flood(mut client: Client, limit: u32, mut next: impl FnMut(&mut Client, u32) -> Vec<u8>) -> u32 {
    for n in 0..limit {
        let bytes = next(&mut client, n);
        match client.send(&bytes) {
            Ok(_) => client.out.clear(),
            Err(code) => {
                assert_eq!(code, ErrorCode::ENHANCE_YOUR_CALM);
                return n;
            }
        }
    }
    limit
}

#[test]
fn floods_end_the_connection() {
    let open = |client: &mut Client| {
        let requests = [client.post(1, &[]), client.get(3)].concat();
        client.send(&requests).expect("requests");
        client.respond(1);
    };
    for (name, bytes) in [
        ("PING", frame(kind::PING, 0, 0, b"12345678")),
        (
            "answers to no PING",
            frame(kind::PING, flag::ACK, 0, b"12345678"),
        ),
        ("SETTINGS", settings(&[])),
        ("PRIORITY", frame(kind::PRIORITY, 0, 99, b"\0\0\0\0\x10")),
        (
            "PRIORITY_UPDATE",
            frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x03u=1"),
        ),
        ("empty DATA", data(1, b"")),
        (
            "padding without content",
            frame(kind::DATA, flag::PADDED, 1, b"\0"),
        ),
        ("small windows of the connection", window_update(0, 1)),
        (
            "WINDOW_UPDATE on a closed stream",
            [reset(1), window_update(1, 1 << 20)].concat()[13..].to_vec(),
        ),
        ("unknown frames", frame(0x42, 0, 0, b"")),
        ("GOAWAY", frame(kind::GOAWAY, 0, 0, &[0; 8])),
        ("large SETTINGS", settings(&[(4, 1); 2000])),
    ] {
        let mut client = Client::new(Options::default());
        open(&mut client);
        if name == "WINDOW_UPDATE on a closed stream" {
            client.send(&reset(1)).expect("a reset");
        }
        let frames = flood(client, 10_000, |_, _| bytes.clone());
        assert!(frames <= 1100, "{name}: {frames}");
    }
    let frames = flood(Client::new(Options::default()), 10_000, |client, n| {
        // The client reads one byte at a time.
        if n == 0 {
            let get = client.get(1);
            return [settings(&[(4, 0)]), get].concat();
        }
        if n == 1 {
            client.respond(0);
        }
        client.content(1);
        window_update(1, 1)
    });
    assert!(frames <= 250, "windows of one byte: {frames}");
}

#[test]
fn requests_that_are_cancelled_end_the_connection() {
    let id = |n: u32| 2 * n + 1;
    let resets = flood(Client::new(Options::default()), 10_000, |client, n| {
        [client.get(id(n)), reset(id(n))].concat()
    });
    assert!(resets <= 300, "rapid reset: {resets}");
    let made = flood(Client::new(Options::default()), 10_000, |client, n| {
        [client.get(id(n)), window_update(id(n), 0)].concat()
    });
    assert!(made <= 300, "resets by this side: {made}");
    let refused = flood(Client::new(Options::default()), 10_000, |client, n| {
        client.get(id(n))
    });
    assert!(refused <= 128 + 300, "refused streams: {refused}");
    let malformed = flood(Client::new(Options::default()), 10_000, |client, n| {
        client.headers(id(n), flag::END_STREAM, &GET[..3])
    });
    assert!(malformed <= 300, "malformed requests: {malformed}");
}

#[test]
fn ordinary_clients_are_not_taken_for_floods() {
    let mut client = Client::new(Options::default());
    for n in 0..20_000 {
        let id = 2 * n + 1;
        let get = client.get(id);
        // A page is left after 100 requests, all of which are cancelled.
        let bytes = match n % 400 {
            0..100 => [get, reset(id)].concat(),
            _ => [get, window_update(id, 100), window_update(0, 50_000)].concat(),
        };
        let events = client.send(&bytes).expect("no flood");
        if events.len() == 1 {
            client.respond(0);
            for _ in 0..3 {
                client.server.data(0, 100, false, &mut client.out);
                client.send(&window_update(id, 100)).expect("no flood");
                client.send(&window_update(0, 100)).expect("no flood");
            }
            client.end(0);
        }
        client.out.clear();
        client.now_ms += 10;
    }
}

#[test]
fn clients_with_small_windows_that_read_quickly_are_not_taken_for_a_flood() {
    for window in [16_384, 32_768, 65_535] {
        let mut client = Client::new(Options::default());
        let bytes = [settings(&[(4, window)]), client.get(1)].concat();
        client.send(&bytes).expect("a request");
        client.respond(0);
        let mut received = 0;
        while received < 50 << 20 {
            let sent = client.content(1);
            let [(0, length @ 1..)] = sent[..] else {
                panic!("{window}: {sent:?}");
            };
            received += length;
            // Each frame is acknowledged at once, and no time passes.
            let opened = [window_update(1, length), window_update(0, length)].concat();
            client.send(&opened).expect("no flood");
            client.out.clear();
        }
    }
}

#[test]
fn frames_of_the_client_that_never_end_are_noticed() {
    let mut client = Client::new(Options::default());
    assert!(!client.server.is_within_frame());
    let post = client.post(1, &[]);
    client.send(&post).expect("a request");
    client
        .send(&data(1, b"xy")[..HEADER_LENGTH + 1])
        .expect("a part of a frame");
    assert!(client.server.is_within_frame());
    client.send(b"y").expect("the rest");
    assert!(!client.server.is_within_frame());
    let block = frame(kind::HEADERS, 0, 3, b"\x82");
    client.send(&block).expect("a part of a block");
    assert!(client.server.is_within_frame());
}

proptest::proptest! {
    #[test]
    fn any_frames_are_accepted_or_refused(
        frames in proptest::collection::vec(
            (0u8..12, 0u8..64, 0u32..12, proptest::collection::vec(proptest::prelude::any::<u8>(), 0..20)), 0..40,
        ),
    ) {
        let bytes: Vec<u8> = frames
            .into_iter()
            .flat_map(|(kind, flags, stream, payload)| match kind {
                // Complete requests are likely.
                10 | 11 => frame(kind::HEADERS, flags & 1 | 4, stream, b"\x83\x87\x84\x41\x01a"),
                kind => frame(kind, flags, stream, &payload),
            })
            .collect();
        exercise::server(&bytes);
    }
}
