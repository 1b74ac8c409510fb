//! Tests of Cache-Control and Pragma in requests (RFC 9111 5.2.1, 5.4).

use sluice_lab::origin::Origin;

use crate::caching_rules::{LENGTH, aged, assert_stale, current, stale, times};
use crate::harness::{
    Edge, Setup, assert_has_parameter, assert_hit, cache_status, eventually, origin, serving,
    stored,
};

/// Starts an edge with `client_cache_control = true`, so that it honours Cache-Control in requests.
fn obedient(origin: &Origin) -> Edge {
    Setup::cached(origin)
        .cache("client_cache_control = true")
        .start()
}

/// Sends a request with this Cache-Control. Returns whether the response is a hit.
fn hits(edge: &Edge, path: &str, control: &str) -> bool {
    let reply = edge.get(path, &[("Cache-Control", control)]);
    reply.verify_whole(LENGTH).expect(control);
    cache_status(&reply).starts_with("sluice; hit")
}

// By default the cache ignores directives in requests that would cause additional requests to the
// origin.
#[test]
fn demanding_directives_are_ignored_by_default() {
    let (origin, edge) = stored(aged("max-age=100", 50));
    for control in ["no-cache", "no-store", "max-age=0", "min-fresh=1000"] {
        assert!(hits(&edge, "/x", control), "{control}");
    }
    assert_hit(&edge.get("/x", &[("Pragma", "no-cache")]));
    assert_eq!(times(&origin, "/x"), 1);
}

// RFC 9111 5.2.1.4: `no-cache` in a request has the stored response validated, even if it is fresh.
#[test]
fn no_cache_revalidates_the_stored_response() {
    let origin = serving("/x", current());
    let edge = obedient(&origin);
    edge.get("/x", &[]);
    for (n, control) in ["no-cache", "NO-CACHE", "max-stale=9, no-cache"]
        .into_iter()
        .enumerate()
    {
        let reply = edge.get("/x", &[("Cache-Control", control)]);
        reply.verify_whole(LENGTH).expect("the body");
        assert_has_parameter(&reply, "fwd=request");
        assert_eq!(times(&origin, "/x"), n + 2, "{control}");
    }
    assert_hit(&edge.get("/x", &[]));
}

// A request with `no-cache` makes the edge ask the origin, which has a new version. The new version
// is then stored for all clients.
#[test]
fn no_cache_stores_the_new_version_for_all_clients() {
    let origin = serving("/x", current());
    let edge = obedient(&origin);
    edge.get("/x", &[]);
    origin.serve("/x", current().version(1));
    assert_hit(&edge.get("/x", &[]));
    let reply = edge.get("/x", &[("Cache-Control", "no-cache")]);
    reply.verify_version(1, 0).expect("the new one");
    let hit = edge.get("/x", &[]);
    hit.verify_version(1, 0).expect("the new one");
    assert_hit(&hit);
}

// `stale-while-revalidate` (RFC 5861 3) permits a stale response, but `no-cache` in the request
// forbids it.
#[test]
fn no_cache_is_not_answered_with_a_stale_response() {
    let origin = serving("/x", stale(", stale-while-revalidate=600"));
    let edge = obedient(&origin);
    edge.get("/x", &[]);
    origin.serve("/x", current().version(1));
    let reply = edge.get("/x", &[("Cache-Control", "no-cache")]);
    reply.verify_version(1, 0).expect("the new one");
}

#[test]
fn the_response_to_a_no_store_request_is_not_stored() {
    let origin = serving("/x", current());
    let edge = obedient(&origin);
    for asked in 1..=2 {
        assert!(!hits(&edge, "/x", "no-store"));
        assert_eq!(times(&origin, "/x"), asked);
    }
    let miss = edge.get("/x", &[]);
    assert_has_parameter(&miss, "stored");
    assert_hit(&edge.get("/x", &[]));
}

// RFC 9111 5.2.1.1: `max-age` in a request excludes stored responses of a higher age.
#[test]
fn max_age_limits_the_age_of_a_hit() {
    let origin = serving("/x", aged("max-age=1000", 50));
    let edge = obedient(&origin);
    edge.get("/x", &[]);
    assert!(hits(&edge, "/x", "max-age=900"));
    assert!(hits(&edge, "/x", "max-age=900, max-age=900"));
    assert!(!hits(&edge, "/x", "max-age=10"));
    assert!(!hits(&edge, "/x", "max-age=0"));
    assert_eq!(times(&origin, "/x"), 3);
}

// RFC 9111 5.2.1.3: `min-fresh` in a request excludes stored responses that expire within this
// time.
#[test]
fn min_fresh_requires_remaining_freshness() {
    let origin = serving("/x", aged("max-age=1000", 500));
    let edge = obedient(&origin);
    edge.get("/x", &[]);
    assert!(hits(&edge, "/x", "min-fresh=100"));
    assert!(!hits(&edge, "/x", "min-fresh=900"));
    assert_eq!(times(&origin, "/x"), 2);
}

// RFC 9111 5.4: `Pragma: no-cache` means `Cache-Control: no-cache`, if the request has no
// Cache-Control.
#[test]
fn pragma_counts_only_without_cache_control() {
    let origin = serving("/x", current());
    let edge = obedient(&origin);
    edge.get("/x", &[]);
    let pragma = ("Pragma", "no-cache");
    assert_hit(&edge.get("/x", &[pragma, ("Cache-Control", "max-age=900")]));
    assert_hit(&edge.get("/x", &[("Pragma", "something-else")]));
    assert_has_parameter(&edge.get("/x", &[pragma]), "fwd=request");
    assert_eq!(times(&origin, "/x"), 2);
}

