//! Tests that responses which refuse one client, or its headers, change nothing for other clients.

use sluice_lab::client::{Client, ClientOptions, Reply};
use sluice_lab::origin::{Ending, Fault, Latch, Origin, Resource, Seen};

use crate::caching_rules::{LENGTH, assert_validated, stale};
use crate::disks::{Disks, settled, start, sum, written};
use crate::harness::{
    Edge, SOON, Setup, assert_hit, cache_status, eventually, fresh, serving, wait_for_requests,
};
use crate::partial_objects::{
    BLOCK, FILE, ask_range, by_range, bytes, check_range, filling, good, send_whole,
};

/// The statuses with which an origin or a firewall refuses a request for its client.
const REFUSALS: [u16; 11] = [400, 401, 403, 404, 405, 406, 412, 416, 429, 431, 501];

/// A value of Accept to which the origin of a test objects.
const BAD: (&str, &str) = ("Accept", "application/x-bad");

fn is_bad(seen: &Seen) -> bool {
    let has = |name: &str| {
        seen.header(name)
            .is_some_and(|value| value.contains("x-bad"))
    };
    has("accept") || has("x-who")
}

/// Returns a resource that refuses requests with a bad header by this response.
fn refusing(
    refusal: Resource,
    other: impl Fn(&Seen) -> Resource + Send + Sync + 'static,
) -> Resource {
    Resource::dynamic(move |seen| match is_bad(seen) {
        true => refusal.clone(),
        false => other(seen),
    })
}

fn refusals() -> Vec<Resource> {
    let page = Resource::bytes("Are you human?")
        .cache_control("no-store")
        .ranges(false);
    let mut all: Vec<_> = REFUSALS.into_iter().map(Resource::status).collect();
    all.push(page);
    let reset = Fault::EndBeforeHead(Ending::Reset);
    all.push(Resource::bytes("").fault(reset));
    all.push(Resource::status(403).cache_control("max-age=60"));
    all
}

fn block(number: u64) -> (u64, u64) {
    (number * BLOCK + 10, number * BLOCK + 19)
}

fn ask_block(edge: &Edge, number: u64, headers: &[(&str, &str)]) -> Reply {
    let (first, last) = block(number);
    let range = bytes(first, last);
    let mut all = vec![("Range", &*range)];
    all.extend(headers);
    edge.get("/x", &all)
}

fn check_block(edge: &Edge, number: u64) -> Reply {
    let (first, last) = block(number);
    check_range(edge, first, last)
}

// A shared fetch names no client: it has a User-Agent of its own, and no client's address. A
// request that is forwarded separately has both.
#[test]
fn a_shared_fetch_names_no_client() {
    let origin = serving("/x", fresh(10));
    origin.serve("/y", fresh(10).cache_control("no-store"));
    let edge = Setup::cached(&origin).start();
    let from = ClientOptions {
        source: Some("127.0.0.7".parse().expect("an address")),
        ..ClientOptions::default()
    };
    let mut client = Client::connect_with(edge.http, &from).expect("connected");
    let headers = [
        ("User-Agent", "browser"),
        ("Referer", "http://a/"),
        ("Accept", "text/html , */*"),
    ];
    client.get("/x", &headers).expect("a reply");
    let seen = origin.requests().pop().expect("a request");
    assert!(
        seen.header("user-agent")
            .is_some_and(|agent| agent.starts_with("sluice/"))
    );
    assert_eq!(seen.header("accept"), Some("text/html,*/*"));
    assert_eq!(
        (seen.header("x-forwarded-for"), seen.header("referer")),
        (None, None)
    );
    assert!(
        !seen
            .header("forwarded")
            .expect("Forwarded")
            .contains("for=")
    );
    for _ in 0..2 {
        client.get("/y", &headers).expect("a reply");
    }
    let seen = origin.requests().pop().expect("a request");
    assert_eq!(seen.header("user-agent"), Some("browser"));
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.7"));
}

