//! Tests of origins that send malformed responses over HTTP/2. The client gets no part of such a head, no response looks
//! complete unless it is, and nothing is stored.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use sluice_lab::client::Reply;

use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, RESET, block, frame,
};
use super::malformed_fields::{FIELDS, LENGTHS};
use crate::harness::{Edge, Setup, assert_reason};

type Bytes = Vec<u8>;
type Named = (&'static str, fn(u32) -> Bytes);
type Script = Arc<dyn Fn(u32) -> Bytes + Send + Sync>;

/// An origin that answers each request with the frames that a script returns for its stream.
struct Scripted {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    script: Mutex<Script>,
    connections: AtomicUsize,
    requests: AtomicUsize,
}

impl Scripted {
    fn start() -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            script: Mutex::new(Arc::new(right)),
            connections: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
        });
        let own = shared.clone();
        // Each thread ends when the edge closes its connection, or with the test process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                own.connections.fetch_add(1, Ordering::SeqCst);
                let own = own.clone();
                thread::spawn(move || serve(stream, &own));
            }
        });
        Scripted { address, shared }
    }

    fn answer(&self, script: impl Fn(u32) -> Bytes + Send + Sync + 'static) {
        *self.shared.script.lock() = Arc::new(script);
    }

    fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Starts an edge that knows only this origin.
    fn edge(&self) -> Edge {
        let url = format!("h2c://{}", self.address);
        Setup::of_servers(vec![url]).workers(1).start()
    }
}

/// Answers the requests of a connection until it ends. `None`: it has ended.
fn serve(mut stream: TcpStream, shared: &Shared) -> Option<()> {
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface).ok()?;
    assert_eq!(preface, PREFACE);
    stream.write_all(&frame(4, 0, 0, b"")).ok()?;
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).ok()?;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b));
        let mut payload = vec![0; number(&header[..3]) as usize];
        stream.read_exact(&mut payload).ok()?;
        match header[3] {
            HEADERS => {
                shared.requests.fetch_add(1, Ordering::SeqCst);
                let script = shared.script.lock().clone();
                stream.write_all(&script(number(&header[5..]))).ok()?;
            }
            4 if header[4] == 0 => stream.write_all(&frame(4, 1, 0, b"")).ok()?,
            _ => {}
        }
    }
}

/// Returns the head of a response that a cache may store, with more fields.
fn head(stream: u32, ends: bool, more: &[(&[u8], &[u8])]) -> Bytes {
    let fields: [(&[u8], &[u8]); 2] = [(b":status", b"200"), (b"cache-control", b"max-age=3600")];
    let flags = if ends { END_STREAM } else { 0 };
    frame(
        HEADERS,
        END_HEADERS | flags,
        stream,
        &block(&[&fields[..], more].concat()),
    )
}

/// Returns a complete response.
fn right(stream: u32) -> Bytes {
    [
        head(stream, false, &[]),
        frame(DATA, END_STREAM, stream, b"right"),
    ]
    .concat()
}

/// Returns a response whose head consists of these fields alone.
fn only(stream: u32, fields: &[(&str, &str)]) -> Bytes {
    let head = frame(HEADERS, END_HEADERS, stream, &block(fields));
    [head, frame(DATA, END_STREAM, stream, b"wrong")].concat()
}

/// Asserts that no response is stored: the next request gets a correct one from the origin.
fn assert_not_stored(origin: &Scripted, edge: &Edge, target: &str, name: &str) {
    let before = origin.requests();
    origin.answer(right);
    let reply = edge.get(target, &[]);
    assert_eq!(
        (reply.status, &*reply.text()),
        (200, "right"),
        "after {name}"
    );
    assert!(origin.requests() > before, "{name} was stored");
}

/// Asserts that requests get a 502 because of the head of the response when the origin answers with this script.
fn assert_refused(edge: &Edge, origin: &Scripted, name: &str, script: &Script) {
    for target in ["/pass/x".to_owned(), format!("/{}", name.replace(' ', "-"))] {
        let script = script.clone();
        origin.answer(move |stream| script(stream));
        let reply = edge.get(&target, &[]);
        assert_eq!(reply.status, 502, "{name}");
        assert_reason(&reply, "bad-head");
        assert_eq!(reply.header("x-forged"), None);
        assert_not_stored(origin, edge, &target, name);
    }
}

