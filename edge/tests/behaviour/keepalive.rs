//! Tests of persistent client connections: they serve many requests, and are closed when they
//! should be.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sluice_lab::client::Closing;
use sluice_lab::origin::{Latch, Resource};

use crate::harness::{
    SOON, Setup, assert_hit, eventually, fresh, origin, serving, wait_for_requests,
};

/// Returns this many pipelined requests for bodies of 1, 2, 3 … bytes.
fn pipeline(count: usize) -> Vec<u8> {
    let request = |n| format!("GET /offset/{n} HTTP/1.1\r\nHost: a.example\r\n\r\n");
    (1..=count).map(request).collect::<String>().into_bytes()
}

#[test]
fn many_requests_share_a_connection() {
    let origin = serving("/x", fresh(1000));
    let edge = Setup::cached(&origin).start();
    let mut client = edge.client();
    for _ in 0..5 {
        let reply = client.get("/x", &[]).expect("a reply");
        reply.verify_whole(1000).expect("the body");
        assert_eq!(reply.header("connection"), None);
    }
    assert_eq!(edge.counter("connections_accepted"), 1);
    assert_eq!(edge.counter("requests"), 5);
}

#[test]
fn the_keep_alive_timeout_is_sent_if_configured() {
    let origin = serving("/x", fresh(10));
    let setup = Setup::cached(&origin)
        .with_http1()
        .limits("keepalive_timeout = \"15s\"");
    let silent = setup.start().get("/x", &[]);
    assert_eq!(silent.header("keep-alive"), None);
    let telling = setup.limits("keepalive_header = true").start();
    let reply = telling.client().get("/x", &[]).expect("a reply");
    assert_eq!(reply.header("keep-alive"), Some("timeout=15"));
    assert_eq!(reply.header("connection"), Some("keep-alive"));
    let last = telling.get("/x", &[]);
    assert_eq!(last.header("keep-alive"), None, "it closes after this one");
}

#[test]
fn a_hundred_pipelined_requests_are_answered_in_order() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for round in ["cold", "stored"] {
        let mut client = edge.client();
        client.send_raw(&pipeline(100)).expect("sent");
        for n in 1..=100 {
            let reply = client.read_response().expect("a reply");
            reply.verify_whole(n).expect(round);
        }
    }
    assert_eq!(origin.requests().len(), 100, "each was fetched once");
}

// Pipelined requests follow bodies of other requests. Each request must be found exactly where the
// previous body ends.
#[test]
fn pipelined_requests_after_bodies_are_found() {
    let origin = serving("/echo", Resource::echo());
    let edge = Setup::uncached(&origin).start();
    let mut client = edge.client();
    let pipelined = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
                     POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nyo\r\n3;x=y\r\nurs\r\n0\r\n\r\n\
                     GET /offset/7 HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send_raw(pipelined.as_bytes()).expect("sent");
    assert_eq!(client.read_response().expect("a reply").text(), "hello");
    assert_eq!(client.read_response().expect("a reply").text(), "yours");
    let last = client.read_response().expect("a reply");
    last.verify_whole(7).expect("the last one");
}

// One client sends pipelined requests without end. Other clients must be served meanwhile.
#[test]
fn a_pipelining_client_does_not_starve_others() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin).in_clear_text().workers(1).start();
    edge.get("/x", &[]);
    let stop = AtomicBool::new(false);
    let many = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    thread::scope(|scope| {
        let pipeliner = edge.client();
        let mut drain = pipeliner.stream().try_clone().expect("another handle");
        scope.spawn(move || std::io::copy(&mut drain, &mut std::io::sink()));
        let (edge, stop, many) = (&edge, &stop, &many);
        scope.spawn(move || {
            let mut pipeliner = pipeliner;
            while !stop.load(Ordering::Relaxed) {
                pipeliner.send_raw(many.as_bytes()).expect("sent");
            }
            // The other thread has a second handle of the socket, so dropping this one would not
            // close the connection.
            let _ = pipeliner.stream().shutdown(std::net::Shutdown::Both);
        });
        eventually("a pipeliner at work", || edge.counter("requests") > 3000);
        let meanwhile = (0..30).map(|_| {
            let mut client = edge.client();
            let before = edge.counter("requests");
            assert_hit(&client.get("/x", &[]).expect("a reply"));
            edge.counter("requests") - before
        });
        // The test compares the shortest time, because a busy machine delays some requests.
        let least = meanwhile.min();
        assert!(
            least < Some(500),
            "{least:?} of the pipeliner's went before"
        );
        stop.store(true, Ordering::Relaxed);
    });
}