// With `forward_headers = ["User-Agent", "X-Forwarded-For"]`, shared fetches carry the values of the
// client that caused them.
#[test]
fn shared_fetches_report_the_client_if_configured() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin)
        .cache("forward_headers = [\"User-Agent\", \"X-Forwarded-For\"]")
        .start();
    edge.get(
        "/x",
        &[("User-Agent", "browser"), ("X-Forwarded-For", "192.0.2.1")],
    );
    let seen = origin.requests().pop().expect("a request");
    assert_eq!(seen.header("user-agent"), Some("browser"));
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
}

fn with_first_block(refusal: Resource, line: &str) -> (Origin, Edge) {
    let origin = serving("/x", refusing(refusal, good));
    let edge = filling(&origin, "slice").cache(line).start();
    check_block(&edge, 0);
    (origin, edge)
}

// The origin refuses the fetch of a block for a header of one client. The stored object stays, and
// other clients get the other blocks by ranges.
#[test]
fn a_refused_fetch_of_a_block_leaves_the_object_to_other_clients() {
    for refusal in refusals() {
        for (line, header) in [
            ("", BAD),
            ("forward_headers = [\"X-Who\"]", ("X-Who", "x-bad")),
        ] {
            let (origin, edge) = with_first_block(refusal.clone(), line);
            ask_block(&edge, 4, &[header]);
            assert_hit(&check_block(&edge, 0));
            for number in [4, 5] {
                check_block(&edge, number);
                assert_hit(&check_block(&edge, number));
            }
            let ranges = origin.requests();
            assert!(ranges.iter().all(|seen| seen.header("range").is_some()));
        }
    }
}

// The object is also on a volume, and stays there.
#[test]
fn a_refused_fetch_of_a_block_leaves_the_object_on_the_volume() {
    for refusal in refusals() {
        let origin = serving("/x", refusing(refusal, good));
        let disks = Disks::new(1);
        let setup = disks.setup(&origin);
        let edge = start(&setup.cache("fill = \"slice\""));
        check_block(&edge, 0);
        check_block(&edge, 1);
        written(&edge, 3);
        ask_block(&edge, 4, &[BAD]);
        settled(&edge);
        assert!(sum(&edge, "records") >= 3);
        assert_hit(&check_block(&edge, 0));
    }
}

// Several clients wait for the first fetch of a resource, which the origin refuses for a header of
// the client that caused it. The others share one more fetch.
#[test]
fn clients_that_wait_for_a_refused_fetch_share_the_next_one() {
    let latch = Latch::closed();
    let refusal = Resource::status(403).hold_head(&latch);
    let origin = serving("/x", refusing(refusal, |_| fresh(10)));
    let edge = Setup::cached(&origin).start();
    let mut refused = edge.client();
    refused.send("GET", "/x", &[BAD], b"").expect("sent");
    assert!(latch.wait_held(1, SOON));
    let mut others: Vec<_> = (0..5).map(|_| send_whole(&edge)).collect();
    eventually("all wait", || edge.counter("requests_now") == 6);
    latch.release();
    assert_eq!(refused.read_response().expect("a reply").status, 403);
    for other in &mut others {
        let reply = other.read_response().expect("a reply");
        reply.verify_whole(10).expect("the body");
    }
    assert_eq!(origin.requests().len(), 2);
}

// The same while another client downloads the object.
#[test]
fn a_refused_fetch_of_a_block_does_not_cut_a_download() {
    for refusal in refusals() {
        let latch = Latch::at(BLOCK);
        let slow = latch.clone();
        let other = move |seen: &Seen| match seen.header("range") {
            Some(range) if range.starts_with("bytes=0-") => good(seen).hold_body(&slow),
            _ => good(seen),
        };
        let origin = serving("/x", refusing(refusal, other));
        let edge = filling(&origin, "slice").cache("read_ahead = 0").start();
        check_block(&edge, 0);
        let mut download = send_whole(&edge);
        wait_for_requests(&origin, "/x", 2);
        ask_block(&edge, 9, &[BAD]);
        latch.release();
        let reply = download.read_response().expect("a reply");
        reply.verify_whole(FILE).expect("the whole content");
    }
}

