//! Tests of what a fetch with one client's headers may teach, and of the neutral fetches that confirm
//! it for all.

use sluice_lab::client::Reply;
use sluice_lab::origin::{Fault, Latch, Resource, Seen};

use crate::caching_rules::{LENGTH, assert_validated, stale};
use crate::harness::{
    Edge, SOON, Setup, assert_hit, eventually, fresh, serving, wait_for_requests,
};
use crate::partial_objects::{BLOCK, FILE, MODES, bytes, check_range, filling, good, send_whole};

/// Headers to which the origin of a test objects. The second one is in `forward_headers`.
const BAD: [(&str, &str); 2] = [("Accept", "application/x-bad"), ("X-Who", "x-bad")];

const FORWARD: &str = "forward_headers = [\"X-Who\"]";

/// An entry in CDN-Loop as another Sluice adds it.
const ENTRY: (&str, &str) = ("CDN-Loop", "sluice-0123456789abcdef;k=fedcba9876543210");

fn is_bad(seen: &Seen) -> bool {
    let has = |name: &str| {
        seen.header(name)
            .is_some_and(|value| value.contains("x-bad"))
    };
    has("accept") || has("accept-language") || has("x-who")
}

/// Returns a resource that answers requests with a bad header by `bad`, and others by `other`.
fn either(bad: Resource, other: impl Fn(&Seen) -> Resource + Send + Sync + 'static) -> Resource {
    Resource::dynamic(move |seen| match is_bad(seen) {
        true => bad.clone(),
        false => other(seen),
    })
}

fn gone(status: u16) -> Resource {
    Resource::status(status).cache_control("max-age=60")
}

fn private() -> Resource {
    Resource::bytes("Are you human?").cache_control("no-store")
}

fn ask_block(edge: &Edge, number: u64, headers: &[(&str, &str)]) -> Reply {
    let range = bytes(number * BLOCK, number * BLOCK + 9);
    let mut all = vec![("Range", &*range)];
    all.extend(headers);
    edge.get("/x", &all)
}

fn check_block(edge: &Edge, number: u64) -> Reply {
    check_range(edge, number * BLOCK, number * BLOCK + 9)
}

// The first response to a URL answers a fetch with one client's header. An error, or a response that
// can't be stored, is for this client alone.
#[test]
fn a_cold_response_without_usable_content_is_only_for_its_client() {
    for (bad, status) in [(gone(404), 404), (gone(410), 410), (private(), 200)] {
        for header in BAD {
            let origin = serving("/x", either(bad.clone(), |_| fresh(10)));
            let edge = Setup::cached(&origin).cache(FORWARD).start();
            assert_eq!(edge.get("/x", &[header]).status, status);
            let other = edge.get("/x", &[("Accept", "text/html")]);
            other.verify_whole(10).expect("the body");
            assert_hit(&edge.get("/x", &[("Accept", "image/png")]));
            assert_eq!(origin.requests().len(), 2);
        }
    }
}

// After one client's 404, a neutral fetch shows that the 404 is for all, however long that takes.
#[test]
fn a_missing_resource_costs_two_requests() {
    for range in ["bytes=0-", "bytes=5000000-5000009"] {
        let origin = serving("/x", gone(404));
        let edge = filling(&origin, "slice").start();
        for accept in ["text/html", "image/png", "text/css"] {
            let headers = [("Accept", accept), ("Range", range)];
            assert_eq!(edge.get("/x", &headers).status, 404);
        }
        assert_eq!(origin.requests().len(), 2);
        assert_eq!(origin.requests()[1].header("accept"), None);
        assert_hit(&edge.get("/x", &[("Accept", "text/html")]));
    }
}

// `*/*` and `*` say the same as no header (RFC 9110 12.5.1, 12.5.4).
#[test]
fn a_client_that_accepts_anything_makes_a_neutral_fetch() {
    let origin = serving("/x", gone(404));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[("Accept", "*/*"), ("Accept-Language", "*")]);
    let other = edge.get("/x", &[("Accept", "text/html")]);
    assert_eq!(other.status, 404);
    assert_hit(&other);
}

