//! Tests of the checks of responses, and of the connections on which unexpected ones arrive.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use super::*;
use crate::raw_http2::Frames;

fn ranges(origin: &Origin, streams: Option<usize>, resource: Resource) -> LoadResult {
    origin.serve("/x", resource);
    run(LoadPlan {
        choice: Choice::Ranges { size: 10 },
        streams,
        ..plan(origin.addr(), "/x", 1, 6)
    })
    .expect("a result")
}

#[test]
fn the_range_of_a_response_is_checked() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let range = |value: &str| Fault::ContentRange(value.to_owned());
    for streams in [None, Some(1)] {
        for wrong in [
            range("bytes 1-10/1000"),
            range("bytes 0-9/5"),
            range("bytes 0-10/1000"),
            range("bytes 0-8/1000"),
            range("bytes */1000"),
            range("nonsense"),
            Fault::NoContentRange,
            Fault::ShiftRange(3),
        ] {
            let text = format!("{wrong:?}");
            let resource = Resource::offset(1000).fault(wrong);
            let result = ranges(&origin, streams, resource);
            let errors = result.errors;
            assert_eq!((errors.range, errors.total()), (6, 6), "{text}: {result:?}");
            assert_eq!((result.connects, result.requests), (1, 0), "{text}");
        }
        // The last range may be shorter than the requested one.
        let result = ranges(&origin, streams, Resource::offset(7));
        assert_eq!((result.requests, result.bytes), (6, 42), "{result:?}");
    }
}

#[test]
fn a_body_has_the_length_of_its_range() {
    for framing in ["Content-Length: 9", "Transfer-Encoding: chunked"] {
        let body = match framing.starts_with('C') {
            true => "123456789",
            false => "9\r\n123456789\r\n0\r\n\r\n",
        };
        let head = "HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-9/1000\r\n";
        let target = repeated(format!("{head}{framing}\r\n\r\n{body}").into_bytes());
        let result = run(LoadPlan {
            choice: Choice::Seeks { size: 10 },
            ..plan(target, "/", 1, 3)
        })
        .expect("a result");
        let errors = result.errors;
        assert_eq!((errors.length, errors.total()), (3, 3), "{framing}");
    }
}

#[test]
fn a_part_without_a_request_for_one_and_a_whole_in_place_of_a_part_are_wrong_statuses() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    origin.serve("/whole", Resource::offset(1000).ranges(false));
    for streams in [None, Some(1)] {
        let result = ranges(&origin, streams, Resource::offset(1000).ranges(false));
        assert_eq!((result.errors.status, result.errors.total()), (6, 6));
        assert_eq!(result.statuses, [(200, 6)].into());
        // A whole response may be expected.
        let result = run(LoadPlan {
            choice: Choice::Ranges { size: 10 },
            streams,
            expect_status: Some(200),
            ..plan(origin.addr(), "/whole", 1, 3)
        })
        .expect("a result");
        assert_eq!((result.requests, result.bytes), (3, 3000), "{result:?}");
        origin.serve("/part", Resource::offset(10).with_status(206));
        let result = run(LoadPlan {
            streams,
            ..plan(origin.addr(), "/part", 1, 4)
        })
        .expect("a result");
        assert_eq!((result.errors.status, result.errors.total()), (4, 4));
        assert_eq!(result.statuses, [(206, 4)].into());
    }
}

#[test]
fn a_connection_is_kept_after_complete_responses_that_are_unexpected() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let error = |framing| Resource::offset(5000).framing(framing).with_status(503);
    for (resource, connects) in [
        (error(Framing::Length), 2),
        (error(Framing::Chunked(1000)), 2),
        // The connection ends with each of these bodies.
        (error(Framing::Close), 20),
    ] {
        origin.serve("/error", resource);
        let result = run(plan(origin.addr(), "/error", 2, 20)).expect("a result");
        assert_eq!((result.requests, result.errors.status), (0, 20));
        assert_eq!(result.statuses, [(503, 20)].into());
        assert_eq!(result.connects, connects, "{result:?}");
    }
    for change in [
        |plan: &mut LoadPlan| plan.expect_length = Some(7),
        |plan: &mut LoadPlan| plan.verify = true,
    ] {
        origin.serve("/wrong", Resource::offset(5000).version(1));
        let mut plan = plan(origin.addr(), "/wrong", 1, 10);
        change(&mut plan);
        let result = run(plan).expect("a result");
        let errors = result.errors;
        assert_eq!((errors.length + errors.content, errors.total()), (10, 10));
        assert_eq!(result.connects, 1);
    }
}

#[test]
fn the_first_failure_of_a_response_counts() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let cut = Fault::CutBody {
        after: 50,
        ending: Ending::Fin,
    };
    let resource = Resource::offset(1000).with_status(503).fault(cut);
    origin.serve("/x", resource);
    let result = run(plan(origin.addr(), "/x", 1, 5)).expect("a result");
    assert_eq!((result.errors.status, result.errors.total()), (5, 5));
    assert_eq!(result.connects, 5);
}

#[test]
fn ambiguous_heads_are_malformed() {
    for fields in [
        "Content-Length: +1",
        "Content-Length: 1\r\nContent-Length: 2",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Content-Length : 1",
    ] {
        let target = repeated(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nx").into_bytes());
        let result = run(plan(target, "/", 1, 3)).expect("a result");
        let errors = result.errors;
        assert_eq!((errors.malformed, errors.total()), (3, 3), "{fields}");
    }
    // The server closes the connection, as it has announced in one of the lines.
    let closing =
        "HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: y, close\r\nContent-Length: 1, 1";
    let target = repeated(format!("{closing}\r\n\r\nx").into_bytes());
    let result = run(plan(target, "/", 1, 3)).expect("a result");
    assert_eq!((result.requests, result.connects), (3, 3));
}

#[test]
fn http2_responses_without_content_may_have_a_length() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let not_modified = Resource::bytes("").with_status(304);
    origin.serve("/x", not_modified.header("Content-Length", "5000"));
    for streams in [None, Some(2)] {
        let result = run(LoadPlan {
            streams,
            expect_status: Some(304),
            ..plan(origin.addr(), "/x", 1, 5)
        })
        .expect("a result");
        assert_eq!((result.requests, result.bytes), (5, 0), "{result:?}");
    }
}

/// Answers each request with these bytes, on any number of connections.
fn repeated(answer: Vec<u8>) -> SocketAddr {
    server(move |mut stream| {
        let mut request = [0; 4096];
        while stream.read(&mut request).is_ok_and(|count| count > 0) {
            if stream.write_all(&answer).is_err() {
                break;
            }
        }
    })
}

/// Serves each connection on a thread of its own.
pub(super) fn server(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

#[test]
fn http2_differing_lengths_are_malformed() {
    let target = server(|mut stream| {
        let mut request = [0; 4096];
        let _ = stream.read(&mut request);
        let mut frames = Frames::new();
        frames.settings(&[]);
        // 200, and Content-Length twice.
        frames.header_block(1, b"\x88\x0f\x0d\x011\x0f\x0d\x012", false);
        frames.data(1, b"x", true);
        let _ = stream.write_all(frames.bytes());
        let _ = stream.read(&mut request);
    });
    let result = run(http2_plan(target, "/", 1, 1)).expect("a result");
    let errors = result.errors;
    assert_eq!((errors.malformed, errors.total()), (1, 1), "{errors:?}");
}
