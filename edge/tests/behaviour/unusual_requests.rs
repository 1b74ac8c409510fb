//! Tests of correct but unusual requests: they are served, and reach the origin in canonical form.

use sluice_lab::origin::{Resource, Seen};

use crate::harness::{SOON, Setup, origin};

/// A description, the request, and the request line, Host and body that the origin must receive.
type Odd = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

const ODD: &[Odd] = &[
    (
        "an empty line before",
        "\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /x HTTP/1.1",
        "a",
        "",
    ),
    (
        "absolute-form",
        "GET http://a/x?y HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /x?y HTTP/1.1",
        "a",
        "",
    ),
    (
        "absolute-form in capitals",
        "GET HTTP://A/x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /x HTTP/1.1",
        "a",
        "",
    ),
    (
        "absolute-form without a path",
        "GET http://a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1",
        "a",
        "",
    ),
    (
        "absolute-form with a bare query",
        "GET http://a?y HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /?y HTTP/1.1",
        "a",
        "",
    ),
    (
        "a Host in capitals",
        "GET /x HTTP/1.1\r\nHOST: A.Example\r\n\r\n",
        "GET /x HTTP/1.1",
        "a.example",
        "",
    ),
    (
        "an IPv6 Host",
        "GET /x HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
        "GET /x HTTP/1.1",
        "[::1]",
        "",
    ),
    (
        "dot segments",
        "GET /a/./b/../c?../d HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a/c?../d HTTP/1.1",
        "a",
        "",
    ),
    (
        "encoded dot segments",
        "GET /a/%2E%2e/c HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /c HTTP/1.1",
        "a",
        "",
    ),
    (
        "an encoded slash",
        "GET /a%2Fb HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a%2Fb HTTP/1.1",
        "a",
        "",
    ),
    (
        "two slashes",
        "GET //a//b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET //a//b HTTP/1.1",
        "a",
        "",
    ),
    (
        "a percent sign in a query",
        "GET /x?100% HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /x?100% HTTP/1.1",
        "a",
        "",
    ),
    (
        "white space around values",
        "GET /x HTTP/1.1\r\nHost: \t a \t\r\nX-Odd:\r\n\r\n",
        "GET /x HTTP/1.1",
        "a",
        "",
    ),
    (
        "a method of their own",
        "BREW /x HTTP/1.1\r\nHost: a\r\n\r\n",
        "BREW /x HTTP/1.1",
        "a",
        "",
    ),
    (
        "OPTIONS for the server",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS * HTTP/1.1",
        "a",
        "",
    ),
    (
        "HTTP/1.0",
        "GET /x HTTP/1.0\r\nHost: a\r\n\r\n",
        "GET /x HTTP/1.1",
        "a",
        "",
    ),
    (
        "GET with a body",
        "GET /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        "GET /x HTTP/1.1",
        "a",
        "hello",
    ),
    (
        "a length with zeros before",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 005\r\n\r\nhello",
        "POST /x HTTP/1.1",
        "a",
        "hello",
    ),
    (
        "a length of zero",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "POST /x HTTP/1.1",
        "a",
        "",
    ),
    (
        "chunked in capitals",
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "POST /x HTTP/1.1",
        "a",
        "hello",
    ),
    (
        "chunk extensions",
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;a;b=c\r\nhe\r\n003;d=\"e\"\r\nllo\r\n0;f\r\n\r\n",
        "POST /x HTTP/1.1",
        "a",
        "hello",
    ),
    (
        "trailers",
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
        "POST /x HTTP/1.1",
        "a",
        "hello",
    ),
];

#[test]
fn unusual_requests_reach_the_origin_in_canonical_form() {
    let origin = origin();
    origin.serve_rest(Resource::status(200));
    // Scheme and default port of the requests are those of clear text.
    let edge = Setup::uncached(&origin)
        .with_http1_servers()
        .in_clear_text()
        .start();
    for (name, request, line, host, body) in ODD {
        origin.reset_record();
        let mut client = edge.client();
        client.send_raw(request.as_bytes()).expect("sent");
        let reply = client.read_response().expect(name);
        assert_eq!(reply.status, 200, "{name}");
        let seen = match &origin.requests()[..] {
            [one] => one.clone(),
            all => panic!("{name}: {all:?}"),
        };
        assert_canonical(&seen, name, line, host);
        assert_eq!(seen.body, body.as_bytes(), "{name}");
    }
}

fn assert_canonical(seen: &Seen, name: &str, line: &str, host: &str) {
    let head = String::from_utf8(seen.raw_head.clone()).expect("ASCII");
    assert_eq!(head.lines().next(), Some(line), "{name}");
    assert_eq!(seen.header_all("host"), [host], "{name}");
    let framings =
        seen.header_all("content-length").len() + seen.header_all("transfer-encoding").len();
    assert!(framings <= 1, "{name}: {head}");
    for line in head.trim_end().split("\r\n").skip(1) {
        let (field, value) = line
            .split_once(": ")
            .unwrap_or((line.trim_end_matches(':'), ""));
        assert!(!field.contains([' ', '\t']), "{name}: {line:?}");
        assert_eq!(value.trim(), value, "{name}: {line:?}");
    }
}

// The path is written in two ways that have the same canonical form. Route, key and request to the
// origin use the canonical form.
#[test]
fn two_spellings_of_one_url_are_stored_once() {
    let origin = origin();
    origin.serve("/a/b", crate::harness::fresh(100));
    let edge = Setup::cached(&origin).start();
    for target in ["/a/b", "/a/./b", "/a/c/../b", "/a/%2e/b"] {
        edge.get(target, &[]).verify_whole(100).expect(target);
    }
    let absolute = edge.url("/a/b");
    edge.get(&absolute, &[])
        .verify_whole(100)
        .expect("absolute-form");
    assert!(origin.wait_for(|record| record.requests.len() == 1, SOON));
}

// A request and a response have the maximum number of headers. All of them are forwarded in order.
#[test]
fn many_headers_are_forwarded() {
    let many = 200;
    let mut resource = crate::harness::fresh(10);
    for n in 0..many {
        resource = resource.header(&format!("X-Answer-{n}"), &n.to_string());
    }
    let origin = origin();
    origin.serve("/x", resource);
    let edge = Setup::cached(&origin).start();
    let fields: String = (0..250).map(|n| format!("X-Ask-{n}: {n}\r\n")).collect();
    let mut client = edge.client();
    let request = format!("POST /x HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    client.send_raw(request.as_bytes()).expect("sent");
    let posted = client.read_response().expect("a reply");
    for reply in [posted, edge.get("/x", &[]), edge.get("/x", &[])] {
        reply.verify_whole(10).expect("the body");
        let back = |n: &usize| reply.header(&format!("x-answer-{n}")) == Some(&n.to_string());
        assert!((0..many).all(|n| back(&n)));
    }
    let seen = &origin.requests()[0];
    assert!((0..250).all(|n| seen.header(&format!("x-ask-{n}")) == Some(&n.to_string())));
}
