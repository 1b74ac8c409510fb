//! Tests of response heads: which headers are forwarded, and which heads are refused with which
//! reason.

use super::*;

#[test]
fn broken_heads_are_refused_with_their_cause() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(70_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: a\r\n".repeat(257));
    let table: &[(&[u8], Reason)] = &[
        (b"", Reason::ClosedBeforeHead),
        (b"HTTP/1.1 200 OK\r\nX: y", Reason::ClosedBeforeHead),
        (b"HTTP/1.1 200 OK\r\nX: y\r\n", Reason::ClosedBeforeHead),
        (b"hello, this is HTTP/0.9\r\n\r\n", Reason::BadHead),
        (b"<html>garbage</html>", Reason::BadHead),
        (b"HTTP/2.0 200 OK\r\n\r\n", Reason::BadHead),
        (b"HTTP/1.1 99 Low\r\n\r\n", Reason::BadHead),
        (b"HTTP/1.1 099 Low\r\n\r\n", Reason::BadHead),
        (b"HTTP/1.1 2000 High\r\n\r\n", Reason::BadHead),
        (b"HTTP/1.1 abc No\r\n\r\n", Reason::BadHead),
        (b"HTTP/1.1 200 O\0K\r\n\r\n", Reason::BadHead),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", Reason::BadHead),
        (b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n", Reason::BadHead),
        (
            b"HTTP/1.1 200 OK\r\nX: y\r\n folded\r\n\r\n",
            Reason::BadHead,
        ),
        (b"HTTP/1.1 200 OK\r\n X: y\r\n\r\n", Reason::BadHead),
        (b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", Reason::BadHead),
        (b"HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n", Reason::BadHead),
        (b"HTTP/1.1 200 OK\r\nX: a\x01b\r\n\r\n", Reason::BadHead),
        (b"HTTP/1.1 200 OK\r\n: y\r\n\r\n", Reason::BadHead),
        (b"HTTP/1.1 200 OK\r\nX\xc3: y\r\n\r\n", Reason::BadHead),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            Reason::BadHead,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
            Reason::BadHead,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            Reason::BadHead,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
            Reason::BadHead,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\nhello",
            Reason::BadHead,
        ),
        (
            b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            Reason::BadHead,
        ),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
            Reason::UnexpectedStatus,
        ),
        (long.as_bytes(), Reason::BadHead),
        (many.as_bytes(), Reason::BadHead),
    ];
    for &(answer, reason) in table {
        let origin = Origin::once(answer);
        let testing = origin.upstream();
        let got = run(testing.fetch(get("/")));
        assert_eq!(got, Err(reason), "{}", answer.escape_ascii());
        assert_eq!(testing.counters.upstream_failures.get(), 1);
        assert_eq!(testing.counters.upstream_busy_now.get(), 0);
        assert_eq!(testing.status()[0].failures, 1);
    }
}

#[test]
fn tolerated_mistakes_of_an_origin_are_not_forwarded() {
    let origin = Origin::once("\r\nHTTP/1.1 200 é\nX: y\nContent-Length: 2\n\nok");
    run(async {
        let testing = origin.upstream();
        let mut response = testing.ask(get("/")).await.expect("a response");
        assert_eq!(response.fields.text(), b"x: y\r\nvia: 1.1 sluice\r\n");
        assert_eq!(content(&mut response.body).await.as_deref(), Ok(&b"ok"[..]));
    });
}

#[test]
fn headers_are_forwarded_without_hop_by_hop_ones() {
    let origin = Origin::once(
        "HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Authenticate: Basic\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nVia: 1.1 far\r\n\
         Content-Length: 2\r\n\r\nok",
    );
    run(async {
        let response = origin.upstream().ask(get("/")).await.expect("a response");
        assert_eq!(
            response.fields.text(),
            b"set-cookie: a=1\r\nset-cookie: b=2\r\nvia: 1.1 far\r\nvia: 1.1 sluice\r\n"
        );
        assert_eq!(response.declared_length(), Some(2));
        let exchange = response.upstream.expect("timings");
        assert_eq!(exchange.server.get(), Some(origin.address.into()));
        assert_eq!(exchange.status.get(), Some(200));
        assert!(exchange.header_us.get().is_some() && exchange.response_us.get().is_some());
        assert_eq!(exchange.body_bytes.get(), 2);
    });
}

