//! Tests of request bodies, with a length or chunked, with `Expect: 100-continue` or without.
//! Origins respond before or after they have read the body.

use std::thread;
use std::time::Instant;

use sluice_lab::offset::offset_bytes;
use sluice_lab::origin::{Framing, Latch, Origin, Resource};

use crate::harness::{
    SOON, Setup, assert_has_parameter, eventually, fresh, serving, wait_for_requests,
};

/// Encodes a body in chunks of `size` bytes, followed by these trailers.
fn chunked(body: &[u8], size: usize, trailers: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in body.chunks(size) {
        out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    out
}

#[test]
fn a_body_with_a_length_arrives_whole_and_is_not_cached() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin).start();
    let body = offset_bytes(0, 1_500_000);
    for method in ["PUT", "POST", "GET"] {
        origin.reset_record();
        for _ in 0..2 {
            let reply = edge.ask(method, "/x", &[], &body);
            reply.verify_whole(10).expect("an answer");
        }
        let seen = origin.requests();
        assert_eq!(seen.len(), 2, "{method}: neither was answered from memory");
        for one in seen {
            assert!(one.body_complete && one.body_is_offset, "{method}");
            assert_eq!(one.header("content-length"), Some("1500000"));
            assert_eq!(one.header("transfer-encoding"), None);
        }
    }
    assert_has_parameter(&edge.ask("GET", "/x", &[], b"x"), "detail=request-body");
}

#[test]
fn a_chunked_body_arrives_whole_with_its_trailers() {
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::cached(&origin).with_http1_servers().start();
    let body = offset_bytes(0, 300_000);
    let head =
        "POST /x HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n";
    let trailers = "X-Sum: 42\r\n";
    let mut client = edge.client();
    for size in [300_000, 10_000, 977] {
        let request = [head.as_bytes(), &chunked(&body, size, trailers)].concat();
        client.send_raw(&request).expect("sent");
        assert_eq!(client.read_response().expect("a reply").status, 200);
    }
    for seen in origin.requests() {
        assert!(seen.body_complete && seen.body_is_offset);
        assert_eq!(seen.body_length, 300_000);
        assert_eq!(seen.header("transfer-encoding"), Some("chunked"));
        assert_eq!(seen.header("content-length"), None);
    }
    let received = String::from_utf8_lossy(&origin.connections()[0].received).to_lowercase();
    assert!(received.contains("trailer: x-sum\r\n"), "announced");
}

// A client can't have the edge send the origin a segment for each byte.
#[test]
fn small_chunks_are_gathered_before_they_are_sent_to_the_origin() {
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::uncached(&origin).with_http1_servers().start();
    let body = offset_bytes(0, 30_000);
    let head = "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut client = edge.client();
    let request = [head.as_bytes(), &chunked(&body, 1, "")].concat();
    client.send_raw(&request).expect("sent");
    assert_eq!(client.read_response().expect("a reply").status, 200);
    let seen = &origin.requests()[0];
    assert!(seen.body_complete && seen.body_is_offset);
    assert_eq!(seen.body_length, 30_000);
    let received = origin.connections()[0].received.len();
    let framing = received - seen.raw_head.len() - 30_000;
    assert!(framing < 3000, "{framing} bytes of chunk framing");
}

// The client sends each byte in a segment of its own. After the first pieces, the edge sends a small
// piece every 2 ms at most, and larger pieces at once.
#[test]
fn single_bytes_in_segments_of_their_own_are_gathered() {
    const BYTES: usize = 100_000;
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::uncached(&origin).with_http1_servers().start();
    let body = offset_bytes(0, BYTES);
    let mut client = edge.client();
    client.stream().set_nodelay(true).expect("a TCP socket");
    let head = "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send_raw(head.as_bytes()).expect("sent");
    let began = Instant::now();
    for piece in chunked(&body, 1, "").chunks(6) {
        client.send_raw(piece).expect("sent");
    }
    assert_eq!(client.read_response().expect("a reply").status, 200);
    let took = began.elapsed();
    let seen = &origin.requests()[0];
    assert!(seen.body_complete && seen.body_is_offset);
    let received = origin.connections()[0].received.len();
    let framing = received - seen.raw_head.len() - BYTES;
    let most = 32 + took.as_millis() as usize / 2 + BYTES / 1024 + 10;
    // A chunk of one byte has five bytes of framing, and larger ones more.
    assert!(
        framing / 5 <= 2 * most,
        "{framing} bytes of framing in {took:?}"
    );
}

