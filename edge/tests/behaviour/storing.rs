//! Tests of the decision to store a response, and of its lifetime (RFC 9111 3, 4.2; RFC 9213).

use sluice_lab::origin::{Latch, Modified, Resource, Seen, Tag};

use crate::caching_rules::{
    Case, Crowd, LENGTH, aged, bare, check_fresh_for, current, fresh_for, stale, times,
};
use crate::harness::{
    SOON, Setup, assert_has_parameter, assert_hit, cache_status, fresh, origin, serving,
};

pub const HOUR: std::ops::RangeInclusive<i64> = 3580..=3600;
pub const YEAR: i64 = 365 * 24 * 3600;

/// Returns a resource without lifetime and validator, with this header.
pub fn with(name: &str, value: &str) -> Resource {
    bare(Resource::offset(LENGTH)).header(name, value)
}

// RFC 9111 3: responses with final statuses, including errors, are stored if they have an explicit
// lifetime.
#[test]
fn most_statuses_with_explicit_freshness_are_stored() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for status in [
        200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 403, 404, 405, 410, 414, 451, 500, 501,
        502, 503, 504,
    ] {
        let path = format!("/{status}");
        let resource = Resource::status(status).cache_control("max-age=3600");
        let kept = fresh_for(&edge, &origin, &path, resource);
        assert!(kept.is_some_and(|ttl| HOUR.contains(&ttl)), "{status}");
        assert_eq!(edge.get(&path, &[]).status, status);
    }
}

// Responses with these statuses concern one request, and not the resource.
#[test]
fn statuses_of_one_request_are_never_stored() {
    let origin = origin();
    let edge = Setup::cached(&origin)
        .cache("valid = { any = \"1h\" }")
        .start();
    for status in [
        401, 407, 408, 412, 413, 416, 417, 421, 425, 426, 428, 429, 431, 511,
    ] {
        let path = format!("/{status}");
        let resource = Resource::status(status).cache_control("max-age=3600, public");
        let kept = fresh_for(&edge, &origin, &path, resource);
        assert_eq!(kept, None, "{status}");
        assert!(times(&origin, &path) >= 2, "{status}");
    }
}

// RFC 9111 5.2.2.3: a response with an unknown status is stored if it has a lifetime, unless it has
// `must-understand`.
#[test]
fn unknown_statuses_with_explicit_freshness_are_stored() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for status in [299, 399, 499, 599] {
        let answer = |n, control| {
            let resource = Resource::status(status).cache_control(control);
            fresh_for(&edge, &origin, &format!("/{status}/{n}"), resource)
        };
        assert!(answer(1, "max-age=3600").is_some(), "{status}");
        assert_eq!(answer(2, "must-understand, max-age=3600"), None, "{status}");
        assert_eq!(answer(3, "x=y"), None, "{status}");
    }
}

// RFC 9111 5.2.2.3: a cache that knows the status ignores a `no-store` next to `must-understand`.
#[test]
fn must_understand_overrides_no_store_for_known_statuses() {
    let control = "must-understand, no-store, max-age=3600";
    let known = bare(Resource::offset(LENGTH)).cache_control(control);
    let unknown = Resource::status(599).cache_control(control);
    let origin = origin();
    let cases = vec![("known", known, Some(HOUR)), ("unknown", unknown, None)];
    check_fresh_for(&Setup::cached(&origin), &origin, cases);
}

// RFC 9111 5.2.2.4, 5.2.2.7: headers named by `private` or `no-cache` go only to the client whose
// request was sent to the origin.
#[test]
fn headers_named_by_private_and_no_cache_are_not_stored() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for control in [
        "max-age=3600, private=\"X-Own\"",
        "max-age=3600, no-cache=\"X-Own\"",
        "max-age=3600, private=\"x-own, x-more\", no-cache=\"X-Other\"",
        "max-age=3600, no-cache=X-Own",
    ] {
        let path = format!("/{}", control.len());
        let resource = fresh_with(control)
            .header("X-Own", "mine")
            .header("X-All", "ours");
        origin.serve(&path, resource);
        let first = edge.get(&path, &[]);
        assert_eq!(first.header("x-own"), Some("mine"), "{control}");
        let hit = edge.get(&path, &[]);
        hit.verify_whole(LENGTH).expect("the body");
        assert_hit(&hit);
        assert_eq!(hit.header("x-own"), None, "{control}");
        assert_eq!(hit.header("x-all"), Some("ours"), "{control}");
    }
}

