//! Tests of requests that are refused, and of their records.

use sluice_lab::origin::{Latch, Resource};

use super::frames::{
    FrameClient, HEADERS, Outcome, PROTOCOL_ERROR, REFUSED_STREAM, RESET, get, request,
};
use super::{both, edge};
use crate::harness::{Setup, fresh, serving, wait_for_requests};
use crate::http2::client::Http2Client;

/// Requests that are malformed (RFC 9113 8.1.1).
fn malformed() -> Vec<Vec<(&'static str, &'static str)>> {
    let with = |more: &[(&'static str, &'static str)]| [&get("/x")[..], more].concat();
    let without = |name: &str| {
        let fields = get("/x").into_iter().filter(|field| field.0 != name);
        fields.collect::<Vec<_>>()
    };
    vec![
        without(":method"),
        without(":scheme"),
        without(":path"),
        without(":authority"),
        with(&[(":path", "/x")]),
        with(&[("a", "b"), (":status", "200")]),
        [&[("a", "b")], &get("/x")[..]].concat(),
        with(&[(":unknown", "a")]),
        with(&[("Upper", "a")]),
        with(&[("", "a")]),
        with(&[("a b", "a")]),
        with(&[("a:b", "a")]),
        with(&[("a", "b\r\nGET /admin HTTP/1.1")]),
        with(&[("a", "b\nc")]),
        with(&[("a", "b\0c")]),
        with(&[("a", " b")]),
        with(&[("connection", "close")]),
        with(&[("transfer-encoding", "chunked")]),
        with(&[("upgrade", "websocket")]),
        with(&[("te", "gzip")]),
        with(&[("host", "b")]),
        with(&[("content-length", "5")]),
        with(&[("content-length", "0"), ("content-length", "0")]),
        with(&[("content-length", "-0")]),
        with(&[("transfer_encoding", "chunked")]),
    ]
}

// Each malformed request is a stream error, is logged, and reaches no origin.
#[test]
fn malformed_requests_are_reset_and_logged() {
    let origin = serving("/x", fresh(10));
    let setup = both(Setup::cached(&origin)).workers(1).logged("json");
    let edge = setup.start();
    let mut client = FrameClient::connect(&edge);
    let all = malformed();
    for (stream, fields) in (1..).step_by(2).zip(&all) {
        client.send(&request(stream, fields));
        let reset = client.read_until(RESET);
        assert_eq!(
            (reset.stream, reset.code()),
            (stream, PROTOCOL_ERROR),
            "{fields:?}"
        );
    }
    assert!(origin.requests().is_empty());
    assert_eq!(edge.counter("http2_malformed"), all.len() as u64);
    assert_eq!(edge.counter("http2_resets_sent"), all.len() as u64);
    assert_eq!(edge.counter("requests_refused"), all.len() as u64);
    assert_eq!(edge.counter("responses_cut"), 0);
    for line in edge.json_log(all.len()) {
        assert_eq!((&line["status"], &line["bytes"]), (&400.into(), &0.into()));
        assert_eq!(line["reason"], "malformed-request");
        assert_eq!(line["version"], "HTTP/2.0");
    }
    // The connection goes on.
    let next = 1 + 2 * all.len() as u32;
    client.send(&request(next, &get("/x")));
    assert_eq!(client.read_until(HEADERS).stream, next);
}

#[test]
fn content_of_another_length_than_declared_is_logged() {
    // The origin reads the whole content first. A response that begins earlier is logged with its own status.
    let origin = serving("/pass/x", Resource::offset(10));
    let setup = both(Setup::cached(&origin)).workers(1).logged("json");
    let edge = setup.start();
    let mut client = FrameClient::connect(&edge);
    let mut fields = get("/pass/x").to_vec();
    fields[0].1 = "POST";
    fields.push(("content-length", "5"));
    let mut head = request(1, &fields);
    // Without END_STREAM.
    head[4] = super::frames::END_HEADERS;
    client.send(&head);
    client.send(&super::frames::frame(0, 1, 1, b"four"));
    let reset = client.read_until(RESET);
    assert_eq!((reset.stream, reset.code()), (1, PROTOCOL_ERROR));
    let line = edge.json_log(1).remove(0);
    assert_eq!(
        (&line["status"], &line["target"]),
        (&400.into(), &"/pass/x".into())
    );
    assert_eq!(line["reason"], "bad-request-body");
    let complete = origin.requests().iter().any(|seen| seen.body_complete);
    assert!(!complete, "the origin got a complete request");
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let latch = Latch::closed();
    let origin = serving("/pass/x", Resource::offset(10).hold_head(&latch));
    let setup = both(Setup::cached(&origin)).workers(1).logged("json");
    let edge = setup.limits("max_streams = 1").start();
    let mut client = FrameClient::connect(&edge);
    client.send(&request(1, &get("/pass/x")));
    wait_for_requests(&origin, "/pass/x", 1);
    client.send(&request(3, &get("/pass/y")));
    let reset = client.read_until(RESET);
    assert_eq!((reset.stream, reset.code()), (3, REFUSED_STREAM));
    let line = edge.json_log(1).remove(0);
    assert_eq!(
        (&line["status"], &line["target"]),
        (&503.into(), &"/pass/y".into())
    );
    assert_eq!(line["reason"], "too-many-streams");
    assert_eq!(edge.counter("http2_streams_refused"), 1);
    latch.release();
    assert_eq!(client.read_until(HEADERS).stream, 1);
    // A client that knows the limit waits.
    let mut client = Http2Client::connect(edge.http);
    client.get("/none", &[]);
    let [first, second] = [(); 2].map(|()| client.begin("GET", "/none", &[], true));
    for running in [first, second] {
        assert_eq!(client.finish(running).expect("a response").status, 404);
    }
}

