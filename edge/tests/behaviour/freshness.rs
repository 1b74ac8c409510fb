//! Tests of the freshness lifetime, which comes from the response, or from the configuration by
//! status.

use std::time::{Duration, Instant};

use sluice_lab::origin::{Modified, Resource, Tag};

use crate::harness::{
    Setup, assert_has_parameter, assert_hit, cache_status, eventually, fresh, origin, serving, ttl,
};

const FAR: &str = "Thu, 01 Jan 2037 00:00:00 GMT";

// The lifetime comes from `s-maxage`, `max-age` or Expires, in this order (RFC 9111 4.2.1). Age
// reduces the remaining time.
#[test]
fn lifetimes_come_from_the_response() {
    let origin = origin();
    let edge = Setup::cached(&origin)
        .cache("valid = { 200 = \"1000s\" }")
        .start();
    let year = 365 * 24 * 3600;
    let cases = [
        (Resource::offset(9).cache_control("max-age=100"), 70..=100),
        (
            Resource::offset(9).cache_control("max-age=5, s-maxage=100"),
            70..=100,
        ),
        (
            Resource::offset(9)
                .cache_control("s-maxage=100")
                .header("Expires", FAR),
            70..=100,
        ),
        (
            Resource::offset(9)
                .cache_control("max-age=100")
                .header("Expires", FAR),
            70..=100,
        ),
        (Resource::offset(9).header("Expires", FAR), year - 60..=year),
        (
            Resource::offset(9)
                .cache_control("max-age=100")
                .header("Age", "60"),
            10..=40,
        ),
        (
            Resource::offset(9)
                .cache_control("public")
                .header("Age", "1"),
            970..=999,
        ),
        (Resource::offset(9), 970..=1000),
    ];
    for (n, (resource, expected)) in cases.into_iter().enumerate() {
        let path = format!("/{n}");
        origin.serve(&path, resource);
        edge.get(&path, &[]);
        let hit = edge.get(&path, &[]);
        assert_hit(&hit);
        assert!(expected.contains(&ttl(&hit)), "{n}: {}", cache_status(&hit));
    }
}

// The age of a stored response begins with the Age header of the origin's response.
#[test]
fn age_continues_from_the_origin_s_value() {
    let origin = serving(
        "/x",
        Resource::offset(9)
            .cache_control("max-age=100")
            .header("Age", "60"),
    );
    let edge = Setup::cached(&origin).start();
    for _ in 0..2 {
        let reply = edge.get("/x", &[]);
        let age: u64 = reply
            .header("age")
            .and_then(|age| age.parse().ok())
            .expect("an age");
        assert!((60..70).contains(&age), "{age}");
        assert_eq!(reply.header_all("age").len(), 1);
    }
}

#[test]
fn a_response_that_is_stale_on_arrival_is_not_stored() {
    let origin = origin();
    let edge = Setup::cached(&origin)
        .cache("valid = { 200 = \"1h\" }")
        .start();
    let bare = || Resource::offset(9).tag(Tag::None).modified(Modified::None);
    let stale = [
        bare().cache_control("max-age=60").header("Age", "61"),
        bare().header("Expires", "Thu, 01 Jan 2015 00:00:00 GMT"),
        bare().header("Expires", "0"),
        bare().cache_control("s-maxage=0, max-age=100"),
    ];
    for (n, resource) in stale.into_iter().enumerate() {
        let path = format!("/{n}");
        origin.serve(&path, resource);
        for _ in 0..2 {
            assert_has_parameter(&edge.get(&path, &[]), "detail=expired");
        }
    }
}

#[test]
fn a_stale_response_is_replaced_by_the_new_version() {
    // The time that the response takes counts as its age.
    let origin = serving("/x", Resource::offset(1000).cache_control("max-age=7"));
    let edge = Setup::cached(&origin).start();
    let began = Instant::now();
    edge.get("/x", &[])
        .verify_version(0, 0)
        .expect("the old one");
    origin.serve("/x", fresh(1000).version(1));
    let mut status = String::new();
    eventually("the new version", || {
        let reply = edge.get("/x", &[]);
        status = cache_status(&reply).to_owned();
        let version = u32::from(origin.requests().len() > 1);
        reply.verify_version(version, 0).expect("one version");
        version == 1
    });
    assert!(
        began.elapsed() > Duration::from_millis(6900),
        "it was fresh for seven seconds"
    );
    assert!(status.starts_with("sluice; fwd=stale"), "{status}");
    assert_hit(&edge.get("/x", &[]));
}

// `valid` gives a lifetime by status to responses that have none of their own.
#[test]
fn configured_lifetimes_depend_on_the_status() {
    let origin = origin();
    let edge = Setup::cached(&origin)
        .cache("valid = { 200 = \"1h\", 404 = \"1m\", 301 = \"2m\" }")
        .start();
    for (status, expected) in [(404, 50..=60), (301, 110..=120)] {
        let path = format!("/{status}");
        origin.serve(&path, Resource::status(status));
        assert_eq!(edge.get(&path, &[]).status, status);
        let hit = edge.get(&path, &[]);
        assert_hit(&hit);
        assert_eq!(
            (hit.status, hit.text()),
            (status, format!("status {status}\n"))
        );
        assert!(expected.contains(&ttl(&hit)), "{}", cache_status(&hit));
    }
    origin.serve("/500", Resource::status(500));
    for _ in 0..2 {
        assert_has_parameter(&edge.get("/500", &[]), "detail=no-lifetime");
    }
}

// The response has no freshness information and no validator.
#[test]
fn a_bare_response_is_stored_as_configured() {
    let bare = Resource::offset(50).tag(Tag::None).modified(Modified::None);
    let origin = serving("/x", bare);
    let edge = Setup::cached(&origin)
        .cache("valid = { 200 = \"1h\" }")
        .start();
    edge.get("/x", &[]).verify_whole(50).expect("the body");
    let hit = edge.get("/x", &[]);
    hit.verify_whole(50).expect("the body");
    assert_hit(&hit);
    let unconfigured = Setup::cached(&origin).start();
    assert_has_parameter(&unconfigured.get("/x", &[]), "detail=no-lifetime");
}