pub fn fresh_with(control: &str) -> Resource {
    Resource::offset(LENGTH).cache_control(control)
}

// Clients that waited for the fetch don't receive the headers that `private` or `no-cache` names.
#[test]
fn named_headers_are_not_sent_to_waiting_clients() {
    let latch = Latch::closed();
    let control = "max-age=3600, private=\"X-Own\"";
    let resource = fresh_with(control).header("X-Own", "mine");
    let origin = serving("/x", resource.hold_head(&latch));
    let edge = Setup::cached(&origin).start();
    let crowd = Crowd::of(&edge, 8, "/x", &[]);
    latch.release();
    let own = |reply: &sluice_lab::client::Reply| reply.header("x-own").is_some();
    assert!(crowd.replies().iter().filter(|reply| own(reply)).count() <= 1);
    assert_eq!(times(&origin, "/x"), 1);
}

#[test]
fn private_and_no_store_are_not_stored() {
    let origin = origin();
    let cases: Vec<Case<'_>> = [
        "private, max-age=3600",
        "PRIVATE, max-age=3600",
        "no-store, max-age=3600",
        "max-age=3600, No-Store",
        "public, private, max-age=3600",
    ]
    .map(|control| (control, fresh_with(control), None))
    .into();
    check_fresh_for(&Setup::cached(&origin), &origin, cases);
}

// RFC 9111 4.2.1: a malformed directive is interpreted in the way that caches less. The responses
// would otherwise have a heuristic lifetime, or that of Expires.
#[test]
fn malformed_restrictions_are_honoured() {
    let origin = origin();
    let cases: Vec<Case<'_>> = [
        "private; max-age=600",
        "no-store; no-cache",
        "private no-store",
        "\"private\"",
        "no-cache; no-store; must-revalidate",
        "max-age=600; private",
        "max-age=600, private;x=1",
        "max-age=600, no-store;",
        "max-age=600, \"no-store\"",
        "public; private, max-age=600",
        "no-cache; a",
        "public; max-age=600",
    ]
    .map(|control| {
        let resource = fresh_with(control).header("Expires", "Fri, 01 Jan 2038 00:00:00 GMT");
        (control, resource, None)
    })
    .into();
    check_fresh_for(&Setup::cached(&origin), &origin, cases);
}

#[test]
fn set_cookie_has_three_modes() {
    for (setting, kept, later) in [
        (None, false, Some("a=b")),
        (Some("pass"), false, Some("a=b")),
        (Some("store"), true, Some("a=b")),
        (Some("remove"), true, None),
    ] {
        let origin = serving("/x", current().header("Set-Cookie", "a=b"));
        let mut setup = Setup::cached(&origin);
        if let Some(setting) = setting {
            setup = setup.cache(&format!("set_cookie = \"{setting}\""));
        }
        let edge = setup.start();
        assert_eq!(edge.get("/x", &[]).header("set-cookie"), Some("a=b"));
        for _ in 0..2 {
            let reply = edge.get("/x", &[]);
            assert_eq!(reply.header("set-cookie"), later, "{setting:?}");
            let hit = cache_status(&reply).starts_with("sluice; hit");
            assert_eq!(hit, kept, "{setting:?}");
        }
    }
}

const ANN: (&str, &str) = ("Authorization", "Basic YW5u");
const BEN: (&str, &str) = ("Authorization", "Basic YmVu");

// RFC 9111 3.5: a response to a request with Authorization is shared only if the response permits
// it, for example with `public`.
#[test]
fn responses_to_authorized_requests_are_shared_if_they_permit_it() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for (n, (control, shared)) in [
        ("max-age=3600", false),
        ("max-age=3600, public", true),
        ("s-maxage=3600", true),
        ("max-age=3600, must-revalidate", true),
        ("max-age=3600, proxy-revalidate", false),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{n}");
        origin.serve(&path, fresh_with(control));
        edge.get(&path, &[ANN]).verify_whole(LENGTH).expect(control);
        edge.get(&path, &[BEN]).verify_whole(LENGTH).expect(control);
        let asked = if shared { 1 } else { 2 };
        assert_eq!(times(&origin, &path), asked, "{control}");
    }
}

