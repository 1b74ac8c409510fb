//! What requests may ask of the cache (RFC 9111 5.2.1, 5.4).

use sluice_lab::origin::Origin;

use crate::aging::{LENGTH, aged, assert_stale, current, stale, times};
use crate::harness::{
    Edge, Setup, assert_hit, assert_says, cache_status, eventually, origin, serving,
};

/// A cache that does as its clients say.
fn obedient(origin: &Origin) -> Edge {
    Setup::cached(origin)
        .cache("client_directives = true")
        .start()
}

/// Asks with this Cache-Control; whether it is answered from the cache.
fn hits(edge: &Edge, path: &str, control: &str) -> bool {
    let reply = edge.get(path, &[("Cache-Control", control)]);
    reply.verify_whole(LENGTH).expect(control);
    cache_status(&reply).starts_with("sluice; hit")
}

// Clients that ask for more than the cache would do are not heard unless the configuration says so.
#[test]
fn clients_may_not_ask_for_more_unless_told() {
    let origin = serving("/x", aged("max-age=100", 50));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]);
    for control in ["no-cache", "no-store", "max-age=0", "min-fresh=1000"] {
        assert!(hits(&edge, "/x", control), "{control}");
    }
    assert_hit(&edge.get("/x", &[("Pragma", "no-cache")]));
    assert_eq!(times(&origin, "/x"), 1);
}

// RFC 9111 5.2.1.4: what is stored is validated, fresh or not.
#[test]
fn no_cache_asks_the_origin() {
    let origin = serving("/x", current());
    let edge = obedient(&origin);
    edge.get("/x", &[]);
    for (n, control) in ["no-cache", "NO-CACHE", "max-stale=9, no-cache"]
        .into_iter()
        .enumerate()
    {
        let reply = edge.get("/x", &[("Cache-Control", control)]);
        reply.verify_whole(LENGTH).expect("the body");
        assert_says(&reply, "fwd=request");
        assert_eq!(times(&origin, "/x"), n + 2, "{control}");
    }
    assert_hit(&edge.get("/x", &[]));
}

