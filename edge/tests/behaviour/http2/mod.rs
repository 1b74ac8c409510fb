//! HTTP/2 towards clients: the choice of the protocol, and all kinds of requests and endings.

mod choice;
mod client;
mod frames;
mod malformed;
mod malformed_fields;
mod malformed_responses;
mod refusals;
mod strictness;

use bytes::Bytes;
use http::HeaderMap;
use rustix::process::Signal;
use sluice_lab::client::Closing;
use sluice_lab::offset::{offset_bytes, verify_offset};
use sluice_lab::origin::{Latch, Origin, Record, Resource};

use crate::harness::{Edge, SOON, Setup, eventually, fresh, origin, serving, wait_for_requests};
use client::Http2Client;

const LENGTH: u64 = 300_000;

/// Returns a setup whose clients may speak both protocols in clear text. The harness's own speak HTTP/1.1.
fn both(setup: Setup) -> Setup {
    let setup = setup.listener("protocols = [\"h2\", \"http/1.1\"]");
    setup.in_clear_text().with_http1()
}

/// Starts an edge with a cache whose clients may speak both protocols in clear text.
fn edge(origin: &Origin) -> Edge {
    both(Setup::cached(origin)).workers(1).start()
}

/// The same with an origin that gets requests over HTTP/1.1 in any case.
fn edge_over_http1(origin: &Origin) -> Edge {
    let setup = both(Setup::cached(origin)).workers(1);
    setup.with_http1_servers().start()
}

#[test]
fn both_protocols_share_stored_responses() {
    let origin = serving("/x", fresh(LENGTH));
    let edge = edge(&origin);
    let mut client = Http2Client::connect(edge.http);
    let miss = client.get("/x", &[]);
    assert_eq!((miss.status, miss.body.len() as u64), (200, LENGTH));
    verify_offset(0, &miss.body).expect("the bytes of the origin");
    assert!(miss.header("cache-status").contains("fwd=uri-miss"));
    assert_eq!(miss.header("content-length"), LENGTH.to_string());
    for name in ["connection", "keep-alive", "transfer-encoding"] {
        assert_eq!(miss.headers.get(name), None);
    }
    let hit = client.get("/x", &[]);
    assert!(hit.header("cache-status").starts_with("sluice; hit"));
    assert_eq!(hit.body, miss.body);
    let mut other = edge.client();
    let of_http1 = other.get("/x", &[("Host", "a")]).expect("a reply");
    crate::harness::assert_hit(&of_http1);
    assert_eq!(of_http1.body, miss.body);
    assert_eq!(origin.read_record(|record| record.count("/x")), 1);
}

#[test]
fn ranges_heads_and_conditions_work() {
    let origin = serving("/x", fresh(LENGTH));
    let edge = edge(&origin);
    let mut client = Http2Client::connect(edge.http);
    let range = client.get("/x", &[("range", "bytes=1000-1999")]);
    assert_eq!((range.status, range.body.len()), (206, 1000));
    verify_offset(1000, &range.body).expect("the bytes of the origin");
    assert_eq!(
        range.header("content-range"),
        format!("bytes 1000-1999/{LENGTH}")
    );
    let several = client.get("/x", &[("range", "bytes=0-0,100000-100000")]);
    let content_type = several.header("content-type");
    assert!(content_type.starts_with("multipart/byteranges"));
    let head = client.ask("HEAD", "/x", &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), LENGTH.to_string());
    let tag = head.header("etag").to_owned();
    let unchanged = client.get("/x", &[("if-none-match", &tag)]);
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    let beyond = client.get("/x", &[("range", "bytes=300000-")]);
    assert_eq!(beyond.status, 416);
}

#[test]
fn many_requests_at_a_time_share_a_connection() {
    let origin = origin();
    for i in 0..20 {
        origin.serve(&format!("/pass/{i}"), Resource::offset(50_000 + i));
    }
    let edge = edge(&origin);
    let mut client = Http2Client::connect(edge.http);
    let all: Vec<_> = (0..20)
        .map(|i| client.begin("GET", &format!("/pass/{i}"), &[], true))
        .collect();
    // The last response comes before the first one has been read.
    for (i, running) in all.into_iter().enumerate().rev() {
        let answer = client.finish(running).expect("a response");
        assert_eq!(answer.body.len(), 50_000 + i);
        verify_offset(0, &answer.body).expect("the bytes of the origin");
    }
    assert_eq!(edge.counter("connections_accepted"), 1);
    assert_eq!(edge.counter("http2_connections"), 1);
    assert_eq!(edge.counter("http2_connections_now"), 1);
    assert_eq!(edge.counter("http2_streams"), 20);
    assert_eq!(edge.counter("http2_streams_now"), 0);
    drop(client);
    eventually("the connection is closed", || {
        edge.counter("http2_connections_now") == 0
    });
    assert_eq!(edge.counter("http1_connections"), 0);
}