// The origin refuses the first fetch of a resource for a header of one client, even with a lifetime.
// The next client's response comes from the origin, and is stored.
#[test]
fn a_refusal_of_one_client_is_not_stored() {
    for refusal in refusals() {
        let status = refusal.clone();
        let origin = serving("/x", refusing(status, |_| fresh(10)));
        let edge = Setup::cached(&origin)
            .cache("valid = { any = \"1m\" }\nforward_headers = [\"X-Who\"]")
            .start();
        edge.get("/x", &[("X-Who", "x-bad")]);
        edge.get("/x", &[]).verify_whole(10).expect("the body");
        assert_hit(&edge.get("/x", &[]));
    }
}

// Clients can't choose a header that `trusted_headers` names, so an error that answers a fetch with
// this header is stored for all.
#[test]
fn an_error_for_a_trusted_header_is_stored() {
    let refusal = Resource::status(403).cache_control("max-age=60");
    let origin = serving("/x", refusing(refusal, |_| fresh(10)));
    let edge = Setup::cached(&origin)
        .cache("trusted_headers = [\"X-Who\"]")
        .start();
    assert_eq!(edge.get("/x", &[("X-Who", "x-bad")]).status, 403);
    let other = edge.get("/x", &[]);
    assert_eq!(other.status, 403);
    assert_hit(&other);
}

// A header of one client that is longer than origins accept is not part of a shared fetch.
#[test]
fn a_long_header_of_one_client_is_left_out() {
    let long = |seen: &Seen| seen.headers.iter().any(|(_, value)| value.len() > 8000);
    let origin = serving(
        "/x",
        Resource::dynamic(move |seen| match long(seen) {
            true => Resource::status(400),
            false => fresh(10),
        }),
    );
    let edge = Setup::cached(&origin)
        .cache("valid = { any = \"1m\" }\nforward_headers = [\"X-Who\"]")
        .start();
    let value = "x".repeat(9000);
    for name in ["Accept", "Accept-Language", "X-Who", "User-Agent"] {
        edge.get("/x", &[(name, &value)]);
        edge.get("/x", &[]).verify_whole(10).expect("the body");
    }
}

// A shared fetch leaves the long header out, so the response would be stored for requests without
// the header. Such requests are forwarded separately instead.
#[test]
fn a_long_header_that_vary_names_is_forwarded_separately() {
    let length = |seen: &Seen| seen.header("x-who").map_or(0, str::len);
    let origin = serving(
        "/x",
        Resource::dynamic(move |seen| {
            let vary = Resource::bytes(length(seen).to_string()).vary("X-Who");
            vary.cache_control("max-age=60")
        }),
    );
    let edge = Setup::cached(&origin).start();
    assert_eq!(edge.get("/x", &[]).text(), "0");
    for (length, stored) in [(1025, false), (1024, true)] {
        let value = "x".repeat(length);
        for _ in 0..2 {
            let before = origin.requests().len();
            let reply = edge.get("/x", &[("X-Who", &value)]);
            assert_eq!(reply.text(), length.to_string());
            assert_eq!(cache_status(&reply).contains("long-header"), !stored);
            assert!(origin.requests().len() <= before + 1);
        }
        assert_hit(&edge.get("/x", &[]));
    }
    assert_eq!(origin.requests().len(), 4);
}

// The origin refuses a validation for a header of one client. The stored response stays, and is
// confirmed for the next client.
#[test]
fn a_refused_validation_keeps_the_stored_response() {
    for refusal in refusals() {
        let origin = serving("/x", refusing(refusal, |_| stale("")));
        let edge = Setup::cached(&origin).start();
        edge.get("/x", &[]).verify_whole(LENGTH).expect("stored");
        edge.get("/x", &[BAD]);
        assert_validated(&edge.get("/x", &[]));
    }
}

