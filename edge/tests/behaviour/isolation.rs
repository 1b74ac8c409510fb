//! Tests of isolation: the result of one client's request, or a single failure of the origin,
//! affects no other client and removes no stored response.

use sluice_lab::origin::{Gate, Resource};

use crate::caching_rules::*;
use crate::harness::*;

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
    let gate = Gate::closed();
    let held = gate.clone();
    let by_credentials = Resource::dynamic(move |seen| match seen.header("authorization") {
        Some(_) => Resource::bytes("alice").cache_control("private"),
        None => Resource::bytes("anonymous")
            .version(1)
            .cache_control("max-age=3600")
            .gate_head(&held),
    });
    origin.serve("/x", by_credentials);
    let first = Crowd::of(&edge, 1, "/x", &[]);
    assert!(gate.wait_held(1, SOON));
    let second = Crowd::beside(1, &edge, 1, "/x", &[("Authorization", "Basic alice")]);
    gate.release();
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

// A 429 says nothing about the stored response. A later request revalidates it.
#[test]
fn a_temporary_refusal_does_not_remove_the_stored_response() {
    for status in [403, 406, 429] {
        let (origin, edge) = stored(stale(""));
        origin.serve("/x", Resource::status(status));
        assert_eq!(edge.get("/x", &[]).status, status);
        origin.serve("/x", current());
        assert_validated(&edge.get("/x", &[]));
        assert_hit(&edge.get("/x", &[]));
    }
}

// While the new version of a stale response is being received, requests that arrive share the
// bytes.
#[test]
fn a_new_version_in_flight_is_shared() {
    let gate = Gate::at(100);
    let (origin, edge) = stored(stale(""));
    origin.serve("/x", current().version(1).gate(&gate));
    let mut first = edge.client();
    first.send("GET", "/x", &[], b"").expect("sent");
    first.read_head().expect("a head");
    let mut second = edge.client();
    second.send("GET", "/x", &[], b"").expect("sent");
    eventually("both share the fetch", || edge.counter("requests_now") == 2);
    gate.release();
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
    let gate = Gate::closed();
    for n in 0..MANY {
        origin.serve(&path(n), current().gate_head(&gate));
    }
    for n in 0..MANY {
        assert_stale(&get(&path(n)), "stale-while-revalidate");
    }
    let flights = edge.counter("flights_now");
    assert!((1..=256).contains(&flights), "{flights} fetches at once");
    gate.release();
}