// RFC 9111 3.5: a response was stored for a request without Authorization. It answers requests with
// Authorization only if it permits that.
#[test]
fn authorized_requests_receive_stored_responses_that_permit_it() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for (path, control, shared) in [
        ("/a", "max-age=3600", false),
        ("/b", "max-age=3600, public", true),
    ] {
        origin.serve(path, fresh_with(control));
        edge.get(path, &[]);
        let reply = edge.get(path, &[ANN]);
        let hit = cache_status(&reply).starts_with("sluice; hit");
        assert_eq!(hit, shared, "{control}: {}", cache_status(&reply));
        if !shared {
            let sent = crate::caching_rules::last_sent(&origin, path, "authorization");
            assert_eq!(sent.as_deref(), Some(ANN.1));
        }
        assert_hit(&edge.get(path, &[]));
    }
}

// The response to a request with Authorization is not stored. This must not make the cache forward
// requests without Authorization.
#[test]
fn a_response_to_authorization_does_not_make_others_pass() {
    let origin = serving("/x", current());
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[ANN]);
    assert_has_parameter(&edge.get("/x", &[]), "stored");
    assert_hit(&edge.get("/x", &[]));
}

// An error such as 401, in response to the credentials of one client, is not shared with other
// clients.
#[test]
fn errors_to_the_authorized_are_not_shared() {
    let origin = serving(
        "/x",
        Resource::status(403).cache_control("public, max-age=3600"),
    );
    let edge = Setup::cached(&origin).start();
    for asked in 1..=2 {
        assert_eq!(edge.get("/x", &[ANN]).status, 403);
        assert_eq!(times(&origin, "/x"), asked);
    }
}

// Clients with different credentials send concurrent requests for a resource of which nothing is
// known. Each client receives the response to its own request.
#[test]
fn concurrent_authorized_requests_receive_their_own_responses() {
    let latch = Latch::closed();
    let held = latch.clone();
    let own = move |seen: &Seen| {
        let who = seen.header("authorization").unwrap_or("nobody").to_owned();
        Resource::bytes(who)
            .cache_control("max-age=3600")
            .hold_head(&held)
    };
    let origin = serving("/x", Resource::dynamic(own));
    let edge = Setup::cached(&origin).start();
    let others = Crowd::of(&edge, 3, "/x", &[]);
    let anns = Crowd::beside(3, &edge, 3, "/x", &[ANN]);
    let bens = Crowd::beside(6, &edge, 3, "/x", &[BEN]);
    assert!(latch.wait_held(1, SOON));
    latch.release();
    for (crowd, text) in [(others, "nobody"), (anns, ANN.1), (bens, BEN.1)] {
        for reply in crowd.replies() {
            assert_eq!(reply.text(), text, "{}", cache_status(&reply));
        }
    }
}

// RFC 9110 14.4: Content-Range has a meaning only in 206 and 416 responses. In a 200 it is ignored.
#[test]
fn a_200_with_content_range_is_a_full_response() {
    let odd = current().header("Content-Range", "bytes 5-9/10");
    let origin = serving("/x", odd);
    let edge = Setup::cached(&origin).start();
    for _ in 0..2 {
        edge.get("/x", &[]).verify_whole(LENGTH).expect("the body");
    }
    let range = edge.get("/x", &[("Range", "bytes=5-9")]);
    range.verify_range(5, 9, LENGTH).expect("the range");
    assert_eq!(times(&origin, "/x"), 1);
}

// A response that is stale on arrival is useful only if it can be revalidated, or served stale.
#[test]
fn a_response_that_is_stale_on_arrival_is_stored_only_if_it_is_useful() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for (n, (resource, word)) in [
        (stale(""), "stored"),
        (stale("").tag(Tag::Weak).modified(Modified::None), "stored"),
        (bare(stale(", stale-if-error=600")), "stored"),
        (bare(stale(", stale-while-revalidate=600")), "stored"),
        (bare(stale("")), "detail=expired"),
        (bare(stale(", stale-if-error=30")), "detail=expired"),
        (bare(aged("max-age=0", 0)), "detail=expired"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{n}");
        origin.serve(&path, resource);
        let reply = edge.get(&path, &[]);
        reply.verify_whole(LENGTH).expect("the body");
        assert_has_parameter(&reply, word);
    }
}

// The first response ends too early. The complete one must come from a later request.
#[test]
fn a_truncated_response_is_not_stored_as_a_whole() {
    use sluice_lab::origin::{Ending, Fault};
    let cut = Fault::CutBody {
        after: 500,
        ending: Ending::Fin,
    };
    let cut = bare(fresh(LENGTH)).fault_times(1, cut);
    let origin = serving("/x", cut);
    let edge = Setup::cached(&origin).start();
    // The first GET may receive the truncated response. The second one must receive all of the
    // body.
    edge.get("/x", &[]);
    edge.get("/x", &[]).verify_whole(LENGTH).expect("all of it");
}