// RFC 9111 5.2.1.7: a miss is answered with 504, without a request to the origin. The setting
// `client_cache_control` has no influence on this.
#[test]
fn only_if_cached_is_answered_from_the_cache_or_with_504() {
    let origin = serving("/x", current());
    origin.serve("/stale", stale(""));
    for edge in [Setup::cached(&origin).start(), obedient(&origin)] {
        let ask = |path| edge.get(path, &[("Cache-Control", "only-if-cached")]);
        let before = origin.requests().len();
        let refused = ask("/x");
        assert_eq!(refused.status, 504);
        assert_has_parameter(&refused, "detail=only-if-cached");
        assert_eq!(origin.requests().len(), before);
        edge.get("/x", &[]);
        let hit = ask("/x");
        hit.verify_whole(LENGTH).expect("the body");
        assert_hit(&hit);
        edge.get("/stale", &[]);
        assert_eq!(ask("/stale").status, 504, "it would have to be validated");
        assert_eq!(origin.requests().len(), before + 2);
    }
}

#[test]
fn only_if_cached_with_max_stale_accepts_a_stale_response() {
    let (origin, edge) = stored(stale(""));
    let control = ("Cache-Control", "only-if-cached, max-stale=500");
    assert_stale(&edge.get("/x", &[control]), "max-stale");
    let control = ("Cache-Control", "only-if-cached, max-stale=5");
    assert_eq!(edge.get("/x", &[control]).status, 504);
    assert_eq!(times(&origin, "/x"), 1);
}

#[test]
fn only_if_cached_is_not_passed_to_the_origin() {
    let unshared = sluice_lab::origin::Resource::offset(LENGTH).cache_control("no-store");
    let (origin, edge) = stored(unshared);
    let refused = edge.get("/x", &[("Cache-Control", "only-if-cached")]);
    assert_eq!(refused.status, 504);
    assert_eq!(times(&origin, "/x"), 1);
}

// The request is for the whole object, of which only a part is stored. Therefore the response is
// 504.
#[test]
fn only_if_cached_is_not_answered_from_a_partial_object() {
    use crate::partial_objects::{BLOCK, FILE, check_range, filling, landed};
    let origin = serving("/x", crate::harness::fresh(FILE));
    let edge = filling(&origin, "slice").start();
    check_range(&edge, 5, 9);
    landed(&edge);
    let before = origin.requests().len();
    let ask = |range: &str| {
        let control = ("Cache-Control", "only-if-cached");
        edge.get("/x", &[control, ("Range", range)])
    };
    let here = ask("bytes=100-200");
    here.verify_range(100, 200, FILE).expect("the range");
    let missing = format!("bytes={}-{}", 3 * BLOCK, 3 * BLOCK + 9);
    assert_eq!(ask(&missing).status, 504);
    assert_eq!(origin.requests().len(), before);
}

// RFC 9111 5.2.1.2: `max-stale` accepts responses that have been stale for at most this time, or
// for any time if the directive has no number.
#[test]
fn max_stale_accepts_a_stale_response() {
    let (origin, edge) = stored(stale(""));
    for control in ["max-stale=500", "max-stale"] {
        let reply = edge.get("/x", &[("Cache-Control", control)]);
        reply.verify_whole(LENGTH).expect("the body");
        assert_stale(&reply, "max-stale");
    }
    assert_eq!(times(&origin, "/x"), 1);
    assert!(!hits(&edge, "/x", "max-stale=5"));
    assert_eq!(times(&origin, "/x"), 2);
}

// RFC 9111 5.2.2.2, 5.2.2.4, 5.2.2.8: the directives in the stored response forbid stale responses,
// whatever the client accepts.
#[test]
fn max_stale_does_not_override_the_origin() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    let strict = [
        "max-age=60, must-revalidate",
        "max-age=60, proxy-revalidate",
        "s-maxage=60",
        "max-age=60, no-cache",
    ];
    for (n, control) in strict.into_iter().enumerate() {
        let path = format!("/{n}");
        origin.serve(&path, aged(control, 100));
        edge.get(&path, &[]);
        assert!(!hits(&edge, &path, "max-stale"), "{control}");
        assert_eq!(times(&origin, &path), 2, "{control}");
    }
}

#[test]
fn malformed_directives_are_ignored() {
    let origin = serving("/x", current());
    let edge = obedient(&origin);
    edge.get("/x", &[]);
    for control in [
        "max-age=abc",
        "max-age=-1",
        "max-age=",
        "max-age=99999999999999999999999",
        "max-stale=\"",
        "min-fresh=1.5",
        ",,, ,=,;",
        "=no-cache",
        "no-cachex, xno-store",
        "\"no-store\"",
    ] {
        hits(&edge, "/x", control);
    }
    eventually("it is stored as ever", || {
        cache_status(&edge.get("/x", &[])).starts_with("sluice; hit")
    });
}

#[test]
fn directives_may_be_spread_over_several_lines() {
    let origin = serving("/x", current());
    let edge = obedient(&origin);
    edge.get("/x", &[]);
    let lines = [
        ("Cache-Control", "max-age=900"),
        ("Cache-Control", "no-cache"),
    ];
    assert_has_parameter(&edge.get("/x", &lines), "fwd=request");
    assert_eq!(times(&origin, "/x"), 2);
}