#[test]
fn slow_single_bytes_reach_the_origin_one_by_one() {
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::uncached(&origin).start();
    let mut client = edge.client();
    let head = "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send_raw(head.as_bytes()).expect("sent");
    for n in 1..=100 {
        client.send_raw(b"1\r\nx\r\n").expect("sent");
        eventually("the byte reaches the origin", || {
            origin
                .requests()
                .first()
                .is_some_and(|seen| seen.body_length == n)
        });
    }
    client.send_raw(b"0\r\n\r\n").expect("sent");
    assert_eq!(client.read_response().expect("a reply").status, 200);
}

/// Asserts that the first request of the origin ended with this trailer.
pub fn assert_trailer(origin: &Origin, name: &str, value: &str) {
    let seen = origin.requests().remove(0);
    if seen.stream.is_some() {
        assert_eq!(seen.trailers, [(name.to_owned(), value.to_owned())]);
        return;
    }
    let received = String::from_utf8_lossy(&origin.connections()[0].received).to_lowercase();
    let end = format!("0\r\n{name}: {value}\r\n\r\n");
    assert!(received.ends_with(&end), "{received}");
}

#[test]
fn trailers_of_a_request_are_forwarded() {
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::uncached(&origin).start();
    let head =
        "POST /x HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut client = edge.client();
    let request = [head.as_bytes(), &chunked(b"hello", 5, "X-Sum: 42\r\n")].concat();
    client.send_raw(&request).expect("sent");
    client.read_response().expect("a reply");
    assert_trailer(&origin, "x-sum", "42");
}

// The edge sends 100 Continue only once the origin's side needs the body.
#[test]
fn a_client_that_expects_100_continue_receives_it() {
    let origin = serving("/echo", Resource::echo());
    let edge = Setup::uncached(&origin).start();
    let mut client = edge.client();
    for framing in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let head =
            format!("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{framing}\r\n\r\n");
        client.send_raw(head.as_bytes()).expect("sent");
        assert_eq!(client.read_head().expect("a head").status, 100);
        let body = match framing.starts_with('C') {
            true => b"hello".to_vec(),
            false => chunked(b"hello", 2, ""),
        };
        client.send_raw(&body).expect("sent");
        assert_eq!(client.read_response().expect("a reply").text(), "hello");
    }
    let asked = origin.requests();
    assert!(asked.iter().all(|seen| seen.header("expect").is_none()));
}

// A client that sends its body without waiting for 100 receives none. Neither does a client whose
// request is refused.
#[test]
fn no_100_continue_is_sent_when_it_is_useless() {
    let origin = serving("/echo", Resource::echo());
    let edge = Setup::uncached(&origin).limits("body = 100").start();
    let mut client = edge.client();
    let eager =
        "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello";
    client.send_raw(eager.as_bytes()).expect("sent");
    let reply = client.read_response().expect("a reply");
    assert_eq!((reply.interim.len(), reply.text().as_str()), (0, "hello"));
    let refused = edge.send_raw(
        b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 101\r\n\r\n",
    );
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
}

// The origin responds before it has read the whole body. The client receives the response all the
// same.
#[test]
fn an_early_response_reaches_the_client() {
    let origin = serving(
        "/x",
        Resource::bytes("no room").with_status(507).answer_early(),
    );
    let edge = Setup::uncached(&origin)
        .in_clear_text()
        .limits("body = 0")
        .start();
    let mut client = edge.client();
    let head = "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n";
    client.send_raw(head.as_bytes()).expect("sent");
    let mut sender = client.stream().try_clone().expect("another handle");
    let uploading = thread::spawn(move || {
        use std::io::Write;
        let piece = vec![b'x'; 64 << 10];
        // The upload ends when the edge stops reading and the socket's buffer is full.
        while sender.write_all(&piece).is_ok() {}
    });
    let reply = client.read_response().expect("a reply");
    assert_eq!((reply.status, reply.text().as_str()), (507, "no room"));
    drop(client);
    uploading.join().expect("the upload ended");
}

// The client disconnects during an upload. The origin must be able to see that the body is
// incomplete.
#[test]
fn an_upload_that_breaks_off_does_not_look_whole() {
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::uncached(&origin).start();
    for head in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
        let mut client = edge.client();
        let request = format!("POST /x HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n5\r\nhel");
        client.send_raw(request.as_bytes()).expect("sent");
        client.finish_sending().expect("half closed");
        let closing = client.read_to_end().expect("an end");
        let answer = String::from_utf8_lossy(&closing).into_owned();
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
            "{answer}"
        );
    }
    let over = |record: &sluice_lab::origin::Record| record.is_left();
    assert!(
        origin.wait_for(over, SOON),
        "the origin is not left waiting"
    );
    assert!(origin.requests().iter().all(|seen| !seen.body_complete));
}