// The response to HEAD has the head of the response to GET and no body. The next response on the
// connection must be found.
#[test]
fn head_has_a_length_and_no_body() {
    let origin = serving("/x", fresh(1000));
    for edge in [
        Setup::cached(&origin).start(),
        Setup::uncached(&origin).start(),
    ] {
        let mut client = edge.client();
        let head = client.request("HEAD", "/x", &[], b"").expect("a reply");
        let get = client.get("/x", &[]).expect("a reply");
        get.verify_whole(1000).expect("the body");
        assert_eq!((head.status, head.body.len()), (200, 0));
        for name in ["content-length", "etag", "last-modified", "accept-ranges"] {
            assert_eq!(head.header(name), get.header(name), "{name}");
        }
    }
}

#[test]
fn http_1_0_connections_close_without_keep_alive() {
    let origin = serving("/x", fresh(3));
    let edge = Setup::cached(&origin).start();
    let answer = edge.send_raw(b"GET /x HTTP/1.0\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n000"), "{answer}");
    let mut client = edge.client();
    for _ in 0..2 {
        let asked = b"GET /x HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n";
        client.send_raw(asked).expect("sent");
        let reply = client.read_response().expect("a reply");
        assert_eq!(reply.header("connection"), Some("keep-alive"));
    }
    let bare = edge.send_raw(b"GET /offset/2 HTTP/1.0\r\n\r\n");
    assert!(bare.ends_with("\r\n\r\n00"), "without Host: {bare}");
}

// An HTTP/1.0 client does not know chunked coding, so a response of unknown length ends with the
// connection.
#[test]
fn http_1_0_responses_are_not_chunked() {
    use sluice_lab::origin::Framing;
    let origin = serving("/x", Resource::offset(30).framing(Framing::Chunked(10)));
    let edge = Setup::uncached(&origin).start();
    let asked = b"GET /x HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n";
    let answer = edge.send_raw(asked);
    assert!(!answer.contains("chunked"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(
        answer.ends_with("\r\n\r\n000000000\n000000010\n000000020\n"),
        "{answer}"
    );
}

#[test]
fn connection_close_is_sent_and_followed() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin).with_http1().start();
    let mut client = edge.client();
    let reply = client.get("/x", &[("Connection", "x-y, CLOSE")]);
    assert_eq!(reply.expect("a reply").header("connection"), Some("close"));
    assert_eq!(client.wait_closed(SOON).expect("a socket"), Closing::Fin);
}

#[test]
fn a_connection_closes_after_keepalive_requests() {
    let origin = origin();
    let edge = Setup::uncached(&origin)
        .limits("keepalive_requests = 3")
        .start();
    let mut client = edge.client();
    client.send_raw(&pipeline(5)).expect("sent");
    for n in 1..=3 {
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(n).expect("in order");
        assert_eq!(reply.header("connection").is_some(), n == 3);
    }
    assert_eq!(client.wait_closed(SOON).expect("a socket"), Closing::Fin);
    assert_eq!(origin.requests().len(), 3, "the others went nowhere");
}

// A connection is closed after the idle timeout, even if the client has never sent a request.
#[test]
fn idle_connections_are_closed_in_time() {
    let origin = origin();
    let edge = Setup::uncached(&origin)
        .limits("keepalive_timeout = \"150ms\"\nheader_timeout = \"10s\"")
        .start();
    let mut client = edge.client();
    client.get("/offset/1", &[]).expect("a reply");
    let mut silent = edge.client();
    for idle in [&mut client, &mut silent] {
        assert_eq!(idle.wait_closed(SOON).expect("a socket"), Closing::Fin);
    }
    let reply = Setup::uncached(&origin)
        .with_http1()
        .limits("keepalive_timeout = \"0s\"")
        .start()
        .client()
        .get("/offset/1", &[]);
    assert_eq!(reply.expect("a reply").header("connection"), Some("close"));
}

#[test]
fn requests_may_arrive_in_pieces() {
    let origin = serving("/echo", Resource::echo());
    let edge = Setup::uncached(&origin).start();
    let mut client = edge.client();
    let request = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nX-Sum: 1\r\n\r\n";
    for _ in 0..2 {
        for byte in request.bytes() {
            client.send_raw(&[byte]).expect("sent");
        }
        assert_eq!(client.read_response().expect("a reply").text(), "hello");
    }
    assert_eq!(edge.counter("connections_accepted"), 1);
}

// The client closes its sending side after the request. With `half_close`, it still receives the
// response, from the cache or from the origin.
#[test]
fn half_closed_clients_are_answered_if_the_listener_permits_it() {
    let latch = Latch::closed();
    let origin = serving("/x", fresh(1000).hold_head(&latch));
    origin.serve("/pass/x", fresh(1000).hold_head(&latch));
    let setup = Setup::cached(&origin).with_http1();
    let edge = setup.listener("half_close = true").start();
    let mut waiting = ["/x", "/pass/x"].map(|target| {
        let mut client = edge.client();
        client.send("GET", target, &[], b"").expect("sent");
        client.finish_sending().expect("half closed");
        wait_for_requests(&origin, target, 1);
        client
    });
    latch.release();
    for client in &mut waiting {
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(1000).expect("the body");
    }
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    client.finish_sending().expect("half closed");
    assert_hit(&client.read_response().expect("a reply"));
}