// A neutral fetch confirms that the response can't be shared. Its client gets a response to its own
// request, and later requests are forwarded at once.
#[test]
fn a_page_that_cannot_be_shared_is_confirmed_by_one_neutral_fetch() {
    let page = |seen: &Seen| {
        let language = seen.header("accept-language").unwrap_or("none");
        Resource::bytes(language.to_owned()).cache_control("no-store")
    };
    let origin = serving("/x", Resource::dynamic(page));
    let edge = Setup::cached(&origin).start();
    for (language, requests) in [("de", 1), ("fr", 3), ("it", 4), ("es", 5)] {
        let reply = edge.get("/x", &[("Accept-Language", language)]);
        assert_eq!(reply.text(), language);
        assert_eq!(origin.requests().len(), requests);
    }
}

// An error that answers a fetch with a header of Vary has no Vary of its own, as errors of many
// origins. The error is for this variant alone.
#[test]
fn an_error_without_vary_leaves_the_other_variants() {
    for status in [403, 404] {
        let page = |seen: &Seen| {
            let language = seen.header("accept-language").unwrap_or("none");
            fresh(10).vary("Accept-Language").header("X-Is", language)
        };
        let origin = serving("/x", either(gone(status), page));
        let edge = Setup::cached(&origin).start();
        let get = |language: &str| edge.get("/x", &[("Accept-Language", language)]);
        for language in ["de", "fr"] {
            assert_eq!(get(language).header("x-is"), Some(language));
        }
        assert_eq!(get("x-bad").status, status);
        for language in ["de", "fr"] {
            let stored = get(language);
            assert_eq!(stored.header("x-is"), Some(language));
            assert_hit(&stored);
        }
        let again = get("x-bad");
        assert_eq!(again.status, status);
        assert_hit(&again);
    }
}

// Once a response is stored, the representation is chosen: fetches of its blocks and validations
// carry Accept and Accept-Language only if Vary names them.
#[test]
fn fetches_for_a_stored_response_leave_out_accept() {
    let headers = [("Accept", "text/html"), ("Accept-Language", "de")];
    for vary in ["Accept-Encoding", "Accept-Language"] {
        let origin = serving("/x", fresh(FILE).vary(vary));
        origin.serve("/stale", stale("").vary(vary));
        let edge = filling(&origin, "slice").start();
        for number in [0, 3] {
            let reply = ask_block(&edge, number, &headers);
            assert_eq!(reply.status, 206);
        }
        for _ in 0..2 {
            edge.get("/stale", &headers);
        }
        let language = (vary == "Accept-Language").then_some("de");
        let seen = origin.requests();
        assert_eq!(seen.len(), 4);
        for (n, seen) in seen.iter().enumerate() {
            let cold = n % 2 == 0;
            assert_eq!(seen.header("accept").is_some(), cold);
            let sent = seen.header("accept-language");
            assert_eq!(sent, if cold { Some("de") } else { language });
        }
    }
}

// The fetch of a block for one client gets another version. The stored object and the download of
// another client stay, and the next fetch is neutral.
#[test]
fn another_version_for_one_client_does_not_replace_the_object() {
    for ranged in [true, false] {
        for header in BAD {
            let latch = Latch::at(BLOCK);
            let slow = latch.clone();
            let other = move |seen: &Seen| match seen.header("range") {
                Some(range) if range.starts_with("bytes=0-") => good(seen).hold_body(&slow),
                _ => good(seen),
            };
            let bad = fresh(FILE).version(1).ranges(ranged);
            let origin = serving("/x", either(bad, other));
            let edge = filling(&origin, "slice")
                .cache("read_ahead = 0")
                .cache(FORWARD)
                .start();
            check_block(&edge, 0);
            let mut download = send_whole(&edge);
            wait_for_requests(&origin, "/x", 2);
            ask_block(&edge, 9, &[header]);
            assert_hit(&check_block(&edge, 0));
            check_block(&edge, 8);
            latch.release();
            let reply = download.read_response().expect("a reply");
            reply.verify_whole(FILE).expect("the whole content");
            check_block(&edge, 9);
        }
    }
}

