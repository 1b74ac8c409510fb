//! Tests of strict requests, as those of HTTP/1 (`crate::framing`): a malformed request is an error of its stream or of
//! the connection, as RFC 9113 names it, and never reaches an origin.

use sluice_lab::origin::{Latch, Origin, Record, Resource};

use super::both;
use super::frames::{
    COMPRESSION_ERROR, CONTINUATION, DATA, END_HEADERS, END_STREAM, FRAME_SIZE_ERROR, FrameClient,
    HEADERS, Outcome, PREFACE, PROTOCOL_ERROR, STREAM_CLOSED, block, frame, get, request,
};
use super::malformed;
use super::malformed_fields::Answer;
use crate::harness::{Edge, SOON, Setup, origin, serving, wait_for_requests};

/// Makes frames for a stream, of which some have this content.
type Frames = fn(u32, &[u8]) -> Vec<u8>;

/// Starts an origin that responds to every request.
fn anything() -> Origin {
    let origin = origin();
    origin.serve_rest(Resource::bytes("reached").cache_control("max-age=3600"));
    origin
}

/// Returns setups with an origin of HTTP/1.1 and one of HTTP/2, without a prefix for the paths that bypass the cache.
fn setups(origin: &Origin) -> [Setup; 2] {
    let http2 = origin.url("").replace("http:", "h2c:");
    [Setup::cached(origin), Setup::of_servers(vec![http2])].map(|setup| both(setup).workers(1))
}

/// Asserts that the origin has received no complete request other than the correct ones.
fn assert_untouched(origin: &Origin, name: &str) {
    origin.read_record(|record| {
        for connection in &record.connections {
            assert!(!connection.malformed, "{name}: {connection:?}");
        }
        for seen in &record.requests {
            let is_correct = seen.target == "/pass/correct";
            assert!(is_correct || !seen.body_complete, "{name}: {seen:?}");
        }
    });
}

/// Asserts that the connection continues with this stream.
fn assert_continues(client: &mut FrameClient, stream: u32, name: &str) {
    client.send(&request(stream, &get("/pass/correct")));
    let reached = Outcome::Body("reached".into());
    assert_eq!(client.outcome(stream), reached, "after {name}");
}

// More than 300 malformed requests, in one frame and in several. Each gets the expected error, and the connection
// continues.
#[test]
fn malformed_requests_get_their_error_and_reach_no_origin() {
    let all = malformed::all();
    assert!(all.len() > 300, "{}", all.len());
    let origin = anything();
    for setup in setups(&origin) {
        let edge = setup.start();
        for pieces in [1, 4] {
            let mut client = FrameClient::connect(&edge);
            for (stream, one) in (1..).step_by(4).zip(&all) {
                client.send(&one.frames(stream, pieces));
                let expected = match one.answer {
                    Answer::Reset => Outcome::Reset(PROTOCOL_ERROR),
                    Answer::Page(text) => Outcome::Body(format!("{text}\n")),
                };
                assert_eq!(client.outcome(stream), expected, "{}", one.name);
                assert_continues(&mut client, stream + 2, &one.name);
                assert_untouched(&origin, &one.name);
            }
        }
        let resets = all
            .iter()
            .filter(|one| matches!(one.answer, Answer::Reset))
            .count();
        assert_eq!(edge.counter("http2_connections"), 2);
        assert!(edge.counter("http2_resets_sent") >= 2 * resets as u64);
    }
}

/// Returns a HEADERS frame with a header block that ends the request.
fn headers(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, block)
}

/// Returns the header block of a request, and more bytes.
fn block_and(more: &[u8]) -> Vec<u8> {
    [&block(&get("/x")), more].concat()
}

