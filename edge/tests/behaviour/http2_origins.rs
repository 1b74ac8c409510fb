//! Tests of HTTP/2 to origins, with an origin behind the h2 library.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use sluice_lab::certificates::Authority;
use sluice_lab::client::{self, Client};
use sluice_lab::front::{self, TlsFront};
use sluice_lab::origin::{Fault, Latch, Origin, Resource};

use crate::harness::http2_front::{Http2Front, Http2Options};
use crate::harness::{Edge, Setup, assert_hit, assert_reason, eventually, fresh, origin, serving};

/// Starts a front of this origin, and an edge whose only server it is.
fn fronted(origin: &Origin, options: Http2Options, lines: &str) -> (Http2Front, Edge) {
    let front = Http2Front::start(origin.addr(), options);
    let edge = Setup::of_servers(vec![front.url()]).upstream(lines).start();
    (front, edge)
}

/// Sends requests with this many clients at a time, each on one connection. Returns the number of requests for which
/// `holds` is false.
fn load(edge: &Edge, clients: usize, requests: usize, holds: fn(&client::Reply) -> bool) -> u64 {
    let failed = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..clients)
        .map(|number| {
            let (address, failed) = (edge.http, failed.clone());
            thread::spawn(move || {
                let mut client = Client::connect(address).expect("the program accepts");
                for n in 0..requests {
                    let target = format!("/pass/{number}/{n}");
                    let reply = client.get(&target, &[]);
                    if !reply.is_ok_and(|reply| holds(&reply)) {
                        failed.fetch_add(1, Ordering::Relaxed);
                        client = Client::connect(address).expect("the program accepts");
                    }
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("no panic"));
    failed.load(Ordering::Relaxed)
}

fn is_whole(reply: &client::Reply) -> bool {
    reply.status == 200 && reply.verify_whole(5000).is_ok()
}

/// Starts an origin that serves this resource at every path.
fn serving_all(resource: Resource) -> Origin {
    let origin = origin();
    origin.serve_rest(resource);
    origin
}

/// Returns a number of the edge's only server.
fn number(edge: &Edge, name: &str) -> u64 {
    let server = &edge.status()["upstreams"]["origin"]["servers"][0];
    let number = server[name].as_u64();
    number.unwrap_or_else(|| panic!("no number {name}"))
}

#[test]
fn clients_share_one_connection_per_worker() {
    let latch = Latch::closed();
    let origin = serving_all(Resource::offset(5000).hold_head(&latch));
    let (front, edge) = fronted(&origin, Http2Options::default(), "");
    let sent = thread::scope(|scope| {
        let clients: Vec<_> = (0..64)
            .map(|n| {
                scope.spawn({
                    let edge = &edge;
                    move || edge.get(&format!("/pass/{n}"), &[])
                })
            })
            .collect();
        // All requests are at the origin at a time.
        let all = latch.wait_held(64, Duration::from_secs(60));
        eventually("64 streams", || number(&edge, "http2_streams") == 64);
        latch.release();
        let replies = clients
            .into_iter()
            .map(|client| client.join().expect("no panic"));
        assert_eq!((replies.filter(is_whole).count(), all), (64, true));
        front.connections()
    });
    assert!(sent <= 2, "{sent} connections for two workers");
    let failed = load(&edge, 64, 20, is_whole);
    assert_eq!((failed, front.connections()), (0, sent));
    eventually("no stream", || number(&edge, "http2_streams") == 0);
    assert_eq!(number(&edge, "http2_connections"), sent);
}

#[test]
fn a_full_connection_opens_a_second_one() {
    let origin = serving_all(Resource::offset(5000));
    let options = Http2Options {
        streams: 10,
        ..Http2Options::default()
    };
    let (front, edge) = fronted(&origin, options, "");
    assert_eq!(load(&edge, 64, 20, is_whole), 0);
    let connections = front.connections();
    assert!((2..=24).contains(&connections), "{connections}");
}

#[test]
fn goaway_during_load_fails_no_request() {
    let origin = serving_all(Resource::offset(5000));
    let options = Http2Options {
        requests: 25,
        ..Http2Options::default()
    };
    let (front, edge) = fronted(&origin, options, "");
    assert_eq!(load(&edge, 16, 40, is_whole), 0);
    let connections = front.connections();
    assert!(connections >= 640 / 50, "{connections}");
    // Each of the two workers has at most one connection that the front has not ended.
    let ended = connections - number(&edge, "http2_goaways");
    assert!(ended <= 2, "{ended} of {connections}");
    eventually("ended connections are closed", || {
        number(&edge, "http2_connections") <= ended
    });
}

#[test]
fn a_refused_post_is_sent_again() {
    let origin = origin();
    origin.serve_rest(Resource::echo());
    let options = Http2Options {
        refuse_every: 2,
        ..Http2Options::default()
    };
    let (front, edge) = fronted(&origin, options, "");
    for n in 0..4_u8 {
        let body = vec![n; 30_000];
        let reply = edge.ask("POST", "/pass/x", &[], &body);
        assert!(
            reply.status == 200 && reply.body == body,
            "{}",
            reply.status
        );
    }
    let refused = number(&edge, "http2_streams_refused");
    let resets = number(&edge, "http2_resets_received");
    assert_eq!((front.refused(), refused, resets), (4, 4, 0));
}

#[test]
fn a_reset_of_the_server_is_counted() {
    let origin = serving_all(Resource::offset(5000));
    let (front, edge) = fronted(&origin, Http2Options::default(), "");
    assert_reason(&edge.get("/pass/reset", &[]), "closed-before-head");
    assert!(is_whole(&edge.get("/pass/x", &[])));
    let names = ["http2_resets_received", "http2_streams_refused"];
    assert_eq!(names.map(|name| number(&edge, name)), [1, 0]);
    assert!(front.connections() <= 2);
}

#[test]
fn a_stalled_connection_is_replaced() {
    let origin = serving_all(Resource::offset(5000));
    let options = Http2Options {
        stalls: 1,
        ..Http2Options::default()
    };
    let front = Http2Front::start(origin.addr(), options);
    let edge = Setup::of_servers(vec![front.url()])
        .workers(1)
        .upstream("read_timeout = \"1s\"\nretry = { tries = 1 }")
        .start();
    let reply = edge.get("/pass/x", &[]);
    assert_reason(&reply, "head-timeout");
    assert!(is_whole(&edge.get("/pass/x", &[])));
    assert_eq!(front.connections(), 2);
}

#[test]
fn a_long_body_passes_both_ways() {
    const LENGTH: usize = 5_000_000;
    let origin = origin();
    let front = Http2Front::start(origin.addr(), Http2Options::default());
    let setup = Setup::of_servers(vec![front.url()]);
    let edge = setup.limits("body = \"10MiB\"").start();
    let body: Vec<u8> = (0..LENGTH).map(|at| (at % 253) as u8).collect();
    let reply = edge.ask("POST", "/pass/echo", &[], &body);
    assert!(reply.status == 200 && reply.body == body);
    let reply = edge.get(&format!("/pass/fill/{LENGTH}"), &[]);
    let expected: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
    assert!(reply.status == 200 && reply.body == expected);
    assert!(front.connections() <= 2);
}

#[test]
fn trailers_pass_both_ways() {
    let origin = origin();
    let (_front, edge) = fronted(&origin, Http2Options::default(), "");
    let answer = edge.send_raw(
        b"POST /pass/echo HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close, te\r\n\
          Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
    );
    for part in ["hello\r\n", "grpc-status: 0\r\n", "x-sum: 1\r\n"] {
        assert!(answer.contains(part), "{part:?} is not in {answer}");
    }
}

#[test]
fn responses_are_cached_collapsed_and_fetched_in_ranges() {
    const LENGTH: u64 = 3_000_000;
    let origin = serving("/x", fresh(LENGTH));
    let (front, edge) = fronted(&origin, Http2Options::default(), "");
    let reply = edge.get("/x", &[("range", "bytes=2000000-2000099")]);
    reply
        .verify_range(2_000_000, 2_000_099, LENGTH)
        .expect("the range");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                edge.get("/x", &[])
                    .verify_whole(LENGTH)
                    .expect("the origin's bytes")
            });
        }
    });
    assert_hit(&edge.get("/x", &[]));
    let sent = origin.read_record(|record| record.sent_total);
    assert!(sent < 2 * LENGTH, "{sent} bytes for {LENGTH}");
    assert!(front.connections() <= 2);
}

