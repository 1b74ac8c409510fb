//! Tests of the exchange with a correct origin: connections, headers and retries.

use std::net::IpAddr;
use std::time::Duration;

use sluice_lab::client::Client;
use sluice_lab::origin::{Ending, Fault, Latch, Resource};

use crate::harness::{
    SOON, Setup, assert_reason, eventually, fresh, origin, serving, slow, wait_for_requests,
};

// Each worker has a pool of idle connections to the origin.
#[test]
fn connections_to_an_origin_are_reused() {
    let origin = serving("/x", Resource::offset(1000));
    let edge = Setup::uncached(&origin).workers(1).start();
    for _ in 0..10 {
        edge.get("/x", &[]).verify_whole(1000).expect("the body");
    }
    assert_eq!(origin.connections().len(), 1);
    assert_eq!(edge.counter("upstream_reuses"), 9);
    let asked = &origin.requests()[9];
    assert_eq!(asked.header("connection"), None, "kept open");
}

// An idle connection to the origin is closed after a timeout, or after a maximum number of
// requests.
#[test]
fn connections_to_an_origin_end_at_their_limits() {
    let origin = serving("/x", Resource::offset(10));
    for (line, connections) in [("keepalive = 0", 6), ("keepalive_requests = 2", 3)] {
        origin.reset_record();
        let edge = Setup::uncached(&origin).workers(1).upstream(line).start();
        for _ in 0..6 {
            edge.get("/x", &[]).verify_whole(10).expect("the body");
        }
        let made = origin
            .requests()
            .iter()
            .map(|seen| seen.connection)
            .collect::<std::collections::BTreeSet<_>>();
        assert_eq!(made.len(), connections, "{line}");
        drop(edge);
    }
    let edge = Setup::uncached(&origin)
        .upstream("keepalive_timeout = \"100ms\"")
        .start();
    edge.get("/x", &[]);
    let closed = origin.wait_for(|record| record.open_connections() == 0, SOON);
    assert!(closed, "an idle connection is closed in time");
}

// If a server has the maximum number of connections, requests wait for one. If too many requests
// wait, further ones are refused.
#[test]
fn connections_to_an_origin_are_limited() {
    let latch = Latch::closed();
    let origin = serving("/x", Resource::offset(10).hold_head(&latch));
    let edge = Setup::uncached(&origin)
        .with_http1_servers()
        .workers(1)
        .upstream("max_connections = 2\nqueue = 1")
        .start();
    let mut clients: Vec<Client> = (0..3).map(|_| edge.client()).collect();
    for client in &mut clients {
        client.send("GET", "/x", &[], b"").expect("sent");
    }
    wait_for_requests(&origin, "/x", 2);
    eventually("three at once", || edge.counter("requests_now") == 3);
    let refused = edge.get("/x", &[]);
    assert_eq!(refused.status, 503);
    assert_reason(&refused, "servers-busy");
    assert_eq!(origin.requests().len(), 2);
    latch.release();
    for client in &mut clients {
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(10).expect("each had its turn");
    }
    assert_eq!(origin.connections().len(), 2);
}

// One client's requests get at most half of the queue. Another client's request waits behind one of
// them, not behind all.
#[test]
fn clients_wait_for_connections_to_an_origin_in_turn() {
    let latch = Latch::closed();
    let origin = serving("/0", Resource::offset(10).hold_head(&latch));
    for target in ["/1", "/2", "/other"] {
        origin.serve(target, Resource::offset(10));
    }
    let edge = Setup::uncached(&origin)
        .with_http1_servers()
        .workers(1)
        .upstream("max_connections = 1\nqueue = 4")
        .start();
    let other = IpAddr::from([127, 0, 0, 2]);
    let mut clients = Vec::new();
    for (sent, target) in (1..).zip(["/0", "/1", "/2", "/other"]) {
        let mut client = match target {
            "/other" => {
                let refused = edge.get("/x", &[]);
                assert_eq!(refused.status, 503);
                assert_reason(&refused, "servers-busy");
                Client::connect_from(other, edge.http).expect("connected")
            }
            _ => edge.client(),
        };
        client.send("GET", target, &[], b"").expect("sent");
        eventually("the request waits", || edge.counter("requests_now") == sent);
        if target == "/0" {
            assert!(latch.wait_held(1, SOON));
        }
        clients.push(client);
    }
    latch.release();
    for client in &mut clients {
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(10).expect("each had its turn");
    }
    let order: Vec<_> = origin.requests().into_iter().map(|r| r.target).collect();
    assert_eq!(order, ["/0", "/1", "/other", "/2"]);
}