// A version that a neutral fetch confirms replaces the object.
#[test]
fn another_version_for_all_replaces_the_object_after_a_neutral_fetch() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).cache(FORWARD).start();
        check_block(&edge, 0);
        origin.serve("/x", fresh(FILE).version(1));
        ask_block(&edge, 4, &[("X-Who", "me")]);
        let newer = |number: u64| {
            let first = number * BLOCK;
            let reply = ask_block(&edge, number, &[("X-Who", "you")]);
            let right = sluice_lab::offset::verify_version(1, first, &reply.body);
            right.expect("the new version");
            reply
        };
        newer(5);
        assert_hit(&newer(5));
    }
}

// The origin never answers a fetch with one client's header. After `lock_age` the next fetch is
// neutral, although the client that causes it sends such a header too.
#[test]
fn the_fetch_after_a_hanging_one_is_neutral() {
    for header in BAD {
        let latch = Latch::closed();
        let origin = serving("/x", either(fresh(10).hold_head(&latch), |_| fresh(10)));
        let edge = filling(&origin, "lock")
            .cache("lock_timeout = \"1h\"\nlock_age = \"10s\"")
            .cache(FORWARD)
            .start();
        let mut hanging = edge.client();
        hanging.send("GET", "/x", &[header], b"").expect("sent");
        assert!(latch.wait_held(1, SOON));
        let mut waiting: Vec<_> = (0..4)
            .map(|_| {
                let mut client = edge.client();
                client.send("GET", "/x", &[header], b"").expect("sent");
                client
            })
            .collect();
        for client in &mut waiting {
            let reply = client.read_response().expect("a reply");
            reply.verify_whole(10).expect("the body");
        }
        assert_eq!(origin.requests().len(), 2);
        latch.release();
    }
}

// The same after a response has begun.
#[test]
fn the_fetch_that_continues_a_hanging_one_is_neutral() {
    let latch = Latch::at(BLOCK);
    let origin = serving("/x", either(fresh(FILE).hold_body(&latch), good));
    let edge = filling(&origin, "lock")
        .cache("lock_timeout = \"1h\"\nlock_age = \"10s\"")
        .cache(FORWARD)
        .start();
    let bad = [BAD[1]];
    let mut hanging = edge.client();
    hanging.send("GET", "/x", &bad, b"").expect("sent");
    assert!(latch.wait_passed(BLOCK, SOON));
    let mut client = edge.client();
    client.send("GET", "/x", &bad, b"").expect("sent");
    let reply = client.read_response().expect("a reply");
    reply.verify_whole(FILE).expect("the whole content");
    latch.release();
}

fn loops(seen: &Seen) -> bool {
    seen.header_all("cdn-loop").join(",").contains(ENTRY.1)
}

// A client sends an entry of an upstream Sluice, which answers 508. That concerns this client alone.
#[test]
fn a_loop_error_concerns_only_its_client() {
    let kinds: [fn() -> Resource; 2] = [|| fresh(10), || fresh(FILE)];
    for looped in [Resource::status(508), gone(508)] {
        for kind in kinds {
            let refused = looped.clone();
            let choose = move |seen: &Seen| match loops(seen) {
                true => refused.clone(),
                false => kind(),
            };
            let origin = serving("/x", Resource::dynamic(choose));
            let edge = filling(&origin, "slice").start();
            for _ in 0..3 {
                assert_eq!(edge.get("/x", &[ENTRY]).status, 508);
            }
            assert_eq!(edge.get("/x", &[]).status, 200);
            for _ in 0..3 {
                ask_block(&edge, 9, &[ENTRY]);
            }
            assert_hit(&edge.get("/x", &[("Range", "bytes=0-9")]));
        }
    }
}