// The origin sends its response while the client is still sending the request body.
#[test]
fn bodies_stream_both_ways_at_once() {
    let origin = serving("/echo", Resource::echo());
    let edge = Setup::uncached(&origin).start();
    let mut client = edge.client();
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send_raw(head.as_bytes()).expect("sent");
    client.send_raw(b"3\r\none\r\n").expect("sent");
    assert_eq!(client.read_head().expect("a head").status, 200);
    assert_eq!(client.read_some(8).expect("a chunk"), b"3\r\none\r\n");
    client.send_raw(b"5\r\nthree\r\n").expect("sent");
    assert_eq!(client.read_some(10).expect("a chunk"), b"5\r\nthree\r\n");
    client.send_raw(b"0\r\n\r\n").expect("sent");
    assert_eq!(client.read_some(5).expect("the end"), b"0\r\n\r\n");
}

// Trailers of a response reach only clients that accept them with `TE: trailers`.
#[test]
fn trailers_of_a_response_are_forwarded() {
    let resource = Resource::offset(100)
        .framing(Framing::Chunked(30))
        .trailer("X-Sum", "42");
    let origin = serving("/x", resource);
    let edge = Setup::uncached(&origin).start();
    let takes = [("TE", "trailers"), ("Connection", "TE")];
    let mut client = edge.client();
    let reply = client.get("/x", &takes).expect("a reply");
    reply.verify_whole(100).expect("the body");
    assert_eq!(reply.trailers, [("x-sum".to_owned(), "42".to_owned())]);
    let reply = edge.get("/x", &[]);
    reply.verify_whole(100).expect("the body");
    assert!(reply.trailers.is_empty());
}

// Some clients merge trailers into the headers, so a route that removes or replaces a header removes
// the trailer, too.
#[test]
fn trailers_of_a_response_obey_the_edits_of_its_headers() {
    let resource = Resource::offset(100)
        .framing(Framing::Chunked(30))
        .trailer("X-Sum", "42")
        .trailer("X-Secret", "1")
        .trailer("X-Set", "theirs");
    let origin = serving("/x", resource);
    let setup = Setup::uncached(&origin);
    let route = "[[site.route]]\n";
    let edits = "response_headers = { remove = [\"X-Secret\"], set = { X-Set = \"ours\" } }\n";
    let text = setup.text().replace(route, &format!("{route}{edits}"));
    let edge = Setup::of_text(text).start();
    let takes = [("TE", "trailers"), ("Connection", "TE")];
    let mut client = edge.client();
    let reply = client.get("/x", &takes).expect("a reply");
    reply.verify_whole(100).expect("the body");
    assert_eq!(reply.header("x-set"), Some("ours"));
    assert_eq!(reply.trailers, [("x-sum".to_owned(), "42".to_owned())]);
}

// The client resets its connection while the origin prepares the response. The edge then closes its
// connection to the origin.
#[test]
fn a_request_is_cancelled_when_its_client_disconnects() {
    let latch = Latch::closed();
    let origin = serving("/x", Resource::status(200).hold_head(&latch));
    let edge = Setup::uncached(&origin).start();
    let mut client = edge.client();
    client.send("POST", "/x", &[], b"hello").expect("sent");
    wait_for_requests(&origin, "/x", 1);
    client.reset().expect("a socket");
    let left = |record: &sluice_lab::origin::Record| record.is_left();
    assert!(origin.wait_for(left, SOON));
}

// The origin responds before it has read a small request body. The edge reads the rest of the body,
// so that the connection can be used again.
#[test]
fn an_unread_request_body_does_not_close_the_connection() {
    let origin = serving("/x", Resource::bytes("no").with_status(403).answer_early());
    origin.serve("/y", fresh(10));
    let edge = Setup::uncached(&origin).start();
    let mut client = edge.client();
    for _ in 0..5 {
        let reply = client
            .request("POST", "/x", &[], &[b'x'; 20_000])
            .expect("a reply");
        assert_eq!((reply.status, reply.text().as_str()), (403, "no"));
        if reply.header("connection") == Some("close") {
            client = edge.client();
        }
        let next = client.get("/y", &[]).expect("a reply");
        next.verify_whole(10).expect("in step");
    }
}
