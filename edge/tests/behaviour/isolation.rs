//! Tests of isolation: the result of one client's request, or a single failure of the origin,
//! affects no other client and removes no stored response.

use std::sync::atomic::{AtomicUsize, Ordering};

use sluice_lab::origin::{Ending, Fault, Latch, Resource, Seen};

use crate::caching_rules::*;
use crate::harness::*;
use crate::partial_objects::{BLOCK, MODES, bytes, check_range, filling, good};

/// Returns a resource that refuses requests with bad credentials. Requests without credentials
/// receive the response of `else_what`.
fn guarded(else_what: impl Fn() -> Resource + Send + Sync + 'static) -> Resource {
    Resource::dynamic(move |seen| match seen.header("authorization") {
        Some(_) => Resource::status(401),
        None => else_what(),
    })
}

// RFC 9111 3.5: a request with credentials must not receive the response to the validation that a
// request without credentials caused.
#[test]
fn a_request_with_credentials_does_not_share_the_validation_of_others() {
    let (origin, edge) = stored(stale(", public"));
    let latch = Latch::closed();
    let held = latch.clone();
    let by_credentials = Resource::dynamic(move |seen| match seen.header("authorization") {
        Some(_) => Resource::bytes("alice").cache_control("private"),
        None => Resource::bytes("anonymous")
            .version(1)
            .cache_control("max-age=3600")
            .hold_head(&held),
    });
    origin.serve("/x", by_credentials);
    let first = Crowd::of(&edge, 1, "/x", &[]);
    assert!(latch.wait_held(1, SOON));
    let second = Crowd::beside(1, &edge, 1, "/x", &[("Authorization", "Basic alice")]);
    latch.release();
    first.replies();
    assert_eq!(&second.replies().remove(0).body[..], b"alice");
}

#[test]
fn a_response_to_credentials_does_not_make_others_bypass_the_cache() {
    let origin = serving(
        "/x",
        Resource::dynamic(|seen| match seen.header("authorization") {
            Some(_) => Resource::bytes("alice").cache_control("private"),
            None => current(),
        }),
    );
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[("Authorization", "Basic alice")]);
    edge.get("/x", &[]);
    assert_hit(&edge.get("/x", &[]));
}

#[test]
fn bad_credentials_do_not_remove_stored_responses() {
    let (origin, edge) = stored(stale(", public"));
    origin.serve("/x", guarded(current));
    let bad = edge.get("/x", &[("Authorization", "Basic bad")]);
    assert_eq!(bad.status, 401);
    assert_validated(&edge.get("/x", &[]));
}

#[test]
fn bad_credentials_do_not_cut_off_downloads_of_others() {
    const FILE: u64 = 64 << 20;
    let file = || Resource::offset(FILE).cache_control("public, max-age=3600");
    let origin = serving("/x", file());
    let edge = Setup::cached(&origin).cache("fill = \"slice\"").start();
    edge.get("/x", &[("Range", "bytes=0-9")]);
    let mut slow = edge.slow_reader();
    slow.send("GET", "/x", &[], b"").expect("sent");
    eventually("it reads", || times(&origin, "/x") >= 2);
    origin.serve("/x", guarded(file));
    let far = ("Range", "bytes=60000000-60000009");
    let bad = edge.get("/x", &[far, ("Authorization", "bad")]);
    assert_ne!(bad.status, 200);
    let reply = slow.read_response().expect("a reply");
    reply.verify_whole(FILE).expect("all of it");
}

// A 429 says nothing about the stored response. A later request revalidates it. After another refusal,
// requests are forwarded for a second first.
#[test]
fn a_temporary_refusal_does_not_remove_the_stored_response() {
    for status in [403, 406, 429] {
        let (origin, edge) = stored(stale(""));
        origin.serve("/x", Resource::status(status));
        assert_eq!(edge.get("/x", &[]).status, status);
        origin.serve("/x", current());
        eventually("the stored response is validated", || {
            let reply = edge.get("/x", &[]);
            reply.verify_whole(LENGTH).expect("the body");
            cache_status(&reply).contains("fwd-status=304")
        });
        assert_hit(&edge.get("/x", &[]));
    }
}

// While the new version of a stale response is being received, requests that arrive share the
// bytes.
#[test]
fn a_new_version_in_flight_is_shared() {
    let latch = Latch::at(100);
    let (origin, edge) = stored(stale(""));
    origin.serve("/x", current().version(1).hold_body(&latch));
    let mut first = edge.client();
    first.send("GET", "/x", &[], b"").expect("sent");
    first.read_head().expect("a head");
    let mut second = edge.client();
    second.send("GET", "/x", &[], b"").expect("sent");
    eventually("both share the fetch", || edge.counter("requests_now") == 2);
    latch.release();
    let reply = second.read_response().expect("a reply");
    reply.verify_version(1, 0).expect("the new one");
    assert_eq!(times(&origin, "/x"), 2);
    eventually("it is in its place", || {
        cache_status(&edge.get("/x", &[])).contains("hit")
    });
    assert_eq!(times(&origin, "/x"), 2);
}

// The origin responds with a temporary refusal to a background fetch. Later requests must not cause
// one background fetch each.
#[test]
fn a_temporary_refusal_is_not_retried_at_once() {
    let (origin, edge) = stored(stale(", stale-while-revalidate=3600"));
    origin.serve("/x", Resource::status(429));
    assert_stale(&edge.get("/x", &[]), "stale-while-revalidate");
    wait_for_requests(&origin, "/x", 2);
    eventually("it is known", || edge.counter("flights_now") == 0);
    for _ in 0..20 {
        assert_stale(&edge.get("/x", &[]), "stale-while-revalidate");
    }
    let asked = times(&origin, "/x");
    assert!(asked <= 6, "{asked} times");
}