#[test]
fn a_server_with_tls_chooses_the_protocol() {
    let authority = Authority::new("Test authority of origins");
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).expect("written");
    let origin = serving_all(Resource::offset(5000));
    let http2 = Http2Front::start(origin.addr(), Http2Options::default());
    let keys = format!("tls = {{ ca = {ca:?}, server_name = \"origin.test\" }}");
    let start = |behind, protocols: &[&str], lines: &str| {
        let config = front::config(&authority.server(&["origin.test"]), None);
        let mut config = Arc::unwrap_or_clone(config);
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let front = TlsFront::start(behind, Arc::new(config)).expect("a free port");
        let edge = Setup::of_servers(vec![front.url()])
            .upstream(&format!("{keys}\n{lines}"))
            .start();
        (front, edge)
    };
    let (front, edge) = start(http2.address(), &["h2"], "");
    assert_eq!(load(&edge, 32, 5, is_whole), 0);
    assert!(
        front.handshakes().len() <= 2,
        "{}",
        front.handshakes().len()
    );
    drop(edge);
    let (_front, edge) = start(origin.addr(), &["http/1.1"], "");
    assert!(is_whole(&edge.get("/pass/x", &[])));
    drop(edge);
    let (_front, edge) = start(origin.addr(), &["h2", "http/1.1"], "http = \"1.1\"");
    assert!(is_whole(&edge.get("/pass/x", &[])));
    drop(edge);
    let (_front, edge) = start(origin.addr(), &["http/1.1"], "http = \"2\"");
    assert_reason(&edge.get("/pass/x", &[]), "tls-failed");
    let cause = "it supports only other protocols (ALPN)";
    eventually(cause, || edge.process.stderr().contains(cause));
}