#[test]
fn refused_requests_get_responses() {
    let origin = serving("/x", fresh(10));
    let setup = both(Setup::cached(&origin)).workers(1).logged("json");
    let edge = setup.limits("headers = \"1KiB\"\nbody = \"10\"").start();
    let mut client = Http2Client::connect(edge.http);
    let long = "x".repeat(1000);
    let many: Vec<_> = (0..30).map(|_| ("a", "b")).collect();
    let cases = [
        ("GET", "/x", vec![("a", &*long)], 431),
        ("GET", "/x", many, 431),
        ("POST", "/x", vec![("content-length", "11")], 413),
        ("GET", "/../x", vec![], 400),
        ("GET", "/x", vec![("expect", "else")], 417),
    ];
    for (method, target, headers, status) in &cases {
        let running = client.begin(method, target, headers, *method == "GET");
        let answer = client.finish(running).expect("a response");
        assert_eq!(answer.status, *status, "{target}");
    }
    assert!(origin.requests().is_empty());
    let logged = edge.json_log(cases.len());
    let logged: Vec<_> = logged.iter().map(|line| line["status"].as_u64()).collect();
    assert_eq!(logged, [431, 431, 413, 400, 417].map(Some));
    assert_eq!(client.get("/x", &[]).status, 200);
}

#[test]
fn a_header_list_of_the_default_size_is_accepted() {
    let origin = serving("/x", fresh(10));
    let edge = edge(&origin);
    let mut client = Http2Client::connect(edge.http);
    let long = "x".repeat(30_000);
    assert_eq!(client.get("/x", &[("cookie", &long)]).status, 200);
    assert_eq!(
        client.get("/x", &[("a", &(long.clone() + &long))]).status,
        431
    );
    assert_eq!(client.get("/x", &[]).status, 200);
}

// A proxy that ends TLS and passes requests on in clear text gives `:scheme` either the scheme of its own connection, or
// that of its client's. Nobody else may give another one than that of the connection.
#[test]
fn a_trusted_proxy_may_report_another_scheme_than_that_of_its_connection() {
    let origin = serving("/pass/x", Resource::bytes("content"));
    let trusting = |proxies: &str| {
        let setup = both(Setup::cached(&origin)).workers(1);
        setup.server(&format!("trusted_proxies = [{proxies:?}]"))
    };
    let report = ("x-forwarded-proto", "https");
    let edge = trusting("127.0.0.1").start();
    let mut client = Http2Client::connect(edge.http);
    assert_eq!(client.get("/pass/x", &[report]).status, 200);
    let seen = origin.requests().pop().expect("a request");
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    let mut client = FrameClient::connect(&edge);
    let refused = "400 target-of-another-scheme\n";
    for (stream, reported, expected) in [(1, "https", "content"), (3, "http", refused)] {
        let mut fields = get("/pass/x").to_vec();
        fields[1] = (":scheme", "https");
        fields.push(("x-forwarded-proto", reported));
        client.send(&request(stream, &fields));
        let expected = Outcome::Body(expected.to_owned());
        assert_eq!(client.outcome(stream), expected, "{reported}");
    }
    let edge = trusting("127.0.0.2").start();
    let mut client = Http2Client::connect(edge.http);
    assert_eq!(client.get("/pass/x", &[report]).status, 200);
    let seen = origin.requests().pop().expect("a request");
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
}