#[test]
fn uploads_reach_the_origin_and_return() {
    let origin = serving("/echo", Resource::echo());
    let edge = edge(&origin);
    let mut client = Http2Client::connect(edge.http);
    for (length, declared) in [(0, true), (10, false), (1 << 20, true), (1 << 20, false)] {
        let content = offset_bytes(0, length);
        let number = length.to_string();
        let headers = [("content-length", &*number)];
        let headers = if declared { &headers[..] } else { &[] };
        let mut running = client.begin("POST", "/echo", headers, length == 0);
        client.send(&mut running, Bytes::from(content.clone()), None);
        let answer = client.finish(running).expect("a response");
        assert_eq!((answer.status, answer.body), (200, content));
        // The origin may note the end of the request after it has sent the last part back.
        let is_complete = |record: &Record| {
            let last = record.requests.last();
            last.is_some_and(|seen| seen.body_complete && seen.body_length == length as u64)
        };
        assert!(origin.wait_for(is_complete, SOON));
        let seen = origin.requests().pop().expect("a request");
        let is_chunked = !declared && length > 0 && seen.stream.is_none();
        assert_eq!(seen.header("transfer-encoding").is_some(), is_chunked);
    }
}

#[test]
fn trailers_pass_in_both_directions() {
    let origin = serving("/pass/x", Resource::offset(10).trailer("X-Sum", "42"));
    let edge = edge(&origin);
    let mut client = Http2Client::connect(edge.http);
    let mut running = client.begin("POST", "/pass/x", &[("te", "trailers")], false);
    let mut trailers = HeaderMap::new();
    trailers.insert("x-check", "1234".parse().expect("a value"));
    client.send(&mut running, Bytes::from_static(b"text"), Some(trailers));
    let answer = client.finish(running).expect("a response");
    assert_eq!(answer.body, offset_bytes(0, 10));
    let trailers = answer.trailers.expect("trailers");
    assert_eq!(trailers["x-sum"], "42");
    let seen = origin.requests().remove(0);
    assert_eq!(seen.body, b"text");
    let received = origin.connections().remove(0).received;
    match seen.stream {
        Some(_) => assert_eq!(seen.trailers, [("x-check".to_owned(), "1234".to_owned())]),
        None => assert!(received.ends_with(b"0\r\nx-check: 1234\r\n\r\n")),
    }
    // A client that does not accept trailers gets none.
    assert!(client.get("/pass/x", &[]).trailers.is_none());
}

#[test]
fn a_truncated_response_resets_only_its_stream() {
    let cut = sluice_lab::origin::Fault::CutBody {
        after: 1000,
        ending: sluice_lab::origin::Ending::Reset,
    };
    let origin = serving("/pass/cut", Resource::offset(5000).fault(cut));
    origin.serve("/x", fresh(10));
    let edge = edge(&origin);
    let mut client = Http2Client::connect(edge.http);
    let running = client.begin("GET", "/pass/cut", &[], true);
    let error = client.finish(running).expect_err("a reset");
    assert_eq!(error.reason(), Some(h2::Reason::INTERNAL_ERROR));
    assert_eq!(client.get("/x", &[]).status, 200);
    assert_eq!(edge.counter("http2_resets_sent"), 1);
}

#[test]
fn a_cancelled_request_ends_at_the_origin() {
    let latch = Latch::closed();
    let origin = serving("/pass/x", Resource::offset(10).hold_head(&latch));
    let setup = both(Setup::cached(&origin)).workers(1).logged("json");
    let edge = setup.start();
    let mut client = Http2Client::connect(edge.http);
    let running = client.begin("GET", "/pass/x", &[], true);
    wait_for_requests(&origin, "/pass/x", 1);
    drop(running);
    // The next request makes the client send the reset.
    assert_eq!(client.get("/none", &[]).status, 404);
    let ended = origin.wait_for(|record| record.open_connections() <= 1, SOON);
    assert!(ended, "the origin still has the cancelled request");
    let log = edge.json_log(2);
    let cancelled = log.iter().find(|line| line["target"] == "/pass/x");
    let cancelled = cancelled.expect("a line");
    assert_eq!(cancelled["status"], 499);
    assert_eq!(cancelled["reason"], "client-gone");
    assert_eq!(edge.counter("http2_resets_received"), 1);
}