#[test]
fn responses_without_content_keep_their_length_and_except_after_head_their_connection() {
    let table: &[(Method, &'static [u8], Option<u64>)] = &[
        (
            Method::Head,
            b"HTTP/1.1 200 OK\r\nContent-Length: 123\r\n\r\n",
            Some(123),
        ),
        (
            Method::Head,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            Some(0),
        ),
        (
            Method::Get,
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 123\r\nETag: \"a\"\r\n\r\n",
            Some(123),
        ),
        (Method::Get, b"HTTP/1.1 204 No Content\r\n\r\n", Some(0)),
        (
            Method::Get,
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            Some(0),
        ),
    ];
    for (method, answer, length) in table {
        let origin = Origin::always(answer);
        run(async {
            let testing = origin.upstream();
            for _ in 0..3 {
                let asked = request(method.clone(), "/", &[]);
                let response = testing.ask(asked).await.expect("a response");
                assert!(response.body.is_empty());
                assert_eq!(response.declared_length(), *length);
            }
            let connects = if *method == Method::Head { 3 } else { 1 };
            assert_eq!(testing.status()[0].connects, connects);
        });
    }
}

#[test]
fn interim_heads_except_100_are_forwarded() {
    let origin = Origin::once(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x\r\n\
         X: 1\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    );
    run(async {
        let testing = origin.upstream();
        let pending = testing.start(get("/"));
        let interim = pending.interim.expect("a queue");
        assert_eq!(pending.response.await.expect("a response").status, 200);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let Poll::Ready((103, fields)) = interim.poll_next(&mut cx) else {
            panic!("103 comes first");
        };
        assert_eq!(fields.text(), b"link: </a>\r\n");
        assert!(matches!(interim.poll_next(&mut cx), Poll::Ready((102, _))));
        assert!(interim.poll_next(&mut cx).is_pending());
    });
}

#[test]
fn a_flood_of_interim_heads_is_refused() {
    let origin = Origin::new(|_, served| {
        served.request();
        while served.send(b"HTTP/1.1 102 Processing\r\n\r\n") {}
    });
    let testing = origin.upstream();
    assert_eq!(run(testing.fetch(get("/"))), Err(Reason::BadHead));
}

/// Starts an origin that sends `count` interim heads of 100 bytes before each final one.
fn interim_heads(count: usize) -> Origin {
    let interim = format!("HTTP/1.1 103 X\r\nLink: {}\r\n\r\n", "x".repeat(74));
    let mut answer = interim.repeat(count).into_bytes();
    assert_eq!(answer.len(), 100 * count);
    answer.extend_from_slice(HELLO);
    Origin::new(move |_, served| while served.request().is_some() && served.send(&answer) {})
}

/// Numbers of interim heads, limits in bytes for all heads together, and whether the response is accepted.
pub(super) const INTERIM: [(usize, usize, bool); 4] = [
    (64, 64 << 10, true),
    (65, 64 << 10, false),
    (9, 1000, true),
    (10, 1000, false),
];

/// Asserts that responses with interim heads are accepted, or not, with this limit. Returns the number of connections.
pub(super) fn assert_interim(server: Server, most: usize, accepted: bool) -> u64 {
    run(async {
        let mut options = Options::new(vec![server]);
        options.max_response_headers = most;
        let testing = Testing::new(options);
        // Two exchanges show that the limit applies to each exchange separately.
        for _ in 0..2 {
            let got = testing.fetch(get("/a")).await.map(|(status, _)| status);
            assert_eq!(got, accepted.then_some(200).ok_or(Reason::BadHead));
        }
        testing.counters.upstream_connects.get()
    })
}

#[test]
fn interim_heads_are_bounded_in_number_and_together_in_size() {
    for (count, most, accepted) in INTERIM {
        assert_interim(interim_heads(count).server(), most, accepted);
    }
}