// Only requests with credentials receive a 304 or a failure. Requests of other clients must not be
// affected.
#[test]
fn responses_to_credentials_do_not_affect_other_clients() {
    let control = ", public, stale-if-error=3600";
    for answer in [
        Resource::status(503),
        stale("").cache_control("private, max-age=60"),
    ] {
        let (origin, edge) = stored(stale(control));
        origin.serve(
            "/x",
            Resource::dynamic(move |seen| match seen.header("authorization") {
                Some(_) => answer.clone(),
                None => current(),
            }),
        );
        edge.get("/x", &[("Authorization", "Basic alice")]);
        assert_validated(&edge.get("/x", &[]));
    }
}

// RFC 9111 7.3: a cookie in a 304 goes only to the client whose request caused the validation. The
// stored response stays without it.
#[test]
fn a_cookie_in_a_304_is_for_its_client_only() {
    for setting in ["pass", "remove"] {
        let (origin, edge) = stored_with(stale(""), &format!("set_cookie = \"{setting}\""));
        origin.serve("/x", current().header("Set-Cookie", "a=1"));
        let asked = edge.get("/x", &[]);
        assert_validated(&asked);
        assert_eq!(asked.header("set-cookie"), Some("a=1"));
        let hit = edge.get("/x", &[]);
        assert_hit(&hit);
        assert_eq!(hit.header("set-cookie"), None);
    }
}

// The origin ignores If-None-Match and honours Range. Its 206 has the validator of the stored
// response, which is thereby confirmed.
#[test]
fn the_same_version_in_parts_confirms_the_stored_response() {
    const FILE: u64 = 8 << 20;
    let file = |control: &str, age: &str| {
        Resource::offset(FILE)
            .tag(tagged("v"))
            .cache_control(control)
            .header("Age", age)
    };
    let origin = serving("/x", file("max-age=60", "100"));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]).verify_whole(FILE).expect("the body");
    let sent = origin.read_record(|record| record.sent_for("/x"));
    origin.serve("/x", file("max-age=3600", "0").conditional(false));
    let part = edge.get("/x", &[("Range", "bytes=10-19")]);
    part.verify_range(10, 19, FILE).expect("the range");
    let whole = edge.get("/x", &[]);
    assert_hit(&whole);
    whole.verify_whole(FILE).expect("the body");
    let more = origin.read_record(|record| record.sent_for("/x")) - sent;
    assert!(more < FILE, "{more} bytes were sent again");
}

// The number of concurrent background fetches is limited, and no client waits for one.
#[test]
fn background_fetches_are_limited() {
    const MANY: usize = 600;
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    let mut client = edge.client();
    let mut get = |path: &str| {
        client.send("GET", path, &[], b"").expect("sent");
        client.read_response().expect("a reply")
    };
    let path = |n: usize| format!("/{n}");
    for n in 0..MANY {
        origin.serve(&path(n), stale(", stale-while-revalidate=3600"));
        get(&path(n));
    }
    let latch = Latch::closed();
    for n in 0..MANY {
        origin.serve(&path(n), current().hold_head(&latch));
    }
    for n in 0..MANY {
        assert_stale(&get(&path(n)), "stale-while-revalidate");
    }
    let flights = edge.counter("flights_now");
    assert!((1..=256).contains(&flights), "{flights} fetches at once");
    latch.release();
}

// The origin closes the connection on a request with bad credentials for a block that is not stored.
// The failure is the owner's alone: another client's request for this block is sent to the origin.
#[test]
fn a_connection_closed_for_bad_credentials_does_not_fail_other_clients() {
    let is_bad = |seen: &Seen| seen.header("authorization").is_some();
    let choose = move |seen: &Seen| match is_bad(seen) {
        true => good(seen).fault(Fault::EndBeforeHead(Ending::Fin)),
        false => good(seen).cache_control("public, max-age=3600"),
    };
    for mode in MODES {
        let origin = serving("/x", Resource::dynamic(choose));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 0, 9);
        let (first, last) = (4 * BLOCK, 4 * BLOCK + 9);
        for _ in 0..3 {
            let before = origin.requests().len();
            let fields = [
                ("Authorization", "Basic bad"),
                ("Range", &*bytes(first, last)),
            ];
            let refused = edge.get("/x", &fields);
            assert_eq!(refused.status, 502, "{mode}: {}", cache_status(&refused));
            let tries = origin.requests().len() - before;
            assert!(tries <= 4, "{mode}: {tries} requests");
        }
        check_range(&edge, first, last);
        check_range(&edge, 0, 9);
    }
}

// Clients wait for a validation with the credentials of one client, for which the origin closes the
// connection. The others are looked up again, and the origin confirms the response for them.
#[test]
fn a_connection_closed_for_one_clients_validation_does_not_fail_others() {
    let origin = serving("/x", stale(", public"));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]);
    let latch = Latch::closed();
    let (held, tries) = (latch.clone(), AtomicUsize::new(0));
    let choose = move |seen: &Seen| match seen.header("authorization") {
        Some("bad") if tries.fetch_add(1, Ordering::Relaxed) == 0 => current().hold_head(&held),
        Some("bad") => current().fault(Fault::EndBeforeHead(Ending::Fin)),
        _ => current(),
    };
    origin.serve("/x", Resource::dynamic(choose));
    let refused = Crowd::of(&edge, 1, "/x", &[("Authorization", "bad")]);
    assert!(latch.wait_held(1, SOON));
    let others = Crowd::beside(1, &edge, 4, "/x", &[]);
    origin.drop_connections();
    for reply in others.replies() {
        reply.verify_whole(LENGTH).expect("the stored body");
    }
    refused.replies();
    latch.release();
}