/// Returns bytes after which the connection can't continue, with the code that RFC 9113 names.
fn fatal() -> Vec<(&'static str, Vec<u8>, u32)> {
    let padded = [&[200], &*block(&get("/x"))].concat();
    let open = frame(HEADERS, END_HEADERS, 1, &block(&get("/x")));
    let (first, rest) = padded[1..].split_at(10);
    let begun = |flags| frame(HEADERS, flags, 1, first);
    let continued = |stream| frame(CONTINUATION, END_HEADERS, stream, rest);
    let no_table = [&[0x20], &*block(&get("/x"))].concat();
    vec![
        ("a second preface", PREFACE.to_vec(), FRAME_SIZE_ERROR),
        (
            "a request of HTTP/1.1",
            b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            FRAME_SIZE_ERROR,
        ),
        (
            "a TLS hello",
            b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n".to_vec(),
            FRAME_SIZE_ERROR,
        ),
        (
            "a request on no stream",
            request(0, &get("/x")),
            PROTOCOL_ERROR,
        ),
        (
            "a request on a stream of the server",
            request(2, &get("/x")),
            PROTOCOL_ERROR,
        ),
        (
            "content on no stream",
            frame(DATA, END_STREAM, 0, b"hello"),
            PROTOCOL_ERROR,
        ),
        (
            "content before a request",
            frame(DATA, END_STREAM, 1, b"hello"),
            PROTOCOL_ERROR,
        ),
        (
            "a skipped stream",
            [request(3, &[]), request(1, &get("/x"))].concat(),
            PROTOCOL_ERROR,
        ),
        (
            "more padding than a head",
            frame(HEADERS, 0xd, 1, &padded),
            PROTOCOL_ERROR,
        ),
        (
            "more padding than content",
            [&*open, &frame(DATA, 0x9, 1, b"\x06hello")].concat(),
            PROTOCOL_ERROR,
        ),
        (
            "a head without its priority",
            frame(HEADERS, 0x25, 1, b"abcd"),
            FRAME_SIZE_ERROR,
        ),
        (
            "a head larger than a frame",
            headers(1, &[0; 16_385]),
            FRAME_SIZE_ERROR,
        ),
        (
            "a promise",
            frame(5, END_HEADERS, 1, b"\0\0\0\x02"),
            PROTOCOL_ERROR,
        ),
        ("the rest of no head", continued(1), PROTOCOL_ERROR),
        (
            "the rest of another head",
            [begun(END_STREAM), continued(3)].concat(),
            PROTOCOL_ERROR,
        ),
        (
            "content within a head",
            [begun(0), frame(DATA, 0, 1, b"hello"), continued(1)].concat(),
            PROTOCOL_ERROR,
        ),
        (
            "a request within a head",
            [begun(0), request(3, &get("/x")), continued(1)].concat(),
            PROTOCOL_ERROR,
        ),
        (
            "a field without an index",
            headers(1, &block_and(b"\x80")),
            COMPRESSION_ERROR,
        ),
        (
            "a field of an empty table",
            headers(1, &block_and(b"\xbe")),
            COMPRESSION_ERROR,
        ),
        (
            "a name of an empty table",
            headers(1, &block_and(b"\x7e\x01a")),
            COMPRESSION_ERROR,
        ),
        (
            "an index without an end",
            headers(1, &block_and(b"\xff\xff\xff\xff\xff\xff\xff")),
            COMPRESSION_ERROR,
        ),
        (
            "a field without a value",
            headers(1, &block_and(b"\0\x01a")),
            COMPRESSION_ERROR,
        ),
        (
            "a value longer than the block",
            headers(1, &block_and(b"\0\x01a\x05b")),
            COMPRESSION_ERROR,
        ),
        (
            "the end of a string in Huffman code",
            headers(1, &block_and(b"\0\x01a\x84\xff\xff\xff\xff")),
            COMPRESSION_ERROR,
        ),
        (
            "long padding in Huffman code",
            headers(1, &block_and(b"\0\x01a\x82\x1f\xff")),
            COMPRESSION_ERROR,
        ),
        (
            "padding of zeros in Huffman code",
            headers(1, &block_and(b"\0\x01a\x81\x18")),
            COMPRESSION_ERROR,
        ),
        (
            "a table larger than permitted",
            headers(1, &[b"\x3f\xe2\x1f", &no_table[1..]].concat()),
            COMPRESSION_ERROR,
        ),
        (
            "another table within a block",
            headers(1, &block_and(b"\x20")),
            COMPRESSION_ERROR,
        ),
        (
            "a field of an emptied table",
            [
                headers(1, &block_and(b"\x40\x01a\x01b")),
                headers(3, &[&no_table[..], b"\xbe"].concat()),
            ]
            .concat(),
            COMPRESSION_ERROR,
        ),
    ]
}

fn assert_fatal(edge: &Edge, origin: &Origin, name: &str, bytes: &[u8], code: u32) {
    let mut client = FrameClient::connect(edge);
    let smuggled = request(5, &get("/smuggled"));
    client.send(&[bytes, &smuggled].concat());
    client.assert_closed_with(code, name);
    assert_untouched(origin, name);
}

#[test]
fn errors_of_the_connection_end_it_and_reach_no_origin() {
    let origin = anything();
    for setup in setups(&origin) {
        let edge = setup.start();
        for (name, bytes, code) in fatal() {
            assert_fatal(&edge, &origin, name, &bytes, code);
        }
        let mut client = FrameClient::connect(&edge);
        assert_continues(&mut client, 1, "errors of other connections");
    }
    origin.read_record(|record| assert_eq!(record.count("/smuggled"), 0));
}