// The origin fails for one block. Other blocks are requested from it all the same.
#[test]
fn failures_of_one_block_do_not_count_for_others() {
    for status in [429, 500, 503] {
        let failing = move |seen: &Seen| {
            let start = 4 * BLOCK;
            match seen
                .header("range")
                .is_some_and(|range| range.starts_with(&format!("bytes={start}-")))
            {
                true => Resource::status(status),
                false => good(seen),
            }
        };
        let origin = serving("/x", Resource::dynamic(failing));
        let edge = filling(&origin, "slice").start();
        check_block(&edge, 0);
        for number in [5, 6, 7, 8] {
            for _ in 0..4 {
                assert_ne!(ask_block(&edge, 4, &[]).status, 206);
            }
            check_block(&edge, number);
        }
    }
}

// A range beyond the end of a resource that is not stored costs one request to the origin.
#[test]
fn a_cold_range_beyond_the_end_costs_one_request() {
    let origin = serving("/x", Resource::dynamic(good));
    let edge = filling(&origin, "slice").start();
    let reply = ask_range(&edge, FILE + 5 * BLOCK, FILE + 5 * BLOCK + 9);
    assert_eq!(reply.status, 416);
    assert_eq!(
        reply.header("content-range"),
        Some(&*format!("bytes */{FILE}"))
    );
    assert_eq!(origin.requests().len(), 1);
}

// Several ranges that are all beyond the end cost one request to the origin, too. If one of them is not,
// the client gets it.
#[test]
fn cold_ranges_beyond_the_end_cost_one_request() {
    for fill in ["auto", "slice"] {
        let origin = serving("/x", Resource::dynamic(good));
        let edge = filling(&origin, fill).start();
        let (a, b) = (FILE + BLOCK, FILE + 2 * BLOCK);
        let beyond = format!("bytes={a}-{},{b}-{}", a + 1, b + 1);
        for requests in 1..=2 {
            let reply = edge.get("/x", &[("Range", &beyond)]);
            assert_eq!(reply.status, 416, "{fill}");
            let range = format!("bytes */{FILE}");
            assert_eq!(reply.header("content-range"), Some(&*range));
            assert_eq!(origin.requests().len(), requests, "{fill}");
        }
        let reply = edge.get("/x", &[("Range", &format!("bytes={a}-{b},5-9"))]);
        reply.verify_range(5, 9, FILE).expect("the other range");
    }
}

// The origin refuses requests with Range. A client that sends Accept gets its range all the same,
// from a fetch without Range.
#[test]
fn a_refused_range_is_fetched_without_range_for_a_client_with_headers() {
    for status in [400, 403, 405, 406, 412, 501] {
        let refused = move |_: &Seen| Resource::status(status);
        let origin = serving("/x", by_range(refused, good));
        let edge = filling(&origin, "slice").start();
        let (first, last) = block(1);
        let range = bytes(first, last);
        let reply = edge.get("/x", &[("Range", &range), ("Accept", "text/html")]);
        reply.verify_range(first, last, FILE).expect("the range");
    }
}

// Several clients wait for a validation, and the origin fails. None of them is sent to the origin
// separately (RFC 9111 4.3.3).
#[test]
fn clients_that_wait_for_a_failed_validation_are_not_sent_to_the_origin() {
    for status in [429, 500, 503] {
        let latch = Latch::closed();
        let origin = serving("/x", stale(""));
        let edge = Setup::cached(&origin).start();
        edge.get("/x", &[]).verify_whole(LENGTH).expect("stored");
        origin.serve("/x", Resource::status(status).hold_head(&latch));
        let mut clients: Vec<_> = (0..5).map(|_| send_whole(&edge)).collect();
        eventually("all wait", || edge.counter("requests_now") == 5);
        assert!(latch.wait_held(1, SOON));
        latch.release();
        let replies = clients.iter_mut().map(|client| client.read_response());
        let mut statuses: Vec<_> = replies
            .map(|reply| reply.expect("a reply").status)
            .collect();
        statuses.sort_unstable();
        let mut expected = vec![502, 502, 502, 502, status];
        expected.sort_unstable();
        assert_eq!(statuses, expected);
        assert_eq!(origin.requests().len(), 2);
    }
}