// The same for a validation.
#[test]
fn a_loop_error_of_a_validation_concerns_only_its_client() {
    let choose = |seen: &Seen| match loops(seen) {
        true => Resource::status(508),
        false => stale(""),
    };
    let origin = serving("/x", Resource::dynamic(choose));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]).verify_whole(LENGTH).expect("stored");
    for _ in 0..3 {
        assert_eq!(edge.get("/x", &[ENTRY]).status, 508);
    }
    assert_validated(&edge.get("/x", &[]));
}

// A HEAD with one client's header is sent to the origin, which describes another version. The stored
// response to GET stays fresh.
#[test]
fn a_head_with_one_clients_header_does_not_affect_the_stored_response() {
    for header in BAD {
        let origin = serving("/x", either(fresh(10).version(1), |_| fresh(10)));
        let edge = Setup::cached(&origin)
            .cache("methods = [\"GET\"]")
            .cache(FORWARD)
            .start();
        edge.get("/x", &[]).verify_whole(10).expect("stored");
        assert_eq!(edge.ask("HEAD", "/x", &[header], b"").status, 200);
        assert_hit(&edge.get("/x", &[]));
        origin.serve("/x", fresh(10).version(2));
        edge.ask("HEAD", "/x", &[("Accept", "*/*")], b"");
        let newer = edge.get("/x", &[]);
        newer.verify_version(2, 0).expect("the new version");
    }
}

// The origin never answers a request with a header of one client. Validations don't carry it.
#[test]
fn a_validation_carries_nothing_of_its_client() {
    let bad = Resource::bytes("").fault(Fault::NeverAnswer);
    let origin = serving("/x", either(bad, |_| stale("")));
    let edge = Setup::cached(&origin).cache(FORWARD).start();
    edge.get("/x", &[]).verify_whole(LENGTH).expect("stored");
    for header in BAD {
        assert_validated(&edge.get("/x", &[header]));
    }
    assert_eq!(origin.requests().len(), 3);
}

/// Has one client with a bad header and four clients with `others` wait for a validation, and releases
/// it. Returns the number of requests that the origin gets from then on.
fn requests_of_a_refused_validation(others: &[(&str, &str)]) -> usize {
    let latch = Latch::closed();
    let origin = serving("/x", stale(""));
    let edge = Setup::cached(&origin).workers(1).cache(FORWARD).start();
    edge.get("/x", &[]).verify_whole(LENGTH).expect("stored");
    origin.serve("/x", gone(403).hold_head(&latch));
    let mut clients = Vec::new();
    for n in 0..5 {
        let mut client = edge.client();
        let headers = if n == 0 { &BAD[1..] } else { others };
        client.send("GET", "/x", headers, b"").expect("sent");
        if n == 0 {
            assert!(latch.wait_held(1, SOON));
        }
        clients.push(client);
    }
    eventually("all wait", || edge.counter("requests_now") == 5);
    latch.release();
    for client in &mut clients {
        assert_eq!(client.read_response().expect("a reply").status, 403);
    }
    origin.requests().len() - 1
}

// The origin refuses a validation for all clients. The first one leaves out a header that the origin
// may need, so its client's request is forwarded. The other clients have no such header, and share the
// response to the next validation.
#[test]
fn clients_that_wait_for_a_refused_validation_share_a_stored_error() {
    assert_eq!(requests_of_a_refused_validation(&[]), 3);
}

// The clients that wait have a header that the neutral fetch leaves out. Each gets a response to its
// own request after one neutral fetch, and not after one for each client.
#[test]
fn clients_that_wait_for_a_refused_validation_cause_one_neutral_fetch() {
    assert_eq!(requests_of_a_refused_validation(&BAD[1..]), 6);
}
