//! Tests of 304 responses from the origin, and of what they change in the stored response.

use sluice_lab::origin::{Resource, Seen};

use crate::caching_rules::{LENGTH, assert_validated, current, stale, tagged, times};
use crate::harness::{Setup, assert_hit, cache_status, serving, stored, stored_with, ttl};

// RFC 9111 4.3.4, 3.2: after a 304 the stored response has the headers of the 304, except for those
// that describe the content.
#[test]
fn a_304_updates_the_stored_response() {
    let old = stale("").header("X-Both", "old").header("X-Old", "old");
    let (origin, edge) = stored(old.tag(tagged("v")).header("Content-Type", "a/b"));
    let not_modified = Resource::status(304)
        .tag(tagged("v"))
        .cache_control("max-age=3600")
        .header("X-Both", "new")
        .header("X-New", "new")
        .header("Content-Length", "5")
        .header("Content-Encoding", "zebra")
        .header("Content-Range", "bytes 0-4/5");
    origin.serve("/x", not_modified);
    let validated = edge.get("/x", &[]);
    assert_validated(&validated);
    let hit = edge.get("/x", &[]);
    assert_hit(&hit);
    assert!(ttl(&hit) > 3000, "{}", cache_status(&hit));
    for reply in [validated, hit] {
        reply.verify_whole(LENGTH).expect("the stored content");
        assert_eq!(reply.header_all("x-both"), ["new"]);
        assert_eq!(reply.header("x-new"), Some("new"));
        assert_eq!(reply.header("x-old"), Some("old"));
        assert_eq!(reply.header("content-type"), Some("a/b"));
        assert_eq!(reply.header_all("content-length"), ["1000"]);
        assert_eq!(reply.header("content-encoding"), None);
        assert_eq!(reply.header("content-range"), None);
        assert_eq!(reply.header_all("etag"), ["\"v\""]);
    }
    assert_eq!(times(&origin, "/x"), 2);
}

// RFC 9111 4.2.3: a 304 that comes from another cache has an Age header, from which the age of the
// stored response continues.
#[test]
fn the_age_of_a_304_counts() {
    let origin = serving("/x", stale(""));
    let edge = Setup::cached(&origin).start();
    for asked in 1..=4 {
        edge.get("/x", &[]).verify_whole(LENGTH).expect("the body");
        assert_eq!(times(&origin, "/x"), asked, "a 304 that is stale itself");
    }
    origin.serve("/x", current().header("Age", "1000"));
    edge.get("/x", &[]);
    let hit = edge.get("/x", &[]);
    assert_hit(&hit);
    assert!((2500..=2600).contains(&ttl(&hit)), "{}", cache_status(&hit));
}

// RFC 9111 4.3.4: a 304 without a validator updates the stored response whose validator the request
// had.
#[test]
fn a_304_need_not_contain_the_validator() {
    let (origin, edge) = stored(stale(""));
    origin.serve("/x", Resource::status(304).cache_control("max-age=3600"));
    let validated = edge.get("/x", &[]);
    validated.verify_whole(LENGTH).expect("the body");
    assert_validated(&validated);
    assert_hit(&edge.get("/x", &[]));
}

// RFC 9110 15.4.5: a 304 to a request without conditions is an error of the origin, and is not
// stored.
#[test]
fn an_unexpected_304_is_not_stored() {
    let origin = serving("/x", Resource::status(304).cache_control("max-age=3600"));
    let edge = Setup::cached(&origin).start();
    for _ in 0..2 {
        let reply = edge.get("/x", &[]);
        let status = reply.status;
        assert!(matches!(status, 304 | 502), "{status}");
        assert!(!cache_status(&reply).contains("hit"));
    }
    origin.serve("/x", current());
    let good = edge.get("/x", &[]);
    good.verify_whole(LENGTH).expect("the body");
}

// RFC 9111 4.3.4: a 304 has another strong entity tag than the stored response. The stored entity
// tag stays, so that the tag always belongs to the stored body.
#[test]
fn a_304_with_another_entity_tag_mixes_nothing() {
    let (origin, edge) = stored(stale("").tag(tagged("a")));
    let choose = |seen: &Seen| match seen.header("if-none-match") {
        Some(_) => Resource::status(304).tag(tagged("b")),
        None => current().version(1).tag(tagged("b")),
    };
    origin.serve("/x", Resource::dynamic(choose));
    for _ in 0..2 {
        let reply = edge.get("/x", &[]);
        assert_eq!(reply.status, 200);
        let version = u32::from(reply.header("etag") == Some("\"b\""));
        reply.verify_version(version, 0).expect("that of the tag");
    }
}

// RFC 9111 3, 4.3.4: a 304 may forbid storing although the stored response had permitted it.
#[test]
fn a_304_may_forbid_storing() {
    let (origin, edge) = stored(stale(""));
    origin.serve("/x", Resource::offset(LENGTH).cache_control("no-store"));
    for _ in 0..3 {
        let before = times(&origin, "/x");
        let reply = edge.get("/x", &[]);
        reply.verify_whole(LENGTH).expect("the body");
        assert!(times(&origin, "/x") > before, "{}", cache_status(&reply));
    }
}

// A cookie in a 304 goes to one client only, and is not stored with the updated response.
#[test]
fn a_304_sets_no_cookie_for_others() {
    for setting in ["pass", "remove"] {
        let (origin, edge) = stored_with(stale(""), &format!("set_cookie = \"{setting}\""));
        origin.serve("/x", current().header("Set-Cookie", "id=own"));
        edge.get("/x", &[]).verify_whole(LENGTH).expect("the body");
        origin.serve("/x", current());
        for _ in 0..2 {
            let reply = edge.get("/x", &[]);
            reply.verify_whole(LENGTH).expect("the body");
            assert_eq!(reply.header("set-cookie"), None, "{setting}");
        }
    }
}

// RFC 9111 5.2.2.4, 5.2.2.7: the directives `no-cache` and `private` of a 304 can name headers,
// which are then not stored.
#[test]
fn headers_named_by_a_304_are_not_stored() {
    let (origin, edge) = stored(stale("").header("X-Own", "old"));
    let control = "max-age=3600, private=\"X-Own\"";
    let named = Resource::offset(LENGTH).cache_control(control);
    origin.serve("/x", named.header("X-Own", "mine"));
    edge.get("/x", &[]);
    let hit = edge.get("/x", &[]);
    assert_hit(&hit);
    assert_eq!(hit.header("x-own"), None);
}

// RFC 9111 4.1, 4.3.4: the Vary of the 304 replaces that of the stored response.
#[test]
fn a_304_may_change_vary() {
    let origin = serving("/x", stale(""));
    let edge = Setup::cached(&origin).start();
    let ask = |flavour| edge.get("/x", &[("X-Flavour", flavour)]);
    ask("cherry");
    origin.serve("/x", current().vary("X-Flavour"));
    ask("cherry").verify_whole(LENGTH).expect("the body");
    origin.serve("/x", current().version(1).vary("X-Flavour"));
    let lemon = ask("lemon");
    lemon.verify_version(1, 0).expect("its own");
    assert!(!cache_status(&lemon).contains("hit"));
}