/// Asserts the same of each of these scripts.
fn assert_all_refused(edge: &Edge, origin: &Scripted, all: &[Named]) {
    for &(name, script) in all {
        let script: Script = Arc::new(script);
        assert_refused(edge, origin, name, &script);
    }
}

/// Returns malformed heads of responses.
fn heads() -> Vec<(String, Script)> {
    let mut all: Vec<(String, Script)> = Vec::new();
    let plain: &[(&str, &[(&str, &str)])] = &[
        ("no fields", &[]),
        ("no status", &[("a", "b")]),
        ("an empty status", &[(":status", "")]),
        ("a status of two digits", &[(":status", "20")]),
        ("a status of four digits", &[(":status", "2000")]),
        ("a status below 100", &[(":status", "099")]),
        ("a signed status", &[(":status", "+20")]),
        ("a status with a text", &[(":status", "200 OK")]),
        ("a status of HTTP/1.1", &[(":status", "HTTP/1.1 200")]),
        ("a change of the protocol", &[(":status", "101")]),
        ("a second status", &[(":status", "200"), (":status", "200")]),
        ("a late status", &[("a", "b"), (":status", "200")]),
    ];
    for &(name, fields) in plain {
        all.push((
            name.to_owned(),
            Arc::new(move |stream| only(stream, fields)),
        ));
    }
    // Unlike a request, a response may have Host.
    for &(name, field, value) in FIELDS.iter().filter(|field| field.1 != b"host") {
        all.push((
            name.to_owned(),
            Arc::new(move |stream| {
                let fields: [(&[u8], &[u8]); 2] = [(field, value), (b"x-forged", b"1")];
                let content = frame(DATA, END_STREAM, stream, b"right");
                [head(stream, false, &fields), content].concat()
            }),
        ));
    }
    // The others are a head and content that differ.
    for &(name, values) in LENGTHS.iter().filter(|lengths| !is_number(lengths.1)) {
        all.push((
            name.to_owned(),
            Arc::new(move |stream| sized(stream, values, END_STREAM)),
        ));
    }
    all
}

/// Whether a list of lengths is one number.
fn is_number(lengths: &[&[u8]]) -> bool {
    matches!(lengths, [one] if !one.is_empty() && one.len() < 20 && one.iter().all(u8::is_ascii_digit))
}

/// Returns a response of five bytes with these values of Content-Length.
fn sized(stream: u32, lengths: &[&[u8]], flags: u8) -> Bytes {
    let fields: Vec<(&[u8], &[u8])> = lengths
        .iter()
        .map(|length| (&b"content-length"[..], *length))
        .collect();
    [
        head(stream, false, &fields),
        frame(DATA, flags, stream, b"wrong"),
    ]
    .concat()
}

#[test]
fn malformed_heads_are_faults_of_the_origin() {
    let origin = Scripted::start();
    let edge = origin.edge();
    let all = heads();
    assert!(all.len() > 70, "{}", all.len());
    for (name, script) in &all {
        assert_refused(&edge, &origin, name, script);
    }
    // All of these are errors of a stream.
    assert_eq!(origin.connections(), 1);
}