// A request is complete, and more follows on its stream while the response is awaited. In HTTP/1.1 these bytes would be
// another request.
#[test]
fn bytes_after_the_end_of_a_request_reset_its_stream() {
    let latch = Latch::closed();
    let origin = serving("/pass/x", Resource::bytes("reached").hold_head(&latch));
    origin.serve("/pass/correct", Resource::bytes("reached"));
    let hidden = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let more: [Frames; 3] = [
        |stream, hidden| frame(DATA, END_STREAM, stream, hidden),
        |stream, _| headers(stream, &block(&[("x-sum", "1")])),
        |stream, _| request(stream, &get("/smuggled")),
    ];
    let mut requests = 0;
    for setup in setups(&origin) {
        let edge = setup.start();
        let mut client = FrameClient::connect(&edge);
        for (stream, more) in (1..).step_by(4).zip(more) {
            client.send(&request(stream, &get("/pass/x")));
            requests += 1;
            wait_for_requests(&origin, "/pass/x", requests);
            client.send(&more(stream, hidden));
            assert_eq!(client.outcome(stream), Outcome::Reset(STREAM_CLOSED));
            assert_continues(&mut client, stream + 2, "bytes after the end");
        }
    }
    origin.read_record(|record| {
        assert_eq!(record.requests.len(), 2 * requests);
        assert_eq!(record.count("/smuggled"), 0);
        assert!(record.connections.iter().all(|one| !one.malformed));
    });
}

// The declared content has arrived, and the origin has the request. More content resets the stream and is not forwarded.
#[test]
fn content_beyond_its_declared_length_is_not_forwarded() {
    let latch = Latch::closed();
    let origin = serving("/pass/x", Resource::bytes("reached").hold_head(&latch));
    origin.serve("/pass/correct", Resource::bytes("reached"));
    let mut requests = 0;
    for setup in setups(&origin) {
        let edge = setup.start();
        let mut client = FrameClient::connect(&edge);
        for (stream, length) in (1..).step_by(4).zip([0, 5]) {
            let declared = length.to_string();
            let mut fields = get("/pass/x").to_vec();
            fields[0].1 = "POST";
            fields.push(("content-length", &declared));
            client.send(&frame(HEADERS, END_HEADERS, stream, &block(&fields)));
            let (content, more) = HIDDEN.split_at(length);
            client.send(&frame(DATA, 0, stream, content));
            requests += 1;
            let is_whole = |record: &Record| {
                let seen = record
                    .requests
                    .iter()
                    .filter(|seen| seen.target == "/pass/x");
                seen.filter(|seen| seen.body_complete).count() == requests
            };
            assert!(origin.wait_for(is_whole, SOON));
            client.send(&frame(DATA, END_STREAM, stream, more));
            assert_eq!(client.outcome(stream), Outcome::Reset(PROTOCOL_ERROR));
            assert_continues(&mut client, stream + 2, "content beyond its length");
            let last = origin
                .requests()
                .into_iter()
                .rfind(|seen| seen.target == "/pass/x");
            assert_eq!(last.expect("a request").body, content);
        }
    }
    origin.read_record(|record| {
        assert_eq!(record.requests.len(), 2 * requests);
        assert!(record.connections.iter().all(|one| !one.malformed));
    });
}

/// Content that contains a request, and would end chunked content before.
const HIDDEN: &[u8] = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

// The content of each request contains a second request. An origin must find exactly one request with all of the
// content, whether its length is known or not, and whatever its method.
#[test]
fn hidden_requests_are_content() {
    let origin = origin();
    origin.serve_rest(Resource::bytes("reached"));
    for setup in setups(&origin) {
        let edge = setup.start();
        let mut client = FrameClient::connect(&edge);
        let mut stream = 1;
        for method in ["POST", "GET", "HEAD", "OPTIONS", "DELETE", "PUT", "BREW"] {
            for declared in [false, true] {
                for piece in [1, 3, HIDDEN.len()] {
                    origin.reset_record();
                    client.send(&hiding(stream, method, declared, piece));
                    assert!(
                        matches!(client.outcome(stream), Outcome::Body(_)),
                        "{method}"
                    );
                    assert_one_request(&origin, method);
                    stream += 2;
                }
            }
        }
    }
}

/// Returns the frames of a request with hidden content, in DATA frames of this length.
fn hiding(stream: u32, method: &str, declared: bool, piece: usize) -> Vec<u8> {
    let length = HIDDEN.len().to_string();
    let mut fields = get("/pass/x").to_vec();
    fields[0].1 = method;
    if declared {
        fields.push(("content-length", &length));
    }
    let mut bytes = frame(HEADERS, END_HEADERS, stream, &block(&fields));
    for part in HIDDEN.chunks(piece) {
        bytes.extend(frame(DATA, 0, stream, part));
    }
    bytes.extend(frame(DATA, END_STREAM, stream, b""));
    bytes
}

fn assert_one_request(origin: &Origin, method: &str) {
    let is_whole = |record: &Record| {
        let last = record.requests.last();
        last.is_some_and(|seen| seen.body_complete)
    };
    assert!(origin.wait_for(is_whole, SOON), "{method}");
    origin.read_record(|record| {
        let [seen] = &record.requests[..] else {
            panic!("{method}: {:?}", record.requests);
        };
        assert_eq!(
            (&*seen.target, &*seen.body),
            ("/pass/x", HIDDEN),
            "{method}"
        );
        assert!(
            record.connections.iter().all(|one| !one.malformed),
            "{method}"
        );
    });
}
