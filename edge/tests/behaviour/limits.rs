//! Tests of the limits on a client's bytes, time and connections, and of the responses to clients
//! that exceed a limit.

use sluice_lab::client::{BodyEnd, Closing};
use sluice_lab::origin::{Latch, Resource};

use crate::harness::{SOON, Setup, eventually, fresh, origin, serving, wait_for_requests};

// A request line up to the limit is accepted, and a longer one is answered with 414.
#[test]
fn the_request_line_is_limited() {
    let origin = origin();
    origin.serve_rest(Resource::status(200));
    let edge = Setup::uncached(&origin)
        .limits("request_line = 512")
        .start();
    let line = |length: usize| {
        let path = "a".repeat(length - "GET / HTTP/1.1".len());
        format!("GET /{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    };
    let answer = edge.send_raw(line(512).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = edge.send_raw(line(513).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 414 "), "{answer}");
    assert_eq!(origin.requests().len(), 1);
}

// A request head up to the limit is accepted, and a longer one is answered with 431.
#[test]
fn the_head_is_limited() {
    let origin = origin();
    origin.serve_rest(Resource::status(200));
    let edge = Setup::uncached(&origin)
        .limits("headers = \"1KiB\"")
        .start();
    let head = |length: usize| {
        let fields = "Host: a\r\nConnection: close\r\nX-Long: ";
        let value = "v".repeat(length - fields.len() - "\r\n\r\n".len());
        format!("GET / HTTP/1.1\r\n{fields}{value}\r\n\r\n")
    };
    let answer = edge.send_raw(head(1024).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = edge.send_raw(head(1025).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(origin.requests().len(), 1);
}

// A head that is not complete within the time limit is answered with 408.
#[test]
fn a_head_has_a_time_limit() {
    let origin = origin();
    let edge = Setup::uncached(&origin)
        .limits("header_timeout = \"5s\"")
        .start();
    let begin = |begun: &'static str| {
        let mut client = edge.client();
        client.send_raw(begun.as_bytes()).expect("sent");
        (begun, client)
    };
    let clients = ["G", "GET / HTTP/1.1\r\nHost: a\r\n", "GET / HTTP/1.1\r\n\r"].map(begin);
    for (begun, mut client) in clients {
        let answer = client.read_to_end().expect("an end");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{begun:?}: {answer}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
    }
    assert_eq!(edge.counter("client_timeouts"), 3);
    assert!(origin.requests().is_empty());
}

#[test]
fn a_stalled_reader_is_cut_off() {
    let origin = serving("/x", Resource::offset(100 << 20));
    let edge = Setup::uncached(&origin)
        .limits("send_timeout = \"200ms\"")
        // The client's receive buffer is smaller than the first TLS record.
        .in_clear_text()
        .start();
    let mut client = edge.slow_reader();
    client.send("GET", "/x", &[], b"").expect("sent");
    eventually("the reader is cut", || {
        edge.counter("client_timeouts") == 1 && edge.counter("connections_now") == 0
    });
    let reply = client.read_response().expect("a head");
    assert!(reply.truncated(), "{:?}", reply.end);
    assert_eq!(edge.counter("responses_cut"), 1);
}

// The client reads so slowly that the kernel accepts no further data within the send timeout. The
// client's acknowledgements show progress, so it is not cut off.
#[test]
fn a_slow_and_steady_reader_is_not_cut_off() {
    let origin = serving("/x", Resource::offset(20 << 20));
    // The test reads from the socket itself.
    let edge = Setup::uncached(&origin)
        .with_http1()
        .limits("send_timeout = \"8s\"")
        .start();
    let mut client = edge.slow_reader();
    client.send("GET", "/x", &[], b"").expect("sent");
    let mut few = [0; 1000];
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(150));
        let read = std::io::Read::read(&mut client.stream(), &mut few);
        assert!(matches!(read, Ok(1..)), "{read:?}");
    }
    assert_eq!(edge.counter("client_timeouts"), 0);
}

// A client that reads one byte per second stays below `min_rate`.
#[test]
fn a_reader_below_the_minimum_rate_is_cut_off() {
    let origin = serving("/x", Resource::offset(100 << 20));
    let edge = Setup::uncached(&origin)
        .limits("min_rate = \"1GB\"\nmin_rate_grace = \"1s\"\nsend_timeout = \"1h\"")
        .start();
    let mut client = edge.slow_reader();
    client.send("GET", "/x", &[], b"").expect("sent");
    let mut read = 0;
    eventually("the reader is cut", || {
        read += client.read_some(1000).map_or(0, |bytes| bytes.len());
        edge.counter("client_timeouts") == 1
    });
    assert!(read < 90 << 20, "nearly all was read: {read}");
}

// Connections above the limit wait until another connection is closed.
#[test]
fn connections_are_limited() {
    let latch = Latch::closed();
    let origin = serving("/held", Resource::offset(5).hold_head(&latch));
    let edge = Setup::uncached(&origin)
        .in_clear_text()
        .workers(1)
        .limits("connections = 3")
        .start();
    let ask = |_| {
        let mut client = edge.client();
        client.send("GET", "/held", &[], b"").expect("sent");
        client
    };
    let mut clients: Vec<_> = (0..3).map(ask).collect();
    wait_for_requests(&origin, "/held", 3);
    let mut fourth = ask(3);
    let soon = std::time::Duration::from_millis(300);
    assert_eq!(fourth.wait_closed(soon).expect("a socket"), Closing::Open);
    assert_eq!(edge.counter("connections_now"), 3);
    assert_eq!(origin.requests().len(), 3);
    latch.release();
    for client in &mut clients {
        client.read_response().expect("a reply");
    }
    drop(clients);
    let reply = fourth.read_response().expect("a reply");
    reply.verify_whole(5).expect("it had its turn");
}

// Connections are at their limit. An idle one is closed in favour of a new one that has a request.
#[test]
fn idle_connections_make_room_for_new_ones() {
    let origin = serving("/x", fresh(5));
    let edge = Setup::cached(&origin)
        .workers(1)
        .limits("connections = 3")
        .start();
    let mut idle: Vec<_> = (0..3).map(|_| edge.client()).collect();
    for client in &mut idle {
        client.get("/x", &[]).expect("a reply");
    }
    let reply = edge.client().get("/x", &[]).expect("a reply");
    reply.verify_whole(5).expect("the body");
    let closed = idle[0].wait_closed(SOON).expect("a socket");
    assert_eq!(closed, Closing::Fin);
    assert!(edge.counter("connections_now") <= 3);
}

// A body above the limit is refused with 413, with Content-Length or without. The client receives
// the 413 although it is still sending.
#[test]
fn a_request_body_is_limited() {
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::uncached(&origin).limits("body = \"1KiB\"").start();
    let declared = edge.ask("PUT", "/x", &[], &[b'x'; 1025]);
    assert_eq!(declared.status, 413);
    assert!(origin.requests().is_empty(), "nothing reached the origin");
    let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
    let head = "PUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = edge.send_raw(format!("{head}{chunk}1\r\nx\r\n0\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let whole = origin.read_record(|record| record.requests.iter().any(|seen| seen.body_complete));
    assert!(!whole, "the origin got something that looks whole");
    assert_eq!(edge.ask("PUT", "/x", &[], &[b'x'; 1024]).status, 200);
    let mut client = edge.client();
    client
        .send_raw(format!("{head}{chunk}0\r\n\r\n").as_bytes())
        .expect("sent");
    assert_eq!(client.read_response().expect("a reply").status, 200);
}

// The client stops sending in the middle of the body. The response is 408.
#[test]
fn a_request_body_has_a_time_limit() {
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::uncached(&origin)
        .limits("body_timeout = \"2s\"")
        .start();
    for begun in [
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello",
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        let answer = edge.send_raw(begun.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    assert!(origin.requests().iter().all(|seen| !seen.body_complete));
}

// Each byte of the body arrives within the timeout, but the whole body arrives below `min_rate`.
#[test]
fn a_request_body_below_the_minimum_rate_is_cut_off() {
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::uncached(&origin)
        .limits("min_rate = \"1KiB\"\nmin_rate_grace = \"1s\"\nbody_timeout = \"1h\"")
        .start();
    let mut client = edge.client();
    let head = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    client.send_raw(head.as_bytes()).expect("sent");
    // The test sends one byte between two checks of the rate, which is far less than 1 KiB per
    // second.
    eventually("an answer", || {
        let sent = client.send_raw(b"x");
        let closing = client.wait_closed(std::time::Duration::from_millis(20));
        sent.is_err() || closing.expect("a socket") != Closing::Open
    });
    let reply = client.read_response().expect("a reply");
    assert_eq!((reply.status, reply.end), (408, BodyEnd::Complete));
}