#[test]
fn other_frames_in_place_of_a_head_are_faults_of_the_origin() {
    let origin = Scripted::start();
    let edge = origin.edge();
    let of_stream: [Named; 5] = [
        ("content before the head", |stream| {
            frame(DATA, END_STREAM, stream, b"wrong")
        }),
        ("an interim response that is the last one", |stream| {
            let fields = block(&[(":status", "103")]);
            frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields)
        }),
        ("a malformed interim response", |stream| {
            let fields = block(&[(":status", "103"), ("connection", "close")]);
            [frame(HEADERS, END_HEADERS, stream, &fields), right(stream)].concat()
        }),
        ("a malformed head after an interim response", |stream| {
            let interim = frame(HEADERS, END_HEADERS, stream, &block(&[(":status", "103")]));
            [
                interim,
                only(stream, &[(":status", "200"), ("upgrade", "h2c")]),
            ]
            .concat()
        }),
        ("a declared length without content", |stream| {
            head(stream, true, &[(b"content-length", b"5")])
        }),
    ];
    assert_all_refused(&edge, &origin, &of_stream);
    assert_eq!(origin.connections(), 1);
    let of_connection: [Named; 9] = [
        ("a response of HTTP/1.1", |_| {
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong".to_vec()
        }),
        ("a response on another stream", |stream| right(stream + 2)),
        ("a response on a stream of the server", |_| right(2)),
        ("a promise", |stream| {
            frame(5, END_HEADERS, stream, b"\0\0\0\x02")
        }),
        ("the rest of no head", |stream| {
            frame(CONTINUATION, END_HEADERS, stream, b"\x88")
        }),
        ("content within a head", |stream| {
            [
                frame(HEADERS, 0, stream, b"\x88"),
                frame(DATA, END_STREAM, stream, b"wrong"),
            ]
            .concat()
        }),
        ("a field of an empty table", |stream| {
            frame(HEADERS, END_HEADERS | END_STREAM, stream, b"\x88\xbe")
        }),
        ("more padding than a head", |stream| {
            frame(HEADERS, 0xd, stream, b"\xc8\x88")
        }),
        ("a head larger than a frame", |stream| {
            frame(HEADERS, END_HEADERS, stream, &[0; 16_385])
        }),
    ];
    assert_all_refused(&edge, &origin, &of_connection);
}

#[test]
fn heads_without_bound_are_faults_of_the_origin() {
    let origin = Scripted::start();
    let edge = origin.edge();
    let all: [Named; 3] = [
        ("interim responses without end", |stream| {
            let interim = frame(HEADERS, END_HEADERS, stream, &block(&[(":status", "103")]));
            interim.repeat(3000)
        }),
        ("a head too long", |stream| {
            let fields = block(&[
                (":status".to_owned(), "200".to_owned()),
                ("a".to_owned(), "b".repeat(200_000)),
            ]);
            let mut parts = fields.chunks(16_000).peekable();
            let mut bytes = frame(HEADERS, 0, stream, parts.next().expect("a part"));
            while let Some(part) = parts.next() {
                let flags = if parts.peek().is_none() {
                    END_HEADERS
                } else {
                    0
                };
                bytes.extend(frame(CONTINUATION, flags, stream, part));
            }
            bytes
        }),
        ("a head of too many frames", |stream| {
            let more = frame(CONTINUATION, 0, stream, b"");
            [frame(HEADERS, 0, stream, b"\x88"), more.repeat(100)].concat()
        }),
    ];
    assert_all_refused(&edge, &origin, &all);
}

/// Asserts that a response is not complete: either it is cut, or the fault was found before its head was sent.
fn assert_cut(reply: &Reply, name: &str) {
    match reply.status {
        502 => assert_reason(reply, "bad-body"),
        200 => assert!(reply.truncated(), "{name}: {reply:?}"),
        _ => panic!("{name}: {reply:?}"),
    }
}