#[test]
fn the_access_log_names_the_protocol() {
    let origin = serving("/x", fresh(1000));
    let setup = both(Setup::cached(&origin)).workers(1).logged("combined");
    let edge = setup.start();
    let mut client = Http2Client::connect(edge.http);
    client.get(
        "/x?y",
        &[("user-agent", "test/1"), ("referer", "http://a/")],
    );
    let line = edge.log(1).remove(0);
    let (_, rest) = line.split_once("] ").expect("a time");
    let expected = "\"GET /x?y HTTP/2.0\" 200 1000 \"http://a/\" \"test/1\"";
    assert_eq!(rest, expected);
}

#[test]
fn requests_over_http2_reach_origins_as_http1() {
    let origin = serving("/pass/x", Resource::offset(10));
    let edge = edge_over_http1(&origin);
    let mut client = Http2Client::connect(edge.http);
    let headers = [
        ("host", "b.example:81"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
    ];
    client.get("/pass/x", &headers);
    let seen = origin.requests().pop().expect("a request");
    let head = String::from_utf8_lossy(&seen.raw_head).into_owned();
    assert!(head.starts_with("GET /pass/x HTTP/1.1\r\n"), "{head}");
    assert_eq!(seen.header("host"), Some("b.example:81"));
    assert_eq!(seen.header_all("cookie"), ["a=1; b=2"]);
    assert_eq!(seen.header("via"), Some("2.0 sluice"));
    assert!(!head.contains("\r\n:"), "{head}");
}

#[test]
fn a_shutdown_lets_a_running_download_finish() {
    let latch = Latch::at(100_000);
    let origin = serving("/pass/x", Resource::offset(LENGTH).hold_body(&latch));
    let mut edge = edge(&origin);
    let mut client = Http2Client::connect(edge.http);
    let running = client.begin("GET", "/pass/x", &[], true);
    let (mut answer, mut content) = client.head(running).expect("a head");
    let mut idle = frames::FrameClient::connect(&edge);
    assert!(latch.wait_held(1, SOON));
    // The settings have arrived, so the connection is idle.
    idle.send(&frames::frame(6, 0, 0, b"12345678"));
    idle.read_until(6);
    edge.signal(Signal::TERM);
    let first = idle.read_until(frames::GO_AWAY);
    assert_eq!(first.code(), 0);
    eventually("new connections are refused", || {
        std::net::TcpStream::connect(edge.http).is_err()
    });
    latch.release();
    client.rest(&mut answer, &mut content).expect("the rest");
    assert_eq!(answer.body.len() as u64, LENGTH);
    verify_offset(0, &answer.body).expect("the bytes of the origin");
    drop(content);
    client.wait_closed();
    while idle.read().is_some() {}
    assert_eq!(idle.0.wait_closed(SOON).expect("a socket"), Closing::Fin);
    assert!(edge.wait_exit().success());
}

#[test]
fn the_number_of_requests_per_connection_is_limited() {
    let origin = serving("/x", fresh(10));
    let setup = both(Setup::cached(&origin)).limits("keepalive_requests = 2");
    let edge = setup.start();
    let mut client = Http2Client::connect(edge.http);
    for _ in 0..2 {
        assert_eq!(client.get("/x", &[]).status, 200);
    }
    client.wait_closed();
    eventually("GOAWAY is counted", || edge.counter("http2_goaways") == 1);
}

#[test]
fn compressed_responses_are_sent() {
    let text = "text ".repeat(10_000);
    let resource = Resource::bytes(text.clone())
        .header("Content-Type", "text/plain")
        .cache_control("max-age=3600");
    let origin = serving("/x", resource);
    let setup = both(Setup::cached(&origin)).tables("compress = [\"gzip\"]\n");
    let edge = setup.start();
    let mut client = Http2Client::connect(edge.http);
    eventually("the response is compressed", || {
        let answer = client.get("/x", &[("accept-encoding", "gzip")]);
        answer.header("content-encoding") == "gzip" && answer.body.len() < text.len() / 10
    });
    let plain = client.get("/x", &[("accept-encoding", "identity")]);
    assert_eq!(plain.body, text.as_bytes());
}