// Of another version it is stored for all.
#[test]
fn no_cache_brings_the_new_version_for_all() {
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

// RFC 5861 3 lets stale responses be used, and no-cache forbids just that.
#[test]
fn no_cache_is_not_answered_with_what_is_stale() {
    let origin = serving("/x", stale(", stale-while-revalidate=600"));
    let edge = obedient(&origin);
    edge.get("/x", &[]);
    origin.serve("/x", current().version(1));
    let reply = edge.get("/x", &[("Cache-Control", "no-cache")]);
    reply.verify_version(1, 0).expect("the new one");
}

// RFC 9111 5.2.1.5: the response is not stored.
#[test]
fn no_store_is_not_stored() {
    let origin = serving("/x", current());
    let edge = obedient(&origin);
    for asked in 1..=2 {
        assert!(!hits(&edge, "/x", "no-store"));
        assert_eq!(times(&origin, "/x"), asked);
    }
    let miss = edge.get("/x", &[]);
    assert_says(&miss, "stored");
    assert_hit(&edge.get("/x", &[]));
}

// RFC 9111 5.2.1.1: nothing older than this.
#[test]
fn max_age_bounds_the_age() {
    let origin = serving("/x", aged("max-age=1000", 50));
    let edge = obedient(&origin);
    edge.get("/x", &[]);
    assert!(hits(&edge, "/x", "max-age=900"));
    assert!(hits(&edge, "/x", "max-age=900, max-age=900"));
    assert!(!hits(&edge, "/x", "max-age=10"));
    assert!(!hits(&edge, "/x", "max-age=0"));
    assert_eq!(times(&origin, "/x"), 3);
}

// RFC 9111 5.2.1.3: nothing that will not be fresh for so long.
#[test]
fn min_fresh_bounds_what_is_left() {
    let origin = serving("/x", aged("max-age=1000", 500));
    let edge = obedient(&origin);
    edge.get("/x", &[]);
    assert!(hits(&edge, "/x", "min-fresh=100"));
    assert!(!hits(&edge, "/x", "min-fresh=900"));
    assert_eq!(times(&origin, "/x"), 2);
}

// RFC 9111 5.4: Pragma: no-cache is Cache-Control: no-cache where there is no Cache-Control.
#[test]
fn pragma_counts_alone() {
    let origin = serving("/x", current());
    let edge = obedient(&origin);
    edge.get("/x", &[]);
    let pragma = ("Pragma", "no-cache");
    assert_hit(&edge.get("/x", &[pragma, ("Cache-Control", "max-age=900")]));
    assert_hit(&edge.get("/x", &[("Pragma", "something-else")]));
    assert_says(&edge.get("/x", &[pragma]), "fwd=request");
    assert_eq!(times(&origin, "/x"), 2);
}

// RFC 9111 5.2.1.7: 504 without asking the origin, with or without `client_directives`.
#[test]
fn only_if_cached_is_answered_from_the_cache_or_not_at_all() {
    let origin = serving("/x", current());
    origin.serve("/stale", stale(""));
    for edge in [Setup::cached(&origin).start(), obedient(&origin)] {
        let ask = |path| edge.get(path, &[("Cache-Control", "only-if-cached")]);
        let before = origin.requests().len();
        let refused = ask("/x");
        assert_eq!(refused.status, 504);
        assert_says(&refused, "detail=only-if-cached");
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

// RFC 9111 5.2.1.7, 5.2.1.2 together.
#[test]
fn only_if_cached_may_be_stale_where_the_client_says_so() {
    let origin = serving("/x", stale(""));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]);
    let control = ("Cache-Control", "only-if-cached, max-stale=500");
    assert_stale(&edge.get("/x", &[control]), "max-stale");
    let control = ("Cache-Control", "only-if-cached, max-stale=5");
    assert_eq!(edge.get("/x", &[control]).status, 504);
    assert_eq!(times(&origin, "/x"), 1);
}

// What is known not to be stored is not asked for, either.
#[test]
fn only_if_cached_is_not_passed() {
    let unshared = sluice_lab::origin::Resource::offset(LENGTH).cache_control("no-store");
    let origin = serving("/x", unshared);
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]);
    let refused = edge.get("/x", &[("Cache-Control", "only-if-cached")]);
    assert_eq!(refused.status, 504);
    assert_eq!(times(&origin, "/x"), 1);
}

// Part of an object is no stored response to a request for all of it.
#[test]
fn only_if_cached_is_not_for_what_is_missing_in_part() {
    use crate::pieces::{BLOCK, FILE, check_range, filling, landed};
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

// RFC 9111 5.2.1.2: stale for at most so long, or for any time.
#[test]
fn max_stale_takes_what_is_stale() {
    let origin = serving("/x", stale(""));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]);
    for control in ["max-stale=500", "max-stale"] {
        let reply = edge.get("/x", &[("Cache-Control", control)]);
        reply.verify_whole(LENGTH).expect("the body");
        assert_stale(&reply, "max-stale");
    }
    assert_eq!(times(&origin, "/x"), 1);
    assert!(!hits(&edge, "/x", "max-stale=5"));
    assert_eq!(times(&origin, "/x"), 2);
}

// RFC 9111 5.2.2.2, 5.2.2.4, 5.2.2.8: what the origin forbids no client may ask for.
#[test]
fn max_stale_gives_way_to_the_origin() {
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

// A directive that can't be read breaks nothing, for that client and for others.
#[test]
fn malformed_directives_break_nothing() {
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

// Several lines are one list (RFC 9110 5.3).
#[test]
fn directives_may_come_in_several_lines() {
    let origin = serving("/x", current());
    let edge = obedient(&origin);
    edge.get("/x", &[]);
    let lines = [
        ("Cache-Control", "max-age=900"),
        ("Cache-Control", "no-cache"),
    ];
    assert_says(&edge.get("/x", &lines), "fwd=request");
    assert_eq!(times(&origin, "/x"), 2);
}