#[test]
fn http2_may_be_demanded_of_servers_in_clear_text() {
    let origin = serving_all(Resource::offset(5000));
    let front = Http2Front::start(origin.addr(), Http2Options::default());
    let edge = Setup::of_servers(vec![format!("http://{}", front.address())])
        .upstream("http = \"2\"")
        .start();
    assert!(is_whole(&edge.get("/pass/x", &[])));
}

// Each pause is shorter than the timeout, but the content falls further and further behind the minimum rate.
#[test]
fn content_that_falls_behind_the_minimum_rate_is_cut_off() {
    let slow = Fault::DripBody {
        bytes: 100,
        every: Duration::from_millis(100),
    };
    let origin = serving("/pass/x", Resource::offset(20_000).fault(slow));
    let setup = Setup::of_servers(vec![format!("h2c://{}", origin.addr())]);
    let lines = "read_timeout = \"2s\"\nmin_rate = \"1MiB\"\nretry = false";
    let edge = setup.upstream(lines).logged("json").start();
    assert!(edge.get("/pass/x", &[]).truncated());
    assert_eq!(edge.json_log(1)[0]["reason"], "body-timeout");
}

/// Starts a server that sends these bytes to every client as soon as it has sent something, and reads to the end.
fn saying(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    // The thread ends with the test process.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut first = [0; 1];
            let sent = stream
                .read_exact(&mut first)
                .and_then(|()| stream.write_all(bytes))
                .and_then(|()| stream.shutdown(Shutdown::Write))
                .and_then(|()| io::copy(&mut stream, &mut io::sink()));
            // The edge may have closed the connection before.
            drop(sent);
        }
    });
    address
}

// The log says which scheme the server's URL needs.
#[test]
fn a_server_of_another_version_of_http_is_named_in_the_log() {
    let http1 =
        saying(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let http2 =
        saying(b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01");
    for (url, cause) in [
        (
            format!("h2c://{http1}"),
            "bad-head (it answers in HTTP/1: write http:// for h2c://)",
        ),
        (
            format!("http://{http2}"),
            "bad-head (it answers in HTTP/2: write h2c:// for http://)",
        ),
    ] {
        let edge = Setup::of_servers(vec![url]).start();
        assert_reason(&edge.get("/pass/x", &[]), "bad-head");
        eventually(cause, || edge.process.stderr().contains(cause));
    }
}