#[test]
fn hop_by_hop_headers_of_requests_are_removed() {
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::uncached(&origin).start();
    let fields = [
        ("Connection", "X-Mine, keep-alive, Host, Cookie"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("Proxy-Authorization", "Basic eDp5"),
        ("TE", "gzip"),
        ("Upgrade", "h2c"),
        ("X-Mine", "1"),
        ("Cookie", "a=b"),
        ("X-Other", "2"),
    ];
    edge.client().get("/x", &fields).expect("a reply");
    let seen = &origin.requests()[0];
    for gone in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "te",
        "upgrade",
        "x-mine",
    ] {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
    assert_eq!(seen.header("x-other"), Some("2"));
    assert_eq!(
        seen.header("cookie"),
        Some("a=b"),
        "Connection can't take it away"
    );
    assert!(seen.header("host").is_some());
}

#[test]
fn hop_by_hop_headers_of_responses_are_removed() {
    let resource = fresh(10)
        .header("Connection", "X-Theirs")
        .header("X-Theirs", "1")
        .header("Keep-Alive", "timeout=300")
        .header("Proxy-Authenticate", "Basic")
        .header("X-Other", "2");
    let origin = serving("/x", resource.clone());
    origin.serve("/pass/x", resource);
    let edge = Setup::cached(&origin).with_http1_servers().start();
    for target in ["/pass/x", "/x", "/x"] {
        let reply = edge.client().get(target, &[]).expect("a reply");
        for gone in ["connection", "x-theirs", "keep-alive", "proxy-authenticate"] {
            assert_eq!(reply.header(gone), None, "{target}: {gone}");
        }
        assert_eq!(reply.header("x-other"), Some("2"), "{target}");
    }
}

// Spellings of one authority share a cache key, so the origin receives the same one for all
// (RFC 9110 4.2.3, RFC 3986 6.2.3).
#[test]
fn the_origin_receives_the_authority_in_its_normal_form() {
    let origin = serving("/x", fresh(10));
    origin.serve("/pass/x", Resource::offset(10));
    for (host, normal) in [
        ("Name.example:80", "name.example"),
        ("name.example:00080", "name.example"),
        ("name.example:", "name.example"),
        ("name.example:08080", "name.example:8080"),
        ("[::1]:80", "[::1]"),
    ] {
        for path in ["/x", "/pass/x"] {
            for target in [path.to_owned(), format!("http://{host}{path}")] {
                origin.reset_record();
                let edge = Setup::cached(&origin).in_clear_text().start();
                let request =
                    format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
                edge.send_raw(request.as_bytes());
                let seen = &origin.requests()[0];
                assert_eq!(seen.header("host"), Some(normal), "{target}");
                assert_eq!(seen.header("x-forwarded-host"), Some(normal), "{target}");
                let forwarded = seen.header("forwarded").expect("the header");
                assert!(
                    forwarded.contains(&format!("host=\"{normal}\"")),
                    "{forwarded}"
                );
            }
        }
    }
}

// The default port depends on the scheme that a trusted proxy reports.
#[test]
fn the_default_port_of_a_reported_scheme_is_left_out() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::of_text(Setup::cached(&origin).text().replacen(
        "[server]\n",
        "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n",
        1,
    ))
    .start();
    for host in ["a.example:443", "a.example"] {
        let headers = [("Host", host), ("X-Forwarded-Proto", "https")];
        let reply = edge.client().get("/x", &headers).expect("a reply");
        assert_eq!(reply.status, 200, "{host}: {}", reply.text());
    }
    let seen = origin.requests();
    assert_eq!(seen.len(), 1, "one key");
    assert_eq!(seen[0].header("host"), Some("a.example"));
}

// The edge sets Via, X-Forwarded-* and Forwarded itself, and ignores the values that a client
// sends.
#[test]
fn the_origin_receives_the_client_s_address_in_headers() {
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::uncached(&origin).in_clear_text().start();
    let lies = [
        ("Host", "A.example"),
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Proto", "https"),
        ("X-Real-IP", "6.6.6.6"),
        ("Forwarded", "for=6.6.6.6"),
        ("Via", "1.1 before"),
    ];
    let from = "127.0.0.7".parse().expect("an address");
    let mut client = Client::connect_from(from, edge.http).expect("a connection");
    let reply = client.get("/x", &lies).expect("a reply");
    let seen = &origin.requests()[0];
    assert_eq!(reply.header_all("via"), [seen.via("sluice")]);
    assert_eq!(seen.header_all("x-forwarded-for"), ["127.0.0.7"]);
    assert_eq!(seen.header_all("x-forwarded-host"), ["a.example"]);
    assert_eq!(seen.header_all("x-forwarded-proto"), ["http"]);
    let forwarded = "for=127.0.0.7;host=\"a.example\";proto=http";
    assert_eq!(seen.header_all("forwarded"), [forwarded]);
    let received = match client.is_http2() {
        true => "2.0 sluice",
        false => "1.1 sluice",
    };
    assert_eq!(seen.header_all("via"), ["1.1 before", received]);
    assert!(!String::from_utf8_lossy(&seen.raw_head).contains("6.6.6.6"));
}