// The head is correct, and the content or the trailers are not.
#[test]
fn malformed_content_cuts_the_response() {
    let origin = Scripted::start();
    let edge = origin.edge();
    let mut all: Vec<(String, Script)> = Vec::new();
    for &(name, values) in LENGTHS.iter().filter(|lengths| is_number(lengths.1)) {
        all.push((
            name.to_owned(),
            Arc::new(move |stream| sized(stream, values, END_STREAM)),
        ));
    }
    for &(name, field, value) in FIELDS {
        all.push((
            format!("{name} in trailers"),
            Arc::new(move |stream| {
                let fields: [(&[u8], &[u8]); 2] = [(b"x-sum", b"1"), (field, value)];
                let trailers = frame(HEADERS, END_HEADERS | END_STREAM, stream, &block(&fields));
                [
                    head(stream, false, &[]),
                    frame(DATA, 0, stream, b"wrong"),
                    trailers,
                ]
                .concat()
            }),
        ));
    }
    let others: [Named; 4] = [
        ("a length in trailers", |stream| {
            let trailers = block(&[("content-length", "5")]);
            let trailers = frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailers);
            [
                head(stream, false, &[]),
                frame(DATA, 0, stream, b"wrong"),
                trailers,
            ]
            .concat()
        }),
        ("trailers without an end", |stream| {
            let trailers = frame(HEADERS, END_HEADERS, stream, &block(&[("a", "b")]));
            [
                head(stream, false, &[]),
                frame(DATA, 0, stream, b"wrong"),
                trailers,
            ]
            .concat()
        }),
        ("a second head", |stream| {
            [
                head(stream, false, &[]),
                frame(DATA, 0, stream, b"wrong"),
                right(stream),
            ]
            .concat()
        }),
        ("trailers in place of content", |stream| {
            let trailers = frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                stream,
                &block(&[("a", "b")]),
            );
            [head(stream, false, &[(b"content-length", b"5")]), trailers].concat()
        }),
    ];
    for (name, script) in others {
        all.push((name.to_owned(), Arc::new(script)));
    }
    for (name, script) in all {
        for target in ["/pass/x".to_owned(), format!("/{}", name.replace(' ', "-"))] {
            let script = script.clone();
            origin.answer(move |stream| script(stream));
            assert_cut(&edge.get(&target, &[]), &name);
            assert_not_stored(&origin, &edge, &target, &name);
        }
    }
    assert_eq!(origin.connections(), 1);
}

// A response to HEAD, and responses without content, end with their head. Content after it belongs to nothing.
#[test]
fn content_where_none_is_permitted_is_never_delivered() {
    let origin = Scripted::start();
    let edge = origin.edge();
    let cases: [(&str, &str); 3] = [("HEAD", "200"), ("GET", "204"), ("GET", "304")];
    for (method, status) in cases {
        let fields = [
            (":status", status),
            ("cache-control", "max-age=3600"),
            ("content-length", "5"),
        ];
        origin.answer(move |stream| only(stream, &fields));
        let mut client = edge.client();
        let target = format!("/pass/{method}/{status}");
        let reply = client.request(method, &target, &[], b"");
        let reply = reply.unwrap_or_else(|error| panic!("{method} {status}: {error}"));
        match reply.status {
            502 => assert!(
                ["bad-head", "bad-body"]
                    .iter()
                    .any(|reason| reply.text().contains(reason))
            ),
            other => assert_eq!(
                (other.to_string(), reply.body.len()),
                (status.to_owned(), 0)
            ),
        }
        assert_not_stored(&origin, &edge, &target, method);
    }
}

// The server resets the stream after a complete response, which only means that the rest of the request is not needed
// (RFC 9113 8.1).
#[test]
fn a_reset_after_a_complete_response_changes_nothing() {
    let origin = Scripted::start();
    let edge = origin.edge();
    origin.answer(|stream| [right(stream), frame(RESET, 0, stream, b"\0\0\0\0")].concat());
    for target in ["/pass/x", "/x"] {
        let reply = edge.get(target, &[]);
        assert_eq!((reply.status, &*reply.text()), (200, "right"), "{target}");
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_reset_within_the_content_cuts_the_response() {
    let origin = Scripted::start();
    let edge = origin.edge();
    for target in ["/pass/x", "/x"] {
        origin.answer(|stream| {
            let part = frame(DATA, 0, stream, b"part");
            let reset = frame(RESET, 0, stream, b"\0\0\0\x02");
            [head(stream, false, &[]), part, reset].concat()
        });
        let reply = edge.get(target, &[]);
        let is_cut = reply.status == 502 || reply.truncated() && b"part".starts_with(&reply.body);
        assert!(is_cut, "{target}: {reply:?}");
        assert_not_stored(&origin, &edge, target, "a reset");
    }
}
