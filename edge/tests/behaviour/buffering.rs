//! Tests of `request_buffering` and `response_buffering`: slow clients hold no connections to the origin.

use sluice_lab::offset::offset_bytes;
use sluice_lab::origin::{Fault, Framing, Latch, Origin, Resource};

use crate::bodies::assert_trailer;
use crate::harness::{Edge, SOON, Setup, assert_reason, eventually, fresh, origin, serving};

/// Starts an edge whose only route has these lines.
fn routed(origin: &Origin, lines: &str, more: &str) -> Edge {
    let text = Setup::uncached(origin).workers(1).text();
    let route = format!("[[site.route]]\n{lines}\n");
    Setup::of_text(text.replace("[[site.route]]\n", &route) + more).start()
}

/// Whether the edge never connected to the origin.
pub fn no_connection(origin: &Origin) -> bool {
    origin.connections().is_empty()
}

#[test]
fn a_slow_upload_holds_no_connection_to_the_origin() {
    let origin = serving("/x", Resource::status(200));
    let edge = routed(&origin, "request_buffering = true", "");
    let body = offset_bytes(0, 300_000);
    let mut client = edge.client();
    let head = format!(
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.send_raw(head.as_bytes()).expect("sent");
    client.send_raw(&body[..200_000]).expect("sent");
    let buffered = || edge.buffers("bytes") >= 200_000;
    eventually("the beginning is in memory", buffered);
    assert!(no_connection(&origin), "the body is not complete");
    client.send_raw(&body[200_000..]).expect("sent");
    assert_eq!(client.read_response().expect("a reply").status, 200);
    let seen = &origin.requests()[0];
    assert!(seen.body_complete && seen.body_is_offset);
    assert_eq!(seen.header("content-length"), Some("300000"));
    eventually("the memory is released", || edge.buffers("bytes") == 0);
    assert_eq!(edge.counter("requests_buffered"), 1);
}

#[test]
fn buffered_bodies_have_a_length_or_trailers_and_answer_expect() {
    let origin = serving("/x", Resource::status(200));
    let edge = routed(&origin, "request_buffering = true", "");
    let mut client = edge.client();
    let head = "POST /x HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n";
    let body = "5\r\nhello\r\n0\r\n";
    client
        .send_raw(format!("{head}\r\n{body}\r\n").as_bytes())
        .expect("sent");
    assert_eq!(client.read_response().expect("a reply").status, 200);
    client
        .send_raw(format!("{head}\r\n{body}X-Sum: 42\r\n\r\n").as_bytes())
        .expect("sent");
    assert_eq!(client.read_response().expect("a reply").status, 200);
    client
        .send_raw(format!("{head}Expect: 100-continue\r\n\r\n").as_bytes())
        .expect("sent");
    assert_eq!(client.read_head().expect("a head").status, 100);
    client
        .send_raw(format!("{body}\r\n").as_bytes())
        .expect("sent");
    assert_eq!(client.read_response().expect("a reply").status, 200);
    let seen = origin.requests();
    assert_eq!(seen[0].header("content-length"), Some("5"));
    assert_eq!(seen[1].header("content-length"), None);
    if seen[1].stream.is_none() {
        assert_eq!(seen[1].header("transfer-encoding"), Some("chunked"));
    }
    assert_eq!(seen[2].header("content-length"), Some("5"));
    assert!(seen.iter().all(|seen| seen.body_complete));
}

#[test]
fn a_body_without_room_is_refused() {
    let origin = serving("/x", Resource::status(200));
    let lines = "request_buffering = true";
    let edge = routed(&origin, lines, "[buffers]\nmemory = \"1MiB\"\n");
    // The declared length never fits.
    let reply = edge.ask("POST", "/x", &[], &[0; 600_000]);
    assert_eq!(reply.status, 413);
    assert_reason(&reply, "request-body-too-large");
    // The first upload takes most of the client's share, so the second has no room.
    let head = |length: usize| {
        format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n").into_bytes()
    };
    let mut first = edge.client();
    first.send_raw(&head(400_000)).expect("sent");
    first.send_raw(&[0; 399_999]).expect("sent");
    eventually("the first one is in memory", || {
        edge.buffers("bytes") >= 399_999
    });
    let reply = edge.ask("POST", "/x", &[], &[0; 300_000]);
    assert_eq!(reply.status, 503);
    assert_reason(&reply, "buffers-full");
    assert_eq!(edge.counter("requests_over_buffers"), 1);
    assert!(no_connection(&origin));
    first.send_raw(&[0]).expect("sent");
    assert_eq!(first.read_response().expect("a reply").status, 200);
}

const BUFFERED: &str = "request_buffering = true\nresponse_buffering = true";

#[test]
fn trailers_pass_in_both_directions_with_buffering() {
    let response = Resource::offset(100)
        .framing(Framing::Chunked(30))
        .trailer("X-Response", "43");
    let origin = serving("/x", response);
    let edge = routed(&origin, BUFFERED, "");
    let mut client = edge.client();
    let request = "POST /x HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\
                   Trailer: X-Request\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5\r\nhello\r\n0\r\nX-Request: 42\r\n\r\n";
    client.send_raw(request.as_bytes()).expect("sent");
    let reply = client.read_response().expect("a reply");
    reply.verify_whole(100).expect("the body");
    assert_eq!(reply.trailers, [("x-response".to_owned(), "43".to_owned())]);
    assert_trailer(&origin, "x-request", "42");
}

#[test]
fn interim_responses_arrive_before_the_final_head_with_buffering() {
    let latch = Latch::closed();
    let resource = fresh(10)
        .interim(102, &[])
        .interim(103, &[("Link", "</a.css>; rel=preload")])
        .hold_head(&latch);
    let origin = serving("/x", resource);
    let edge = routed(&origin, BUFFERED, "");
    let mut client = edge.client();
    for _ in 0..2 {
        client.send("POST", "/x", &[], b"content").expect("sent");
        assert_eq!(client.read_head().expect("a 102").status, 102);
        let hint = client.read_head().expect("a 103");
        assert_eq!(
            (hint.status, hint.header("link")),
            (103, Some("</a.css>; rel=preload"))
        );
        latch.release();
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(10).expect("the body");
        latch.advance_to(0);
    }
}

#[test]
fn a_client_that_leaves_releases_its_buffers() {
    let origin = serving("/x", Resource::status(200));
    let edge = routed(&origin, "request_buffering = true", "");
    let mut client = edge.client();
    client
        .send_raw(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx")
        .expect("sent");
    eventually("the beginning is in memory", || edge.buffers("bytes") > 0);
    client.reset().expect("reset");
    eventually("the memory is released", || edge.buffers("bytes") == 0);
    assert!(no_connection(&origin));
}

/// Waits until the response to the only request for `/x` is read, although its client does not read.
pub fn is_read(origin: &Origin) {
    let done = origin.wait_for(
        |record| record.open_connections() == 0 && record.count("/x") == 1,
        SOON,
    );
    assert!(done, "the response is read");
}

#[test]
fn a_slow_reader_holds_no_connection_to_the_origin() {
    const LENGTH: u64 = 30_000_000;
    for framing in [Framing::Length, Framing::Chunked(10_000)] {
        let origin = serving("/x", Resource::offset(LENGTH).framing(framing).close());
        let edge = routed(&origin, "response_buffering = true", "");
        let mut client = edge.slow_reader();
        client.send("GET", "/x", &[], b"").expect("sent");
        is_read(&origin);
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(LENGTH).expect("the body");
        eventually("the memory is released", || edge.buffers("bytes") == 0);
        assert_eq!(edge.counter("responses_buffered"), 1);
    }
}

#[test]
fn a_buffered_response_that_breaks_stays_truncated() {
    let cut = Fault::CutBody {
        after: 400_000,
        ending: sluice_lab::origin::Ending::Fin,
    };
    let origin = serving("/x", Resource::offset(500_000).fault(cut));
    let edge = routed(&origin, "response_buffering = true", "");
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    assert!(client.read_response().is_ok_and(|reply| reply.truncated()));
    let held = || edge.buffers("bytes") == 0;
    eventually("the memory is released", held);
}

// Without room, the client's reads determine how fast the response is read.
#[test]
fn a_response_without_room_is_streamed() {
    const LENGTH: u64 = 20_000_000;
    let origin = serving("/x", Resource::offset(LENGTH));
    let lines = "response_buffering = true";
    let edge = routed(&origin, lines, "[buffers]\nmemory = \"1MiB\"\n");
    let mut client = edge.slow_reader();
    client.send("GET", "/x", &[], b"").expect("sent");
    eventually("the buffers are full", || edge.buffers("bytes") > 400_000);
    assert!(edge.buffers("bytes") <= 512 << 10);
    client
        .read_response()
        .expect("a reply")
        .verify_whole(LENGTH)
        .expect("the body");
}

#[test]
fn a_buffered_route_passes_events_at_once_and_small_responses() {
    let origin = origin();
    let latch = sluice_lab::origin::Latch::at(1000);
    origin.serve("/x", Resource::offset(2000).hold_body(&latch));
    origin.serve("/small", fresh(10));
    let lines = "response_buffering = true\nrequest_buffering = true";
    let edge = routed(&origin, lines, "");
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    client.read_head().expect("a head");
    assert_eq!(client.read_some(1000).expect("the first half").len(), 1000);
    latch.release();
    assert_eq!(client.read_some(1000).expect("the second half").len(), 1000);
    edge.get("/small", &[]).verify_whole(10).expect("the body");
    let reply = edge.ask("POST", "/small", &[], b"x");
    reply.verify_whole(10).expect("the body");
}