#[test]
fn interim_responses_are_forwarded() {
    let latch = Latch::closed();
    let hinting = fresh(10)
        .interim(103, &[("Link", "</a.css>; rel=preload")])
        .hold_head(&latch);
    let origin = serving("/pass/x", hinting);
    let edge = Setup::cached(&origin).start();
    let mut client = edge.client();
    client.send("GET", "/pass/x", &[], b"").expect("sent");
    let hint = client.read_head().expect("a hint while the origin thinks");
    assert_eq!(hint.status, 103);
    assert_eq!(hint.header("link"), Some("</a.css>; rel=preload"));
    latch.release();
    let reply = client.read_response().expect("a reply");
    reply.verify_whole(10).expect("the body");
    let mut client = edge.client();
    client
        .send_raw(b"GET /pass/x HTTP/1.0\r\nHost: a\r\n\r\n")
        .expect("sent");
    let old = client.read_response().expect("a reply");
    assert!(old.interim.is_empty(), "HTTP/1.0 knows no 1xx");
}

// The origin has closed an idle connection when the edge sends a safe request on it. The edge
// repeats the request on a new connection.
#[test]
fn a_safe_request_is_retried_on_a_new_connection() {
    for ending in [Ending::Fin, Ending::Reset] {
        let stale = Resource::offset(1000).fault(Fault::EndBeforeHeadOnReuse(ending));
        let origin = serving("/x", stale);
        let edge = Setup::uncached(&origin).workers(1).start();
        for _ in 0..3 {
            edge.get("/x", &[]).verify_whole(1000).expect("the body");
        }
        assert_eq!(origin.requests().len(), 5, "1, then 2 with one more each");
        assert_eq!(edge.counter("upstream_retries"), 2);
    }
}

// The origin also closes the new connection without a response. The request fails and is not
// repeated again.
#[test]
fn a_request_is_retried_only_once() {
    let origin = origin();
    origin.serve("/good", Resource::offset(10));
    origin.serve(
        "/bad",
        Resource::offset(10).fault(Fault::EndBeforeHead(Ending::Fin)),
    );
    let edge = Setup::uncached(&origin).workers(1).start();
    edge.get("/good", &[]).verify_whole(10).expect("the body");
    let reply = edge.get("/bad", &[]);
    assert_eq!(reply.status, 502);
    assert_reason(&reply, "closed-before-head");
    assert_eq!(origin.read_record(|record| record.count("/bad")), 2);
}

// The origin may have processed a POST before it closed the connection, so the POST is not
// repeated.
#[test]
fn an_unsafe_request_is_not_retried() {
    let stale = Resource::offset(1000).fault(Fault::EndBeforeHeadOnReuse(Ending::Fin));
    let origin = serving("/x", stale);
    let edge = Setup::uncached(&origin).workers(1).start();
    edge.get("/x", &[]).verify_whole(1000).expect("the body");
    let reply = edge.ask("POST", "/x", &[], b"pay");
    let posts = origin
        .requests()
        .iter()
        .filter(|seen| seen.method == "POST")
        .count();
    assert_eq!(posts, 1);
    match reply.status {
        502 => assert_reason(&reply, "stale-connection"),
        status => assert_eq!(status, 200, "it took no chance with the old connection"),
    }
    let put = edge.ask("PUT", "/x", &[], b"the same each time");
    assert_eq!(put.status, 200, "doing it twice is like doing it once");
}

// Before the edge uses an idle connection, it notices that the origin has closed it. Therefore no
// request of any method fails.
#[test]
fn a_closed_idle_connection_is_not_used() {
    let origin = serving("/x", Resource::offset(10));
    origin.set_rules(|rules| rules.max_requests_silent = Some(1));
    let edge = Setup::uncached(&origin).workers(1).start();
    for n in 1..=5 {
        let reply = edge.ask("POST", "/x", &[], b"pay");
        assert_eq!(reply.status, 200);
        assert_eq!(origin.requests().len(), n, "each came once");
        eventually("the pool has noticed", || {
            edge.counter("upstream_idle_now") == 0
        });
    }
}

// One of two servers is down. The edge sends the request to the other one.
#[test]
fn another_server_is_tried_when_one_is_down() {
    let (down, up) = (origin(), serving("/x", Resource::offset(10)));
    down.refuse().expect("it stops listening");
    let edge = Setup::uncached(&down).also(&up).start();
    for _ in 0..6 {
        edge.get("/x", &[]).verify_whole(10).expect("the body");
    }
    assert_eq!(up.requests().len(), 6);
}

// The origin needs long for its response, but not longer than the timeout.
#[test]
fn a_slow_origin_within_its_timeout_is_no_fault() {
    let slow = slow(Resource::offset(10), Duration::from_millis(200));
    let origin = serving("/x", slow);
    let edge = Setup::uncached(&origin)
        .upstream("read_timeout = \"10s\"")
        .start();
    edge.get("/x", &[]).verify_whole(10).expect("the body");
}
